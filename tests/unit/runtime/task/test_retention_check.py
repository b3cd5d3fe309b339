"""Warnings about windows over old records if the broker deletes their changelog records."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tasks.task_setup import app_config, commit_task, start_task, task_services

from millstream.clock import ManualClock
from millstream.record import TopicPartition
from millstream.serdes import STRING
from millstream.testing.driver_topics import CapturedRecord, CapturingCollector, RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.options.windows import JoinWindows, SessionWindows, TimeWindows
from millstream.topology.physical.topology import Topology

HOUR = timedelta(hours=1)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 20_000 * DAY_MS
PLACE = TopicPartition("in", 0)
CHANGELOG = TopicPartition("app-s-changelog", 0)
#: The retention of windows of one hour without grace period, plus one day.
RETENTION_MS = HOUR_MS + DAY_MS


def windows(logging: Any = True, kind: Any = None) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=STRING, value=STRING).group_by_key()
    grouped.windowed_by(TimeWindows(HOUR)).count(
        store=Materialized("s", kind=kind, retention=HOUR, logging=logging)
    )
    return builder.build()


def sessions() -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream("in", key=STRING, value=STRING).group_by_key()
    grouped.windowed_by(SessionWindows(HOUR, grace=timedelta(0))).count(store=Materialized("s"))
    return builder.build()


def joined() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.join(stream, lambda one, other: one, JoinWindows(HOUR, grace=timedelta(0)))
    return builder.build()


def table() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).group_by_key().count(store="s")
    return builder.build()


class TaskRunner:
    """Runs the task of a topology, with a commit for each record."""

    def __init__(self, folder: Path, topology: Topology, **settings: Any) -> None:
        self.clock = ManualClock(NOW_MS)
        self._services = task_services(
            folder,
            CapturingCollector(),
            self.clock,
            app_config(**settings),
            cache_bytes=1 << 20,
            checks_retention=True,
        )
        (self._part,) = topology._subtopologies()
        self._offset = 0

    def run(self, *ages_ms: int) -> None:
        """Process records of the given ages between a start and a clean close."""
        task = start_task(self._part, self._services)
        for age_ms in ages_ms:
            record = CapturedRecord("in", b"k", b"v", NOW_MS - age_ms, ())
            task.add_records(PLACE, RawColumns.of(record, self._offset))
            self._offset += 1
            task.step(1)
            task.prepare_commit()
            commit_task(task, {CHANGELOG: self._offset})
        task.close(clean=True)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    name = "millstream.runtime.task.retention_check"
    return lambda: [each.getMessage() for each in caplog.records if each.name == name]


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_old_records_are_logged_once(
    tmp_path: Path, warnings: Callable[[], list[str]], kind: str
) -> None:
    TaskRunner(tmp_path, windows(kind=kind)).run(800 * DAY_MS, 700 * DAY_MS, 600 * DAY_MS)
    (warning,) = warnings()
    assert warning.startswith("task 0_0: store 's' receives records of 2022-07-27, but its")
    assert "for 1 day, 1:00:00 after their timestamps (retention.ms=90000000)" in warning
    assert "windowstore_changelog_additional_retention_ms" in warning


@pytest.mark.parametrize(("topology", "stores"), [(sessions(), 1), (joined(), 2)])
def test_old_records_of_sessions_and_joins_are_logged(
    tmp_path: Path, warnings: Callable[[], list[str]], topology: Topology, stores: int
) -> None:
    TaskRunner(tmp_path, topology).run(700 * DAY_MS)
    assert len(warnings()) == stores


@pytest.mark.parametrize(
    ("topology", "settings"),
    [
        (table(), {}),
        (windows(logging=False), {}),
        (windows(logging={"retention.ms": "-1"}), {}),
        (windows(logging={"cleanup.policy": "compact"}), {}),
        (windows(), {"windowstore_changelog_additional_retention_ms": 900 * DAY_MS}),
        (windows(), {"topic": {"message.timestamp.type": "LogAppendTime"}}),
    ],
    ids=["no windows", "no changelog", "kept", "compacted", "kept longer", "append time"],
)
def test_no_warning_if_the_changelog_keeps_old_records(
    tmp_path: Path,
    warnings: Callable[[], list[str]],
    topology: Topology,
    settings: dict[str, Any],
) -> None:
    TaskRunner(tmp_path, topology, **settings).run(800 * DAY_MS)
    assert warnings() == []


def test_no_warning_for_records_within_the_retention(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    runner = TaskRunner(tmp_path, windows())
    runner.run(RETENTION_MS - HOUR_MS, 0)
    assert warnings() == []
    # Late records do not count: the store does not accept them either.
    runner.run(700 * DAY_MS)
    assert warnings() == []


def test_no_warning_without_new_records(tmp_path: Path, warnings: Callable[[], list[str]]) -> None:
    """The windows became old by themselves, in this run of the task or in the previous one."""
    runner = TaskRunner(tmp_path, windows())
    runner.run(0)
    runner.clock.advance(30 * DAY_MS)
    runner.run(0)
    assert warnings() == []
    runner.run(-HOUR_MS)
    assert len(warnings()) == 1

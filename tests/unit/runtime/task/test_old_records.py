"""Windows over old records: a warning where the broker deletes their changelog (retention.ms)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskParts, TaskServices
from millstream.serdes import STRING
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.testing.driver_topics import Captured, CapturingCollector, RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.join_windows import JoinWindows
from millstream.topology.options.materialized import Materialized
from millstream.topology.options.windows import SessionWindows, TimeWindows
from millstream.topology.physical.topology import Topology

HOUR = timedelta(hours=1)
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
NOW_MS = 20_000 * DAY_MS
PLACE = TopicPartition("in", 0)
CHANGELOG = TopicPartition("app-s-changelog", 0)
#: Retention of windows of an hour without grace, and a day more.
KEPT_MS = HOUR_MS + DAY_MS


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


class Program:
    """Runs the task of a topology: one commit for each record."""

    def __init__(self, folder: Path, topology: Topology, **settings: Any) -> None:
        config = StreamsConfig(application_id="app", bootstrap_servers="none:9092", **settings)
        collector = CapturingCollector()
        self.clock = ManualClock(NOW_MS)
        services = TaskServices(
            config=config,
            clock=self.clock,
            collector=collector,
            changelog_writer=collector.changelog_writer,
            directory=StateDirectory(str(folder), "app"),
            budget=CacheBudget(1 << 20),
            warns_of_old_records=True,
        )
        (part,) = topology._subtopologies()
        self._part, self._services = part, services
        self._offset = 0

    def run(self, *ages_ms: int) -> None:
        """Process records of some ages between a start and an orderly end."""
        task = TaskParts(self._part, TaskId(0, 0), frozenset([PLACE]), self._services).task
        task.open_stores()
        task.start({})
        for age_ms in ages_ms:
            record = Captured("in", b"k", b"v", NOW_MS - age_ms, ())
            task.add_records(PLACE, RawColumns.of(record, self._offset))
            self._offset += 1
            task.step(1)
            task.prepare_commit()
            offsets = task.offsets_to_commit()
            task.commit_begun()
            task.post_commit(offsets, {CHANGELOG: self._offset})
        task.close(clean=True)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    name = "millstream.runtime.task.old_records"
    return lambda: [each.getMessage() for each in caplog.records if each.name == name]


@pytest.mark.parametrize("kind", ["rocksdb", "in_memory"])
def test_old_records_are_a_warning_once(
    tmp_path: Path, warnings: Callable[[], list[str]], kind: str
) -> None:
    Program(tmp_path, windows(kind=kind)).run(800 * DAY_MS, 700 * DAY_MS, 600 * DAY_MS)
    (warning,) = warnings()
    assert warning.startswith("task 0_0: store 's' gets records of 2022-07-27, but its changelog")
    assert "for 1 day, 1:00:00 by their timestamps (retention.ms=90000000)" in warning
    assert "windowstore_changelog_additional_retention_ms" in warning


@pytest.mark.parametrize(("topology", "stores"), [(sessions(), 1), (joined(), 2)])
def test_sessions_and_joins_have_such_changelogs(
    tmp_path: Path, warnings: Callable[[], list[str]], topology: Topology, stores: int
) -> None:
    Program(tmp_path, topology).run(700 * DAY_MS)
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
def test_changelogs_that_keep_old_records_are_no_warning(
    tmp_path: Path,
    warnings: Callable[[], list[str]],
    topology: Topology,
    settings: dict[str, Any],
) -> None:
    Program(tmp_path, topology, **settings).run(800 * DAY_MS)
    assert warnings() == []


def test_records_within_the_retention_are_no_warning(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    program = Program(tmp_path, windows())
    program.run(KEPT_MS - HOUR_MS, 0)
    assert warnings() == []
    # Late records do not count: the store does not take them either.
    program.run(700 * DAY_MS)
    assert warnings() == []


def test_an_application_without_new_records_is_not_warned(
    tmp_path: Path, warnings: Callable[[], list[str]]
) -> None:
    """Its windows have become old by themselves, in this life of the task or in the one before."""
    program = Program(tmp_path, windows())
    program.run(0)
    program.clock.advance(30 * DAY_MS)
    program.run(0)
    assert warnings() == []
    program.run(-HOUR_MS)
    assert len(warnings()) == 1

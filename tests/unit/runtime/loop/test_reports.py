"""Reports about a thread's tasks to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.tasks.task_bench import TaskBench

from millstream.application.thread_metadata import TaskMetadata, tasks_of
from millstream.clock import ManualClock
from millstream.metrics.registry import RecordingLevel, RecordingSettings
from millstream.record import TaskId
from millstream.runtime.loop.reports import ThreadReporter
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.states.thread_states import OwnedTask, TaskState
from millstream.runtime.thread_control import Report, TasksChanged

TASK = TaskId(0, 0)


class Thread:
    """A thread that reports its tasks."""

    def __init__(self, folder: Path, bench: TaskBench | None = None) -> None:
        self.bench = TaskBench(folder, None if bench is None else bench.cluster)
        self._sent: list[Report] = []
        clock = ManualClock()
        self._reports = ThreadReporter(
            ThreadSettings(
                name="thread",
                poll_ms=0,
                commit_interval_ms=0,
                max_poll_records=0,
                max_batch_records=0,
                max_task_idle_ms=0,
                report_interval_ms=3_600_000,
            ),
            Mock(report=self._sent.append),
            clock,
            ThreadMeters("thread", clock, RecordingSettings(RecordingLevel.INFO)),
            refresh=lambda: None,
        )
        self._reports.begin()

    def advance_and_report(self) -> list[tuple[TaskState, bool]]:
        """Advance the tasks and return the reported states, each with whether it is a standby."""
        self.bench.clock.advance(100)
        self.bench.advance()
        self._sent.clear()
        self._reports.report_if_due(self.bench.tasks, 0, 0)
        changed = [report for report in self._sent if isinstance(report, TasksChanged)]
        return [(report.tasks[TASK], TASK in report.standby) for report in changed]


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Thread]:
    thread = Thread(tmp_path)
    yield thread
    thread.bench.tasks.close_all(clean=False)


@pytest.fixture
def other(tmp_path: Path, one: Thread) -> Iterator[Thread]:
    """A thread of the same client process: both threads use the same task directories."""
    thread = Thread(tmp_path, one.bench)
    yield thread
    thread.bench.tasks.close_all(clean=False)


def test_standby_is_reported_again_once_it_has_its_directory(one: Thread, other: Thread) -> None:
    """Until then it is a standby in the state CREATED. No rebalance or other task intervenes."""
    one.bench.assign([0])
    one.advance_and_report()
    other.bench.assign(standby=[0])
    assert other.advance_and_report() == [(TaskState.CREATED, True)]
    assert other.advance_and_report() == []
    one.bench.tasks.close_all(clean=True)
    assert [each for _ in range(10) for each in other.advance_and_report()] == [
        (TaskState.STANDBY, True)
    ]


def test_each_state_of_an_active_task_is_reported(one: Thread) -> None:
    one.bench.assign([0])
    reported = [each for _ in range(5) for each in one.advance_and_report()]
    assert reported[-1] == (TaskState.RUNNING, False)
    assert len(reported) == len(set(reported))


def test_standby_without_its_directory_is_listed_as_a_standby() -> None:
    tasks = {"0_0": OwnedTask("CREATED", standby=True), "0_1": OwnedTask("CREATED")}
    assert tasks_of(tasks, standby=True) == (TaskMetadata("0_0", "CREATED"),)
    assert tasks_of(tasks, standby=False) == (TaskMetadata("0_1", "CREATED"),)

"""What the driver hears of a thread's tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.tasks.task_bench import TaskBench

from millstream.application.metadata import TaskMetadata, tasks_of
from millstream.clock import ManualClock
from millstream.metrics.registry import Recording, RecordingLevel
from millstream.record import TaskId
from millstream.runtime.control import Report, TasksChanged
from millstream.runtime.loop.reports import Reports
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.states import OwnedTask, TaskState

TASK = TaskId(0, 0)


class Thread:
    """The reports of a thread, of its tasks."""

    def __init__(self, folder: Path, bench: TaskBench | None = None) -> None:
        self.bench = TaskBench(folder, None if bench is None else bench.cluster)
        self._told: list[Report] = []
        clock = ManualClock()
        self._reports = Reports(
            ThreadSettings(
                name="thread",
                poll_ms=0,
                commit_interval_ms=0,
                max_poll_records=0,
                max_batch_records=0,
                max_task_idle_ms=0,
                report_interval_ms=3_600_000,
            ),
            Mock(report=self._told.append),
            clock,
            ThreadMeters("thread", clock, Recording(RecordingLevel.INFO)),
            refresh=lambda: None,
            totals=lambda: (0, 0, []),
        )
        self._reports.begin()

    def round(self) -> list[tuple[TaskState, bool]]:
        """Let tasks go on; what is told of the task then: its state, and whether as a standby."""
        self.bench.clock.advance(100)
        self.bench.advance()
        self._told.clear()
        self._reports.tell_if_due(self.bench.tasks)
        changed = [told for told in self._told if isinstance(told, TasksChanged)]
        return [(told.tasks[TASK], TASK in told.standby) for told in changed]


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Thread]:
    thread = Thread(tmp_path)
    yield thread
    thread.bench.tasks.close_all(clean=False)


@pytest.fixture
def other(tmp_path: Path, one: Thread) -> Iterator[Thread]:
    """A thread of the same client: tasks of the two have the same directories."""
    thread = Thread(tmp_path, one.bench)
    yield thread
    thread.bench.tasks.close_all(clean=False)


def test_a_standby_is_told_of_once_more_when_it_has_its_directory(
    one: Thread, other: Thread
) -> None:
    """Until then it is one all the same. No rebalance and no other task comes in between."""
    one.bench.assign([0])
    one.round()
    other.bench.assign(standby=[0])
    assert other.round() == [(TaskState.CREATED, True)]
    assert other.round() == []
    one.bench.tasks.close_all(clean=True)
    assert [each for _ in range(10) for each in other.round()] == [(TaskState.STANDBY, True)]


def test_each_step_of_an_active_task_is_told(one: Thread) -> None:
    one.bench.assign([0])
    told = [each for _ in range(5) for each in one.round()]
    assert told[-1] == (TaskState.RUNNING, False)
    assert len(told) == len(set(told))


def test_a_standby_without_its_directory_is_a_standby_in_what_the_application_tells() -> None:
    tasks = {"0_0": OwnedTask("CREATED", standby=True), "0_1": OwnedTask("CREATED")}
    assert tasks_of(tasks, standby=True) == (TaskMetadata("0_0", "CREATED"),)
    assert tasks_of(tasks, standby=False) == (TaskMetadata("0_1", "CREATED"),)

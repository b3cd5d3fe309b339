"""The tasks of a thread, and their log messages."""

from __future__ import annotations

import logging
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.machine.lock_holder import lock_held
from support.tasks.task_bench import TaskBench, source

from millstream.errors import BrokerUnavailableError, TaskCorruptedError
from millstream.record import TaskId
from millstream.runtime.states.thread_states import TaskState

KEYS = [f"key-{n}" for n in range(40)]


@pytest.fixture
def counted(tmp_path: Path) -> TaskBench:
    """The bench of another thread. Its task has counted each key once, and is closed."""
    bench = TaskBench(tmp_path / "before")
    bench.assign([0])
    bench.run_all()
    bench.feed(*KEYS)
    bench.tasks.close_all(clean=True)
    return bench


def test_restoring_task_does_not_delay_the_others(tmp_path: Path, counted: TaskBench) -> None:
    bench = TaskBench(tmp_path / "after", counted.cluster)
    bench.main.group = counted.main.group
    bench.assign([1])
    bench.run_all()
    bench.assign([0, 1])
    for n in range(1, 10):
        bench.advance()
        bench.feed("a", partition=1)
        assert bench.counts(1) == {"a": n}
        assert bench.task().state is TaskState.RESTORING
    bench.run_all()
    assert bench.counts() == dict.fromkeys(KEYS, 1)
    bench.tasks.close_all(clean=True)


def test_the_log_has_a_line_for_each_change_of_state_and_none_for_records(
    tmp_path: Path, counted: TaskBench, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TaskBench(tmp_path / "after", counted.cluster)
    bench.main.group = counted.main.group
    with caplog.at_level(logging.INFO):
        bench.assign([0])
        bench.run_all()
        bench.feed(*KEYS)
        bench.tasks.close_all(clean=True)
    assert [record.getMessage().partition(" in ")[0] for record in caplog.records] == [
        "task 0_0: CREATED to RESTORING (stores are open)",
        "task 0_0: store counts restored 40 records from app-counts-changelog-0 up to offset 40",
        "task 0_0: RESTORING to RUNNING (restored)",
        "task 0_0: RUNNING to SUSPENDED (clean)",
        "task 0_0: SUSPENDED to CLOSED (released)",
    ]


def test_end_offsets_are_noted_once(tmp_path: Path) -> None:
    """However long the task waits for its directory, and although its state is rebuilt: records
    that arrive meanwhile must not be skipped."""
    bench = TaskBench(tmp_path)
    task = frozenset({source()})
    with lock_held(tmp_path, "0_0"):
        bench.cluster.is_down = True
        bench.assign([0])
        for _ in range(10):
            bench.advance()
            bench.clock.advance(500)
        assert bench.main.expected == []
        bench.cluster.is_down = False
        bench.clock.advance(10_000)
        for _ in range(10):
            bench.advance()
            bench.clock.advance(500)
        assert bench.main.expected == [task]
    bench.tasks.revive(TaskCorruptedError("bad block", task_ids=[TaskId(0, 0)]))
    bench.run_all()
    assert bench.main.expected == [task]
    bench.assign([])
    bench.assign([0])
    bench.run_all()
    assert bench.main.expected == [task, task]
    bench.tasks.close_all(clean=True)


def test_task_does_not_start_before_its_end_offsets_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also a task without restoration, whose partitions are looked up a moment later."""
    bench = TaskBench(tmp_path)
    bench.assign([0])
    with monkeypatch.context() as patched:
        patched.setattr(
            bench.main, "note_end_offsets", Mock(side_effect=BrokerUnavailableError("no"))
        )
        for _ in range(3):
            bench.advance()
            assert not bench.tasks.running
            bench.clock.advance(1_000)
    bench.run_all()
    bench.tasks.close_all(clean=True)

"""Standby tasks: following, promotion, demotion and rebuilding.

Real stores on disk, and a fake Kafka that keeps its records in lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from support.tasks.task_bench import TaskBench, changelog, source

from millstream.errors import OffsetOutOfRangeError, StreamsError, TaskCorruptedError
from millstream.record import TaskId
from millstream.runtime.states.thread_states import TaskState

TASK = TaskId(0, 0)


@pytest.fixture
def active(tmp_path: Path) -> Iterator[TaskBench]:
    """Another instance, with a task that has counted a, b, a."""
    bench = TaskBench(tmp_path / "active")
    bench.assign([0])
    bench.run_all()
    bench.feed("a", "b", "a")
    yield bench
    bench.tasks.close_all(clean=False)


@pytest.fixture
def bench(tmp_path: Path, active: TaskBench) -> Iterator[TaskBench]:
    """The instance with the standbys."""
    bench = TaskBench(tmp_path / "standby", active.cluster)
    yield bench
    bench.tasks.close_all(clean=False)


def test_a_new_standby_opens_its_stores_and_follows(bench: TaskBench, active: TaskBench) -> None:
    bench.assign(standby=[0])
    assert bench.tasks.standby == {TASK}
    assert bench.tasks.all_running, "standbys do not count"
    bench.advance(3)
    assert bench.counts() == {"a": 2, "b": 1}
    active.feed("c")
    bench.advance()
    assert bench.counts() == {"a": 2, "b": 1, "c": 1}
    assert bench.task().state is TaskState.STANDBY
    assert bench.tasks.tasks_reading([source()]) == []
    assert bench.main.assigned == {}
    assert active.main.expected == [{source()}]
    assert bench.main.expected == []
    assert bench.restore_steps() == ["standby start"]


def test_a_promoted_standby_keeps_its_stores_open(bench: TaskBench, active: TaskBench) -> None:
    bench.assign(standby=[0])
    bench.advance(3)
    store, task = bench.task().stores.store("counts"), bench.task()
    active.feed("c")
    active.tasks.close_all(clean=True)
    bench.main.group = active.main.group
    bench.assign([0])
    assert bench.tasks.standby == frozenset()
    assert not bench.tasks.all_running
    bench.run_all()
    assert bench.task() is task
    assert bench.task().stores.store("counts") is store
    assert bench.main.assigned == {source(): 4}
    assert bench.main.expected == [{source()}]
    assert bench.restore_steps() == ["standby start", "standby promoted", "start", "end"]
    # Only the records that the standby had not read yet.
    assert (bench.events[-1].records, bench.events[-1].end_offset) == (1, 4)
    bench.feed("a")
    assert bench.counts() == {"a": 3, "b": 1, "c": 1}
    assert bench.made == [task]


def test_a_standby_that_waits_for_its_lock_can_be_promoted(
    bench: TaskBench, active: TaskBench, tmp_path: Path
) -> None:
    holder = TaskBench(tmp_path / "standby", active.cluster)
    holder.assign(standby=[0])
    holder.advance()
    bench.assign(standby=[0])
    bench.advance(3)
    assert bench.task().state is TaskState.CREATED
    bench.assign([0])
    bench.advance(3)
    assert not bench.tasks.all_running
    holder.tasks.close_all(clean=False)
    active.tasks.close_all(clean=True)
    bench.main.group = active.main.group
    bench.run_all()
    assert bench.counts() == {"a": 2, "b": 1}


def test_a_suspended_task_becomes_a_standby_with_its_stores_open(
    bench: TaskBench, active: TaskBench
) -> None:
    task, store = active.task(), active.task().stores.store("counts")
    active.tasks.suspend([TASK])
    assert active.main.assigned == {}
    active.assign(standby=[0])
    assert active.made == [task]
    assert active.task().stores.store("counts") is store
    assert task.state is TaskState.STANDBY
    assert active.tasks.standby == {TASK}
    bench.main.group = active.main.group
    bench.assign([0])
    bench.run_all()
    bench.feed("a")
    active.advance(3)
    assert active.counts() == bench.counts() == {"a": 3, "b": 1}
    assert active.reached() == 3


def test_standby_that_was_active_becomes_active_again_with_its_stores_open(
    active: TaskBench,
) -> None:
    """Repeatedly."""
    task, store = active.task(), active.task().stores.store("counts")
    for n in range(3):
        active.tasks.suspend([TASK])
        active.assign(standby=[0])
        active.advance()
        assert active.counts() == {"a": 2, "b": 1 + n}
        active.assign([0])
        active.run_all()
        ends = [event for event in active.events if event.step.value == "end"]
        assert ends[-1].records == 0, "nothing is missing"
        active.feed("b")
    assert active.counts() == {"a": 2, "b": 4}
    assert active.made == [task]
    assert active.task().stores.store("counts") is store


@pytest.mark.parametrize("error", [StreamsError("not now"), ValueError("not now")])
def test_task_that_cannot_be_suspended_is_closed_and_raises(
    active: TaskBench, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error must not be its own cause: a search for the root cause would never end."""
    task = active.task()
    monkeypatch.setattr(task, "suspend", Mock(side_effect=error))
    with pytest.raises(StreamsError, match="not now") as raised:
        active.tasks.suspend([TASK])
    assert raised.value.__cause__ is (None if raised.value is error else error)
    assert raised.value.task_id == TASK
    assert task.state is TaskState.CLOSED


def test_suspended_task_that_becomes_active_again_keeps_its_stores_open(
    active: TaskBench,
) -> None:
    store = active.task().stores.store("counts")
    active.tasks.suspend([TASK])
    active.assign([0])
    active.run_all()
    assert active.task().stores.store("counts") is store
    active.feed("b")
    assert active.counts() == {"a": 2, "b": 2}


def test_a_running_task_that_was_not_suspended_becomes_a_standby(active: TaskBench) -> None:
    store = active.task().stores.store("counts")
    active.assign(standby=[0])
    assert active.task().stores.store("counts") is store
    assert active.main.assigned == {}
    active.advance(2)
    assert active.counts() == {"a": 2, "b": 1}


def test_uncommitted_changes_are_not_in_the_store_of_the_standby(active: TaskBench) -> None:
    """The task could not be committed before it became a standby: its store is reopened."""
    active.feed("c", commit=False)
    active.assign(standby=[0])
    assert active.task().state is TaskState.CREATED
    active.advance(3)
    assert active.task().state is TaskState.STANDBY


def test_restoring_task_becomes_a_standby_with_its_stores_open(
    bench: TaskBench, active: TaskBench
) -> None:
    bench.assign([0])
    bench.advance()
    store = bench.task().stores.store("counts")
    assert bench.task().state is TaskState.RESTORING
    bench.assign(standby=[0])
    bench.advance(3)
    assert bench.task().stores.store("counts") is store
    assert bench.counts() == {"a": 2, "b": 1}
    assert bench.restore_steps() == ["start", "suspended", "standby start"]


def test_standbys_are_closed_when_they_are_not_assigned(
    bench: TaskBench, active: TaskBench
) -> None:
    bench.assign(standby=[0, 1])
    bench.advance(3)
    bench.assign(standby=[1])
    assert bench.tasks.standby == {TaskId(0, 1)}
    assert bench.restore_steps() == ["standby start", "standby start", "standby migrated"]
    # The records that the closed standby had read are not read again.
    bench.assign(standby=[0, 1])
    bench.advance()
    assert bench.reached() == 2
    assert bench.restore_steps()[-1] == "standby start"
    bench.tasks.close_all(clean=True)
    assert len(bench.tasks) == 0
    assert bench.tasks.standby == frozenset()
    assert bench.cluster.positions == {}


def test_lost_standby_continues_from_its_position(bench: TaskBench, active: TaskBench) -> None:
    bench.assign(standby=[0])
    bench.advance(3)
    bench.tasks.close_all(clean=False)
    active.feed("c")
    bench.assign(standby=[0])
    bench.advance()
    assert bench.counts() == {"a": 2, "b": 1, "c": 1}
    starts = [event.offset for event in bench.events if event.step.value == "standby start"]
    assert starts[1] == 3


def test_standby_stays_when_the_active_tasks_are_closed(
    bench: TaskBench, active: TaskBench
) -> None:
    """It does not depend on the offsets of the group or on sent records."""
    bench.main.group = active.main.group
    bench.assign([1], [0])
    bench.advance(3)
    standby = bench.task()
    bench.tasks.close_active(clean=False)
    assert bench.tasks.all == [standby]
    active.feed("c")
    bench.advance()
    assert bench.counts() == {"a": 2, "b": 1, "c": 1}
    assert bench.restore_steps().count("standby start") == 1


def test_a_rebuilt_standby_stays_a_standby(bench: TaskBench, active: TaskBench) -> None:
    bench.assign(standby=[0])
    bench.advance(3)
    task, store = bench.task(), bench.task().stores.store("counts")
    bench.tasks.revive(TaskCorruptedError("its disk is bad", task_ids=[TASK]))
    assert bench.tasks.standby == {TASK}
    assert bench.tasks.rebuilt_total == 1
    assert bench.made == [task]
    bench.advance()
    assert task.stores.store("counts") is not store
    assert bench.reached() == 1, "it starts empty"
    bench.advance()
    assert bench.counts() == {"a": 2, "b": 1}
    assert bench.tasks.standby == {TASK}


def test_standby_can_be_rebuilt_often_but_not_in_a_row(bench: TaskBench, active: TaskBench) -> None:
    error = TaskCorruptedError("its disk is bad", task_ids=[TASK])
    bench.assign(standby=[0])
    for _ in range(6):
        bench.advance(4)
        bench.tasks.revive(error)
    for _ in range(2):
        bench.advance()
        bench.tasks.revive(error)
    with pytest.raises(StreamsError, match="Check the disk"):
        bench.tasks.revive(error)


def test_active_task_can_be_rebuilt_often_but_not_in_a_row(bench: TaskBench) -> None:
    error = TaskCorruptedError("its disk is bad", task_ids=[TASK])
    bench.assign([0])
    for _ in range(6):
        bench.run_all()
        bench.tasks.revive(error)
    for _ in range(2):
        bench.tasks.revive(error)
    with pytest.raises(StreamsError, match="Check the disk"):
        bench.tasks.revive(error)


def test_standby_whose_next_offset_was_deleted_is_rebuilt(
    bench: TaskBench, active: TaskBench
) -> None:
    """Retention has deleted the records that it had to read."""
    bench.assign(standby=[0])
    bench.advance(3)
    active.feed("c", "a", "d")
    bench.cluster.topic(changelog()).truncate(4)
    with pytest.raises(TaskCorruptedError, match="no longer in") as raised:
        bench.advance()
    assert isinstance(raised.value.__cause__, OffsetOutOfRangeError)
    bench.tasks.revive(raised.value)
    bench.advance(2)
    assert bench.counts() == {"a": 3, "d": 1}
    assert bench.tasks.standby == {TASK}
    assert bench.tasks.rebuilt_total == 1


def test_standby_of_a_table_reads_its_topic_up_to_the_position_of_the_active_task(
    bench: TaskBench, active: TaskBench
) -> None:
    bench.limits = {changelog(): 1}
    bench.assign(standby=[0])
    bench.advance(4)
    assert (bench.reached(), bench.counts()) == (0, {"a": 1})
    bench.limits = {changelog(): 3}
    bench.advance(2)
    assert bench.reached() == 0, "the position is not requested all the time"
    bench.clock.advance(5_000)
    bench.advance(2)
    assert (bench.reached(), bench.counts()) == (2, {"a": 2, "b": 1})
    active.feed("c")
    bench.limits = {changelog(): 4}
    bench.cluster.is_down = True
    bench.clock.advance(5_000)
    bench.advance(2)
    assert bench.reached() == 2
    bench.cluster.is_down = False
    bench.clock.advance(5_000)
    bench.advance(2)
    assert bench.reached() == 3

"""A stream thread and its global stores: no task uses an incomplete copy."""

from __future__ import annotations

from unittest.mock import MagicMock, Mock

from support.tasks.thread_parts import Parts, of

from millstream.clock import ManualClock
from millstream.errors import TaskCorruptedError
from millstream.record import TaskId, TopicPartition
from millstream.runtime.states.thread_states import TaskState
from millstream.runtime.task_management.global_stores import GLOBAL_TASK
from millstream.runtime.task_management.task_manager import TaskManager

CORRUPTED = TaskCorruptedError("cut", task_ids=[GLOBAL_TASK])
REBUILDING = ("rebalances.discard_work", "rebalances.rejoin", "updates.rebuild", "tasks.revive")


def test_tasks_are_released_before_their_copies_are_deleted() -> None:
    calls = of(Parts(None, CORRUPTED, None).run(), *REBUILDING)
    assert calls == ["rebalances.discard_work", "rebalances.rejoin", "updates.rebuild"]


def test_group_is_not_affected_without_tasks() -> None:
    assert of(Parts(CORRUPTED, running=False).run(), *REBUILDING) == ["updates.rebuild"]


def test_updates_are_applied_after_the_poll_and_before_the_batch() -> None:
    calls = Parts(None).run()
    looped = of(calls, "consumer.poll_columns", "updates.step", "tasks.punctuate")
    assert looped[:3] == ["consumer.poll_columns", "updates.step", "tasks.punctuate"]


def test_the_copies_are_closed_after_the_tasks_and_before_the_clients() -> None:
    closed = of(Parts(None).run(), "tasks.close_all", "updates.close", "close_others")
    assert closed == ["tasks.close_all", "updates.close", "close_others"]


def test_restored_task_starts_when_the_copies_are_complete() -> None:
    task_id, partitions = TaskId(0, 0), frozenset({TopicPartition("in", 0)})
    task = MagicMock(
        task_id=task_id,
        partitions=partitions,
        state=TaskState.RESTORING,
        **{"stores.restorers.return_value": {}},
    )
    restoration = Mock()
    restoration.has_unfinished.return_value = False
    complete: list[bool] = []
    tasks = TaskManager(
        lambda *arguments: task,
        restoration,
        Mock(),
        Mock(**{"committed.return_value": {}}),
        ManualClock(),
        timeout_ms=1_000,
        max_buffered=1_000,
        offset_sums=Mock(),
        may_start=lambda: bool(complete),
    )
    tasks.assign({task_id: partitions})
    for _ in range(3):
        tasks.advance(0)
    restoration.add.assert_called_once()
    task.start.assert_not_called()
    complete.append(True)
    tasks.advance(0)
    task.start.assert_called_once()

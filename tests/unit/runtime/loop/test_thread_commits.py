"""Commits of a stream thread, and work that could not be committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.thread_parts import SETTINGS, Parts, of

from millstream.errors import BrokerUnavailableError, RebalanceInProgressError
from millstream.record import TaskId
from millstream.runtime.loop.commits import TasksInFlightError
from millstream.runtime.queries.query_messages import GetStoreOffsets
from millstream.runtime.thread_control import Close, MemoryShare, ReceivedCommand, ResizeMemory

#: The calls that discard work at closing, in order.
DISCARDING_CALLS = (
    "commits.commit",
    "tasks.close_all",
    "commits.discard_uncommitted",
    "producer.close",
)


def test_all_running_tasks_are_committed_in_each_interval() -> None:
    """With or without requests."""
    parts = Parts(None, None, None)
    calls = of(parts.run(), "commits.commit", "tasks.step", "tasks.close_all")
    # Each round takes an interval.
    assert calls == ["commits.commit"] * 5 + ["tasks.close_all"]
    assert {call.args[0] is parts.all.tasks.running for call in commits_of(parts)} == {True}


def test_answer_to_a_commit_is_handled_in_each_round() -> None:
    """Not an interval later. A thread that closes waits for the answer."""
    parts = Parts(None, None, None)
    calls = of(parts.run(), "commits.finish_pending", "commits.commit", "tasks.close_all")
    calls_per_round = ["commits.finish_pending", "commits.commit"]
    assert calls == calls_per_round * 4 + ["commits.commit", "tasks.close_all"]
    assert [call.kwargs.get("asynchronous") for call in commits_of(parts)] == [True] * 4 + [None]


def test_commits_between_intervals_are_only_made_on_request() -> None:
    """Once, right after the batch and not an interval later."""
    parts = Parts(None)
    (task,) = parts.all.tasks.running
    task.task_id, task.commit_requested = TaskId(0, 0), False
    events: list[str] = []
    batches = ["quiet", "quiet", "requests", "quiet"]
    parts.all.tasks.inputs.processable.side_effect = lambda _: [task] if batches else []

    def step(*_: Any) -> int:
        # The round's own commit follows the first batch and is sufficient for the interval.
        events.append(batches.pop(0))
        task.commit_requested = events[-1] == "requests"
        return 1

    def commit(*_: Any, **__: Any) -> dict[Any, Any]:
        events.append("commit")
        task.commit_requested = False
        return {}

    parts.all.tasks.step.side_effect = step
    parts.all.commits.commit.side_effect = commit
    parts.run()
    assert events[:6] == ["quiet", "commit", "quiet", "requests", "commit", "quiet"]


def test_thread_does_not_commit_during_a_rebalance() -> None:
    """The group would reject the commit after everything was flushed. The last commit is
    attempted."""
    parts = Parts(None, None, None)
    parts.all.rebalances.is_rebalancing = True
    assert of(parts.run(), "commits.commit") == ["commits.commit"]


def test_rejected_commit_is_repeated_at_once() -> None:
    """Not an interval later, if its flush has made tasks request a commit."""
    parts = Parts(None, None)
    (task,) = parts.all.tasks.running
    task.task_id, task.commit_requested = TaskId(0, 0), True
    events: list[str] = []
    rejections = [RebalanceInProgressError("soon")]
    batches = [1, 1, 1]
    parts.all.tasks.inputs.processable.side_effect = lambda _: [task] if batches else []

    def step(*_: Any) -> int:
        events.append("batch")
        task.commit_requested = False
        return batches.pop()

    def commit(*_: Any, **__: Any) -> dict[Any, Any]:
        events.append("commit")
        if rejections:
            # The results of the flush request a commit.
            task.commit_requested = True
            raise rejections.pop()
        return {}

    parts.all.tasks.step.side_effect = step
    parts.all.commits.commit.side_effect = commit
    parts.run()
    assert events[:5] == ["batch", "commit", "batch", "commit", "batch"]


@pytest.mark.parametrize("fails", [False, True])
def test_work_without_a_last_commit_is_discarded(fails: bool) -> None:
    """The next owners repeat the work; the old records must not follow theirs."""
    parts = Parts()
    if fails:
        parts.all.commits.commit.side_effect = [{}, BrokerUnavailableError("no answer")]
    outcome = parts.outcome()
    assert (outcome.close_error is not None) == fails
    calls = of([call[0] for call in parts.all.mock_calls], *DISCARDING_CALLS)
    expected = [name for name in DISCARDING_CALLS if fails or name != "commits.discard_uncommitted"]
    assert calls[-len(expected) :] == expected
    assert parts.all.tasks.close_all.call_args.kwargs == {"clean": not fails}


def test_failed_thread_does_not_commit() -> None:
    parts = Parts(ValueError("a user's mistake"))
    parts.outcome()
    calls = of([call[0] for call in parts.all.mock_calls], *DISCARDING_CALLS)
    assert calls[-3:] == ["tasks.close_all", "commits.discard_uncommitted", "producer.close"]
    assert parts.all.tasks.close_all.call_args.kwargs == {"clean": False}


def test_last_commit_waits_for_the_end_of_a_rebalance() -> None:
    """When an application closes, other members leave at the same time. The wait is limited to a
    few seconds."""
    parts = Parts()
    rejected = [RebalanceInProgressError("soon")] * 3
    parts.all.commits.commit.side_effect = [{}, *rejected, {}]
    parts.run()
    assert parts.all.tasks.close_all.call_args.kwargs == {"clean": True}
    parts = Parts()
    parts.all.commits.commit.side_effect = [{}, *[RebalanceInProgressError("soon")] * 1_000]
    assert isinstance(parts.outcome().close_error, RebalanceInProgressError)
    assert 5_000 <= parts.clock.now_ms() - SETTINGS.commit_interval_ms <= 6_000


def commits_of(parts: Parts) -> list[Any]:
    return list(parts.all.commits.commit.call_args_list)


@pytest.mark.parametrize("drained", [True, False])
def test_outcome_contains_whether_all_work_in_flight_finished(*, drained: bool) -> None:
    parts = Parts(None)
    parts.all.commits.drain_to_close.return_value = drained
    assert parts.outcome().has_drained is drained


def test_unfinished_work_at_the_last_commit_is_not_drained() -> None:
    parts = Parts(None)
    parts.all.commits.drain_to_close.return_value = True
    parts.all.commits.commit.side_effect = TasksInFlightError(parts.all.tasks.running)
    assert parts.outcome().has_drained is False


def test_only_queries_are_answered_during_a_commit() -> None:
    """Not if a group event is pending: another thread may own the task by then."""
    parts = Parts(None, None)
    share = MemoryShare(77, 88)
    query, others = ReceivedCommand(GetStoreOffsets(), 1), [ReceivedCommand(ResizeMemory(share))]
    waiting: list[list[ReceivedCommand]] = []
    events: list[object] = []

    def commit(*_: object, meanwhile: Callable[[], bool], **__: object) -> dict[object, object]:
        parts.control.commands = lambda: waiting.pop(0) if waiting else [ReceivedCommand(Close())]
        for received, has_event in (([query], False), ([query], True), (others, False)):
            waiting.append(received)
            parts.waker.wake()
            parts.all.rebalances.has_event.return_value = has_event
            events.append(meanwhile())
        parts.all.rebalances.has_event.return_value = False
        parts.all.commits.commit.side_effect = None
        events.append("committed")
        return {}

    parts.queries.answer.side_effect = lambda request: events.append("answered")
    parts.all.resize_memory.side_effect = events.append
    parts.all.commits.commit.side_effect = commit
    parts.run()
    assert events == ["answered", True, True, "answered", True, "committed", share]

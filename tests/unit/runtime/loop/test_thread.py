"""Rounds of a stream thread."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.thread_parts import Parts, of

from millstream.errors import (
    BrokerUnavailableError,
    TaskCorruptedError,
    TaskMigratedError,
    UnknownTopicError,
)
from millstream.record import TaskId, TopicPartition
from millstream.runtime.queries.query_messages import GetStoreOffsets
from millstream.runtime.states.thread_states import ThreadState
from millstream.runtime.thread_control import (
    Close,
    MemoryShare,
    Pause,
    ReceivedCommand,
    RequestShutdown,
    ResizeMemory,
    Resume,
    StateChanged,
)

BATCH_MS = 50


def backlog(*, restores: bool) -> Parts:
    """Return parts with a task that always has records, for some rounds."""
    parts = Parts(*[None] * 10)
    tasks, (task,) = parts.all.tasks, parts.all.tasks.running
    task.task_id = TaskId(0, 0)
    tasks.inputs.processable.return_value = [task]
    tasks.all_running, tasks.is_restoring = not restores, restores

    def step(task: object, limit: int) -> int:
        parts.clock.advance(BATCH_MS)
        return limit

    tasks.step.side_effect = step
    return parts


def test_paused_thread_commits_its_work() -> None:
    """It neither polls nor processes records."""
    parts = Parts(None, None, commands=(Pause(),))
    calls = of(parts.run(), "commits.commit", "consumer.poll_columns", "tasks.advance")
    # In two rounds, in the round with the command to close, and at the end.
    assert calls == ["commits.commit"] * 4


def test_resumed_thread_refetches_before_it_continues() -> None:
    """Records that arrived during the pause must not be missed, in any partition."""
    parts = Parts(None, None, None, commands=(Pause(), Resume()))
    calls = of(parts.run(), "tasks.inputs.refetch", "consumer.poll_columns")
    assert calls[:2] == ["tasks.inputs.refetch", "consumer.poll_columns"]


def test_sent_records_are_delivered_before_a_corrupted_task_is_revived() -> None:
    corrupted = TaskCorruptedError("bad block", task_ids=[TaskId(0, 0)])
    calls = Parts(corrupted, None).run()
    assert of(calls, "commits.await_delivery", "tasks.revive") == [
        "commits.await_delivery",
        "tasks.revive",
    ]


def test_thread_that_is_fenced_while_it_awaits_delivery_rejoins() -> None:
    parts = Parts(TaskCorruptedError("bad block", task_ids=[TaskId(0, 0)]), None)
    parts.all.commits.await_delivery.side_effect = TaskMigratedError("fenced")
    calls = of(parts.run(), "tasks.revive", "rebalances.discard_work", "rebalances.rejoin")
    assert calls == ["rebalances.discard_work", "rebalances.rejoin"]


def test_tasks_of_a_missing_topic_are_released() -> None:
    """The leader decides: for a topic that matches a pattern, this is no error."""
    parts = Parts(None, None)
    parts.all.tasks.running = [reader, _] = [
        Mock(commit_needed=False, partitions=frozenset({TopicPartition(topic, 0)}))
        for topic in ("in", "other")
    ]
    parts.all.consumer.poll_columns.side_effect = [UnknownTopicError("gone", topic="in"), {}, {}]
    parts.run()
    (released,) = parts.all.rebalances.release_tasks.call_args_list
    assert released.args == ([reader], "gone")


def test_missing_topic_that_no_task_reads_is_an_error() -> None:
    parts = Parts(None, None)
    parts.all.consumer.poll_columns.side_effect = UnknownTopicError("gone", topic="in")
    parts.all.tasks.running = [Mock(commit_needed=False, partitions=frozenset())]
    assert isinstance(parts.outcome().error, UnknownTopicError)
    parts.all.rebalances.release_tasks.assert_not_called()


def test_failed_last_commit_is_not_the_error_of_the_thread() -> None:
    """Detects an error at closing that is reported as the user's error."""
    parts = Parts(None)
    parts.all.commits.commit.side_effect = [{}, {}, BrokerUnavailableError("no answer")]
    outcome = parts.outcome()
    assert outcome.error is None
    assert isinstance(outcome.close_error, BrokerUnavailableError)
    assert "no answer" in outcome.history[-1]


def test_thread_that_lost_its_driver_closes_in_order_and_reports_the_reason() -> None:
    """Its commit has a timeout, since the driver kills threads without a heartbeat."""
    parts = Parts(None)
    parts.control.lost = True
    parts.control.lost_reason = "no connection to the driver at host:4040 for 30 s: refused"
    calls = parts.run()
    closing = ("commits.commit", "tasks.close_all", "rebalances.close", "consumer.close")
    assert of(calls, *closing)[-4:] == list(closing)
    assert parts.all.commits.commit.call_args.args == (parts.all.tasks.running, 30_000)
    (state,) = [
        call.args[0].why
        for call in parts.control.report.call_args_list
        if isinstance(call.args[0], StateChanged)
        and call.args[0].state is ThreadState.PENDING_SHUTDOWN
    ]
    assert "the driver is lost: no connection to the driver at host:4040 for 30 s" in state


def test_thread_that_cannot_commit_rejoins_with_growing_backoff() -> None:
    """Detects a group that rebalances all the time because a member is fenced at each commit.

    During the backoff, the loop continues and handles the command to close.
    """
    parts = Parts(*[None] * 12)
    fenced = TaskMigratedError("another producer took over")
    # Each round commits once; the tenth commit succeeds.
    commits = iter([*[fenced] * 9, None, fenced, fenced])

    def commit(*_: object, **__: object) -> dict[object, object]:
        error = next(commits, None)
        if error is not None:
            raise error
        parts.all.commits.total += 1
        return {}

    parts.all.commits.commit.side_effect = commit
    calls = parts.run()
    pauses = [call.args[1] for call in parts.all.rebalances.rejoin.call_args_list]
    grown = [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    assert pauses == [*grown, 100, 200]
    assert calls.count("rebalances.discard_work") == len(pauses)
    assert calls.count("rebalances.progress") == 13
    # Only the rounds themselves took time.
    assert parts.clock.now_ms() == 13 * 100


def test_fenced_thread_logs_the_duration_of_its_batch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Also for the first batch after a commit: the broker may have aborted its transaction."""
    parts = backlog(restores=False)

    def step(task: object, limit: int) -> int:
        parts.clock.advance(61_000)
        raise TaskMigratedError("fenced.")

    parts.all.tasks.step.side_effect = step
    parts.run()
    warnings = [
        each.getMessage()
        for each in caplog.records
        if "rejoining the group in 100 ms" in each.getMessage()
    ]
    assert len(warnings) == 1
    assert warnings[0].endswith(": fenced. The uncommitted work has taken 61000 ms.")


def test_restoration_has_its_share_of_time_next_to_a_backlog() -> None:
    """At least a third of the time, several times per second."""
    parts = backlog(restores=True)
    calls = parts.run()
    processed_ms = BATCH_MS * calls.count("tasks.step")
    assert processed_ms <= 200 * calls.count("tasks.advance")
    restored_ms = sum(each.args[1] for each in parts.all.tasks.advance.call_args_list)
    assert restored_ms >= (restored_ms + processed_ms) / 3


def test_rounds_are_long_without_restoration() -> None:
    calls = backlog(restores=False).run()
    assert BATCH_MS * calls.count("tasks.step") >= 1_000 * calls.count("consumer.poll_columns")


def test_thread_that_requests_a_shutdown_stops_processing() -> None:
    """In particular, it does not process the record that is the reason."""
    parts = Parts(None, None, commands=(RequestShutdown("poison"),))
    calls = of(parts.run(), "rebalances.request_shutdown", "consumer.poll_columns", "tasks.advance")
    assert calls == ["rebalances.request_shutdown"]


def test_caches_are_resized_to_their_new_share() -> None:
    share = MemoryShare(77, 88)
    parts = Parts(None, commands=(ResizeMemory(share),))
    parts.run()
    parts.all.resize_memory.assert_called_once_with(share)


def test_tasks_above_a_reduced_write_budget_are_committed_at_once() -> None:
    """They take no records before a commit, which is only due after the interval."""
    parts = Parts(None, None)
    (task,) = parts.all.tasks.running
    task.commit_requested = parts.all.tasks.punctuate.return_value = False
    received = [[ReceivedCommand(ResizeMemory(MemoryShare(77, 88)))], [ReceivedCommand(Close())]]
    # Unlike the default, this takes no time.
    parts.control.commands = lambda: received.pop(0) if received else []

    def resize(_: MemoryShare) -> None:
        task.commit_requested = True

    parts.all.resize_memory.side_effect = resize
    calls = of(parts.run(), "resize_memory", "commits.commit")
    # The last commit is that of the close.
    assert calls == ["resize_memory", "commits.commit", "commits.commit"]


def test_queries_are_answered_after_group_events() -> None:
    """Otherwise a task would answer as active although another thread owns it by now. Also if a
    query ends a batch early."""
    parts = Parts(None, None)
    events: list[str] = []
    query = ReceivedCommand(GetStoreOffsets(), 1)
    waiting: list[list[ReceivedCommand]] = [[], [query], [], [query], []]

    def commands() -> list[ReceivedCommand]:
        return waiting.pop(0) if waiting else [ReceivedCommand(Close())]

    def step(task: Any, limit: int) -> int:
        events.append("step")
        parts.all.rebalances.has_event.return_value = True
        parts.waker.wake()
        return 1

    def handle_event() -> None:
        events.append("group event")
        parts.all.rebalances.has_event.return_value = False

    def answer(request: Any) -> str:
        events.append("answered")
        return "offsets"

    parts.control.commands = commands
    parts.all.tasks.inputs.processable.return_value = [
        Mock(task_id=TaskId(0, 0), commit_requested=False)
    ]
    parts.all.tasks.step.side_effect = step
    parts.all.rebalances.handle_next_event.side_effect = handle_event
    parts.queries.answer.side_effect = answer
    parts.run()
    assert events[:6] == ["group event", "step", "group event", "answered", "step", "group event"]
    assert events.count("answered") == 2
    parts.control.reply.assert_called_with(query, "offsets")

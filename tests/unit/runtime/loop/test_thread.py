"""The rounds of a stream thread."""

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
from millstream.runtime.control import (
    Asked,
    AskForShutdown,
    Close,
    MemoryShare,
    Pause,
    ResizeMemory,
    Resume,
    StateChanged,
)
from millstream.runtime.queries.questions import AskOffsets
from millstream.runtime.states import ThreadState

BATCH_MS = 50


def backlog(*, restores: bool) -> Parts:
    """Parts of which a task always has records at hand, for some rounds."""
    parts = Parts(*[None] * 10)
    tasks, (task,) = parts.all.tasks, parts.all.tasks.running
    task.task_id = TaskId(0, 0)
    tasks.processable.return_value = [task]
    tasks.all_running, tasks.is_restoring = not restores, restores

    def step(task: object, limit: int) -> int:
        parts.clock.advance(BATCH_MS)
        return limit

    tasks.step.side_effect = step
    return parts


def test_a_paused_thread_commits_what_it_has_done() -> None:
    """It reads and processes nothing more."""
    parts = Parts(None, None, commands=(Pause(),))
    calls = of(parts.run(), "commits.commit", "consumer.poll_columns", "tasks.advance")
    # In two rounds, in the one in which it is told to close, and at last.
    assert calls == ["commits.commit"] * 4


def test_a_resumed_thread_looks_anew_before_it_goes_on() -> None:
    """What came while it was paused is not to be overlooked, in any of its partitions."""
    parts = Parts(None, None, None, commands=(Pause(), Resume()))
    calls = of(parts.run(), "tasks.look_anew", "consumer.poll_columns")
    assert calls[:2] == ["tasks.look_anew", "consumer.poll_columns"]


def test_what_was_sent_is_in_the_changelog_before_a_task_is_restored_from_it() -> None:
    corrupted = TaskCorruptedError("bad block", task_ids=[TaskId(0, 0)])
    calls = Parts(corrupted, None).run()
    assert of(calls, "commits.settle", "tasks.revive") == ["commits.settle", "tasks.revive"]


def test_a_thread_that_is_fenced_while_it_waits_for_that_joins_anew() -> None:
    parts = Parts(TaskCorruptedError("bad block", task_ids=[TaskId(0, 0)]), None)
    parts.all.commits.settle.side_effect = TaskMigratedError("fenced")
    calls = of(parts.run(), "tasks.revive", "rebalances.drop_work", "rebalances.rejoin")
    assert calls == ["rebalances.drop_work", "rebalances.rejoin"]


def test_a_topic_that_the_client_misses_is_for_the_leader_to_judge() -> None:
    """It may match a pattern, of which one more or less is no error."""
    parts = Parts(None, None)
    parts.all.tasks.running = [reader, _] = [
        Mock(commit_needed=False, partitions=frozenset({TopicPartition(topic, 0)}))
        for topic in ("in", "other")
    ]
    parts.all.consumer.poll_columns.side_effect = [UnknownTopicError("gone", topic="in"), {}, {}]
    parts.run()
    (given_up,) = parts.all.rebalances.give_up.call_args_list
    assert given_up.args == ([reader], "gone")


def test_a_topic_that_nobody_reads_cannot_be_missed() -> None:
    parts = Parts(None, None)
    parts.all.consumer.poll_columns.side_effect = UnknownTopicError("gone", topic="in")
    parts.all.tasks.running = [Mock(commit_needed=False, partitions=frozenset())]
    assert isinstance(parts.outcome().error, UnknownTopicError)
    parts.all.rebalances.give_up.assert_not_called()


def test_a_last_commit_that_fails_is_not_what_stopped_the_thread() -> None:
    """Hunts for an error at closing that passes for the user's: the two are told apart."""
    parts = Parts(None)
    parts.all.commits.commit.side_effect = [{}, {}, BrokerUnavailableError("no answer")]
    outcome = parts.outcome()
    assert outcome.error is None
    assert isinstance(outcome.close_error, BrokerUnavailableError)
    assert "no answer" in outcome.story[-1]


def test_a_thread_that_lost_its_driver_closes_in_order_and_says_why() -> None:
    """It commits within a bound, since the driver kills what it does not hear of."""
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


def test_a_thread_that_cannot_commit_joins_anew_more_and_more_rarely() -> None:
    """Hunts for a group that rebalances all the time, since a member is fenced at each commit.

    Meanwhile the member's loop comes round, and the command to close is obeyed.
    """
    parts = Parts(*[None] * 12)
    fenced = TaskMigratedError("another producer took over")
    # Each round commits once; the tenth goes through.
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
    assert calls.count("rebalances.drop_work") == len(pauses)
    assert calls.count("rebalances.progress") == 13
    # Whatever time went by was the rounds' own.
    assert parts.clock.now_ms() == 13 * 100


def test_a_thread_whose_producer_is_fenced_logs_how_long_its_batch_took(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first batch since the last commit as well: the broker may have ended its transaction."""
    parts = backlog(restores=False)

    def step(task: object, limit: int) -> int:
        parts.clock.advance(61_000)
        raise TaskMigratedError("fenced.")

    parts.all.tasks.step.side_effect = step
    parts.run()
    warnings = [
        each.getMessage() for each in caplog.records if "anew in 100 ms" in each.getMessage()
    ]
    assert len(warnings) == 1
    assert warnings[0].endswith(": fenced. The uncommitted work has taken 61000 ms.")


def test_restoring_has_a_fair_share_beside_a_task_with_a_backlog() -> None:
    """A third of the time at least, several times a second."""
    parts = backlog(restores=True)
    calls = parts.run()
    processed_ms = BATCH_MS * calls.count("tasks.step")
    assert processed_ms <= 200 * calls.count("tasks.advance")
    restored_ms = sum(each.args[1] for each in parts.all.tasks.advance.call_args_list)
    assert restored_ms >= (restored_ms + processed_ms) / 3


def test_rounds_are_long_where_nothing_restores() -> None:
    calls = backlog(restores=False).run()
    assert BATCH_MS * calls.count("tasks.step") >= 1_000 * calls.count("consumer.poll_columns")


def test_a_thread_that_asks_for_a_shutdown_processes_nothing_more() -> None:
    """Least of all the record that is the reason."""
    parts = Parts(None, None, commands=(AskForShutdown("poison"),))
    calls = of(parts.run(), "rebalances.ask_for_shutdown", "consumer.poll_columns", "tasks.advance")
    assert calls == ["rebalances.ask_for_shutdown"]


def test_caches_get_their_new_share() -> None:
    share = MemoryShare(77, 88)
    parts = Parts(None, commands=(ResizeMemory(share),))
    parts.run()
    parts.all.resize_memory.assert_called_once_with(share)


def test_tasks_above_a_smaller_share_of_uncommitted_writes_are_committed_at_once() -> None:
    """They take no records before a commit, which is only due after the interval."""
    parts = Parts(None, None)
    (task,) = parts.all.tasks.running
    task.commit_requested = parts.all.tasks.punctuate.return_value = False
    said = [[Asked(ResizeMemory(MemoryShare(77, 88)))], [Asked(Close())]]
    # Without the time that passes otherwise.
    parts.control.commands = lambda: said.pop(0) if said else []

    def resize(_: MemoryShare) -> None:
        task.commit_requested = True

    parts.all.resize_memory.side_effect = resize
    calls = of(parts.run(), "resize_memory", "commits.commit")
    # The last one is that of the close.
    assert calls == ["resize_memory", "commits.commit", "commits.commit"]


def test_questions_are_answered_after_the_group_was_followed() -> None:
    """Else a task would answer as if it was active that another thread has by now. Also where a
    batch ends early because somebody asks."""
    parts = Parts(None, None)
    told: list[str] = []
    asked = Asked(AskOffsets(), 1)
    waiting: list[list[Asked]] = [[], [asked], [], [asked], []]

    def commands() -> list[Asked]:
        return waiting.pop(0) if waiting else [Asked(Close())]

    def step(task: Any, most: int) -> int:
        told.append("step")
        parts.all.rebalances.has_news.return_value = True
        parts.waker.wake()
        return 1

    def follow() -> None:
        told.append("followed")
        parts.all.rebalances.has_news.return_value = False

    def answer(question: Any) -> str:
        told.append("answered")
        return "offsets"

    parts.control.commands = commands
    parts.all.tasks.processable.return_value = [Mock(task_id=TaskId(0, 0), commit_requested=False)]
    parts.all.tasks.step.side_effect = step
    parts.all.rebalances.next_change.side_effect = follow
    parts.queries.answer.side_effect = answer
    parts.run()
    assert told[:6] == ["followed", "step", "followed", "answered", "step", "followed"]
    assert told.count("answered") == 2
    parts.control.reply.assert_called_with(asked, "offsets")

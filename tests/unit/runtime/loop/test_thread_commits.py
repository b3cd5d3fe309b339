"""When a stream thread commits, and what it does with what could not be committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.tasks.thread_parts import SETTINGS, Parts, of

from millstream.errors import BrokerUnavailableError, RebalanceInProgressError
from millstream.record import TaskId
from millstream.runtime.control import Asked, Close, MemoryShare, ResizeMemory
from millstream.runtime.loop.commits import UnfinishedError
from millstream.runtime.queries.questions import AskOffsets

#: What closing does with work, in order.
GIVING_UP = ("commits.commit", "tasks.close_all", "commits.forget_sent", "producer.close")


def test_each_interval_has_its_commit_of_all_that_runs() -> None:
    """Whether or not somebody asks for one."""
    parts = Parts(None, None, None)
    calls = of(parts.run(), "commits.commit", "tasks.step", "tasks.close_all")
    # Each round takes an interval.
    assert calls == ["commits.commit"] * 5 + ["tasks.close_all"]
    assert {call.args[0] is parts.all.tasks.running for call in commits_of(parts)} == {True}


def test_the_answer_to_a_commit_is_heard_of_in_each_round() -> None:
    """Not an interval later; what a thread does that is told to close waits for it."""
    parts = Parts(None, None, None)
    calls = of(parts.run(), "commits.hear", "commits.commit", "tasks.close_all")
    heard = ["commits.hear", "commits.commit"]
    assert calls == heard * 4 + ["commits.commit", "tasks.close_all"]
    assert [call.kwargs.get("soon") for call in commits_of(parts)] == [True] * 4 + [None]


def test_in_between_a_commit_comes_when_a_task_asks_for_it_and_at_no_other_time() -> None:
    """After its batch, not an interval later; and once."""
    parts = Parts(None)
    (task,) = parts.all.tasks.running
    task.task_id, task.commit_requested = TaskId(0, 0), False
    story: list[str] = []
    batches = ["quiet", "quiet", "asks", "quiet"]
    parts.all.tasks.processable.side_effect = lambda _: [task] if batches else []

    def step(*_: Any) -> int:
        # The round's own commit is made after the first batch, and lasts for the interval.
        story.append(batches.pop(0))
        task.commit_requested = story[-1] == "asks"
        return 1

    def commit(*_: Any, **__: Any) -> dict[Any, Any]:
        story.append("commit")
        task.commit_requested = False
        return {}

    parts.all.tasks.step.side_effect = step
    parts.all.commits.commit.side_effect = commit
    parts.run()
    assert story[:6] == ["quiet", "commit", "quiet", "asks", "commit", "quiet"]


def test_a_group_that_rebalances_is_not_asked_until_it_is_done() -> None:
    """It would refuse, after everything was flushed for it. At last it is, all the same."""
    parts = Parts(None, None, None)
    parts.all.rebalances.under_way = True
    assert of(parts.run(), "commits.commit") == ["commits.commit"]


def test_a_commit_that_the_group_refused_is_made_again_at_once() -> None:
    """Not an interval later, if what was flushed for it has made tasks ask for one."""
    parts = Parts(None, None)
    (task,) = parts.all.tasks.running
    task.task_id, task.commit_requested = TaskId(0, 0), True
    story: list[str] = []
    refusals = [RebalanceInProgressError("soon")]
    batches = [1, 1, 1]
    parts.all.tasks.processable.side_effect = lambda _: [task] if batches else []

    def step(*_: Any) -> int:
        story.append("batch")
        task.commit_requested = False
        return batches.pop()

    def commit(*_: Any, **__: Any) -> dict[Any, Any]:
        story.append("commit")
        if refusals:
            # What its flush has handed on asks for a commit.
            task.commit_requested = True
            raise refusals.pop()
        return {}

    parts.all.tasks.step.side_effect = step
    parts.all.commits.commit.side_effect = commit
    parts.run()
    assert story[:5] == ["batch", "commit", "batch", "commit", "batch"]


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_not_committed_at_last_is_neither_kept_nor_sent(fails: bool) -> None:
    """Its next owners do it again, and must not find it after what they write."""
    parts = Parts()
    if fails:
        parts.all.commits.commit.side_effect = [{}, BrokerUnavailableError("no answer")]
    outcome = parts.outcome()
    assert (outcome.close_error is not None) == fails
    calls = of([call[0] for call in parts.all.mock_calls], *GIVING_UP)
    expected = [name for name in GIVING_UP if fails or name != "commits.forget_sent"]
    assert calls[-len(expected) :] == expected
    assert parts.all.tasks.close_all.call_args.kwargs == {"clean": not fails}


def test_a_thread_that_failed_commits_nothing_more() -> None:
    parts = Parts(ValueError("a user's mistake"))
    parts.outcome()
    calls = of([call[0] for call in parts.all.mock_calls], *GIVING_UP)
    assert calls[-3:] == ["tasks.close_all", "commits.forget_sent", "producer.close"]
    assert parts.all.tasks.close_all.call_args.kwargs == {"clean": False}


def test_the_last_commit_waits_for_a_rebalance_to_end() -> None:
    """Others close, too, when an application does; for some seconds."""
    parts = Parts()
    refused = [RebalanceInProgressError("soon")] * 3
    parts.all.commits.commit.side_effect = [{}, *refused, {}]
    parts.run()
    assert parts.all.tasks.close_all.call_args.kwargs == {"clean": True}
    parts = Parts()
    parts.all.commits.commit.side_effect = [{}, *[RebalanceInProgressError("soon")] * 1_000]
    assert isinstance(parts.outcome().close_error, RebalanceInProgressError)
    assert 5_000 <= parts.clock.now_ms() - SETTINGS.commit_interval_ms <= 6_000


def commits_of(parts: Parts) -> list[Any]:
    return list(parts.all.commits.commit.call_args_list)


@pytest.mark.parametrize("drained", [True, False])
def test_the_outcome_tells_whether_all_in_flight_was_done(*, drained: bool) -> None:
    parts = Parts(None)
    parts.all.commits.drain_to_close.return_value = drained
    assert parts.outcome().has_drained is drained


def test_what_could_not_be_finished_for_a_commit_was_not_done() -> None:
    parts = Parts(None)
    parts.all.commits.drain_to_close.return_value = True
    parts.all.commits.commit.side_effect = UnfinishedError(parts.all.tasks.running)
    assert parts.outcome().has_drained is False


def test_questions_are_answered_in_the_middle_of_a_commit_and_nothing_else_is_done() -> None:
    """But not with news of the group: somebody else may have the task by then."""
    parts = Parts(None, None)
    share = MemoryShare(77, 88)
    asked, others = Asked(AskOffsets(), 1), [Asked(ResizeMemory(share))]
    waiting: list[list[Asked]] = []
    story: list[object] = []

    def commit(*_: object, meanwhile: Callable[[], bool], **__: object) -> dict[object, object]:
        parts.control.commands = lambda: waiting.pop(0) if waiting else [Asked(Close())]
        for what, news in (([asked], False), ([asked], True), (others, False)):
            waiting.append(what)
            parts.waker.wake()
            parts.all.rebalances.has_news.return_value = news
            story.append(meanwhile())
        parts.all.rebalances.has_news.return_value = False
        parts.all.commits.commit.side_effect = None
        story.append("committed")
        return {}

    parts.queries.answer.side_effect = lambda question: story.append("answered")
    parts.all.resize_memory.side_effect = story.append
    parts.all.commits.commit.side_effect = commit
    parts.run()
    assert story == ["answered", True, True, "answered", True, "committed", share]

"""Tasks that wait for others: lists of them, and keys of which one is left."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from support.tasks.subscribed_task import SubscribedTask
from support.waiting import wait_for

from millstream.clock import ManualClock
from millstream.errors import ConfigError
from millstream.parallel import (
    BatchedTask,
    BatchingProcessor,
    Choice,
    CompactionProcessor,
    ProcessingContext,
    ProcessorSubscription,
    Properties,
    Retry,
    Scope,
    SubscriptionConfig,
)

LONG = timedelta(hours=1)
SHORT = timedelta(milliseconds=50)


class Lists:
    """A function of lists that notes them.

    Args:
        is_async: whether it is a coroutine function.
        fails: on which lists, by their number, it raises.
    """

    def __init__(self, is_async: bool, fails: tuple[int, ...] = ()) -> None:
        self.seen: list[list[str]] = []
        self.subscriptions: set[str] = set()
        self.most_at_once = 0
        self._at_once = 0
        self._fails = fails
        self.function: Callable[[list[BatchedTask]], Any] = self._wait if is_async else self._note

    def _note(self, tasks: list[BatchedTask]) -> None:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        number = len(self.seen)
        self.subscriptions |= {each.context.subscription_id for each in tasks}
        self.seen.append([each.task for each in tasks])
        time.sleep(0.002)
        self._at_once -= 1
        if number in self._fails:
            raise RuntimeError(f"list {number}")

    async def _wait(self, tasks: list[BatchedTask]) -> None:
        await asyncio.sleep(0.001)
        self._note(tasks)


def batching(lists: Lists, capacity: int, linger: timedelta, **options: Any) -> BatchingProcessor:
    return BatchingProcessor(lists.function, capacity=capacity, linger=linger, **options)


def done(sub: SubscribedTask, count: int) -> Callable[[], bool]:
    return lambda: sub.committable == count


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_list_is_full_at_its_capacity_and_not_one_later(is_async: bool, concurrency: int) -> None:
    """With a wait that is never over: hunts for Decaton's lists, which one more task has to fill;
    and for two lists at a time, which would mix up keys."""
    lists = Lists(is_async)
    with SubscribedTask(batching(lists, 3, LONG), concurrency=concurrency) as sub:
        sub.feed(*map(str, range(9)))
        sub.until(done(sub, 9), "three lists")
        assert [len(tasks) for tasks in lists.seen] == [3, 3, 3]
        assert sorted(task for tasks in lists.seen for task in tasks) == list(map(str, range(9)))
        assert lists.most_at_once == 1
        sub.feed("9")
        sub.step()
        assert not sub.drain(30)
        assert sub.committable == 9


@pytest.mark.parametrize("is_async", [False, True])
def test_the_first_task_waits_no_longer_than_its_time_even_after_a_list_that_failed(
    is_async: bool,
) -> None:
    """Hunts for Decaton's timer, which an exception ends for good."""
    lists = Lists(is_async, fails=(0,))
    with SubscribedTask(batching(lists, 100, SHORT), concurrency=2, on_error="skip") as sub:
        for count in (1, 2, 3):
            started = time.monotonic()
            sub.feed(str(count))
            sub.until(done(sub, count), f"list {count}")
            assert time.monotonic() - started >= SHORT.total_seconds() * 0.9
        assert lists.seen == [["1"], ["2"], ["3"]]
        assert sub.counted("tasks.error") == 1
        assert sub.counted("tasks.processed") == 3


@pytest.mark.parametrize("is_async", [False, True])
def test_a_list_that_failed_goes_to_the_retry_topic(is_async: bool) -> None:
    lists = Lists(is_async, fails=(0,))
    retry = Retry(backoff=LONG, on_send_failure="drop")
    with SubscribedTask(batching(lists, 2, LONG), retry=retry, on_error="retry") as sub:
        sub.feed("one", "two")
        sub.until(done(sub, 2), "both are done with")
        assert [record.value for record in sub.written("tasks-retry")] == [b"one", b"two"]


def test_tasks_of_a_list_end_one_by_one() -> None:
    """Completed, failed, retried, and left: each as it says; what was completed stays so."""

    def each_its_own(tasks: list[BatchedTask]) -> None:
        by_name = {each.task: each for each in tasks}
        by_name["fails"].completion.fail(ValueError("no"))
        by_name["again"].context.retry()
        by_name["done"].completion.complete()
        raise RuntimeError("after that")

    retry = Retry(backoff=LONG, on_send_failure="drop")
    processor = BatchingProcessor(each_its_own, capacity=4, linger=LONG)
    with SubscribedTask(processor, retry=retry, on_error="skip") as sub:
        sub.feed("fails", "again", "done", "left")
        sub.until(done(sub, 4), "all are done with")
        assert sub.counted("tasks.error") == 3
        assert sub.written("tasks-retry") == []

    def asks(tasks: list[BatchedTask]) -> None:
        tasks[0].context.retry()

    with SubscribedTask(BatchingProcessor(asks, capacity=2, linger=LONG), retry=retry) as sub:
        sub.feed("again", "done")
        sub.until(done(sub, 2), "both are done with")
        assert [record.value for record in sub.written("tasks-retry")] == [b"again"]


def test_a_list_behind_another_processor_may_ask_for_retries() -> None:
    """Also of tasks that were pushed to it."""

    def first(context: ProcessingContext, task: str) -> None:
        context.push(task + "!")

    def asks(tasks: list[BatchedTask]) -> None:
        tasks[0].context.retry()

    chain: list[Any] = [first, BatchingProcessor(asks, capacity=2, linger=LONG)]
    retry = Retry(backoff=LONG, on_send_failure="drop")
    with SubscribedTask(chain, retry=retry) as sub:
        sub.feed("again", "done")
        sub.until(done(sub, 2), "both are done with")
        assert [record.value for record in sub.written("tasks-retry")] == [b"again"]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_task_may_be_split_into_several_of_a_list(is_async: bool) -> None:
    """It is done when all of them are."""

    def split(context: ProcessingContext, task: str) -> None:
        for word in task.split():
            context.push(word)

    async def split_async(context: ProcessingContext, task: str) -> None:
        for word in task.split():
            await context.push(word)

    lists = Lists(is_async)
    first: Any = split_async if is_async else split
    with SubscribedTask([first, batching(lists, 2, LONG)], concurrency=2) as sub:
        sub.feed("a b c", "d")
        sub.until(done(sub, 2), "both are done with")
        assert sorted(word for words in lists.seen for word in words) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("linger", [LONG, SHORT])
def test_a_list_that_is_cancelled_from_within_fails_as_any_other(linger: timedelta) -> None:
    """Something that it awaited was, and no task is thrown away for it: neither one of a list that
    is full, nor one of a list that is due, and lists go on to come."""
    lists = 0

    async def cancelled(tasks: list[BatchedTask]) -> None:
        nonlocal lists
        lists += 1
        raise asyncio.CancelledError

    processor = BatchingProcessor(cancelled, capacity=2 if linger is LONG else 9, linger=linger)
    with SubscribedTask(processor, concurrency=4, on_error="skip") as sub:
        for count in (2, 4):
            sub.feed("one", "two")
            sub.until(done(sub, count), "both are done with")
        assert (sub.counted("tasks.error"), sub.counted("tasks.leaked")) == (4, 0)
    assert lists == 2


def test_a_coroutine_that_a_plain_function_gives_is_an_error() -> None:
    """Nobody awaits it: its tasks would be done for nothing."""

    async def work(tasks: list[BatchedTask]) -> None: ...

    processor = BatchingProcessor(lambda tasks: work(tasks), capacity=2, linger=LONG)
    with SubscribedTask(processor, on_error="skip") as sub:
        sub.feed("one", "two")
        sub.until(done(sub, 2), "both are done with")
        assert sub.counted("tasks.error") == 2


def test_a_function_may_complete_its_tasks_later_by_itself() -> None:
    kept: list[BatchedTask] = []
    processor = BatchingProcessor(kept.extend, capacity=2, linger=LONG, completes=False)
    with SubscribedTask(processor) as sub:
        sub.feed("one", "two")
        sub.step()
        assert len(kept) == 2
        assert not sub.drain(20)
        for each in kept:
            each.completion.complete()
        assert sub.drain()
        assert sub.committable == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_task_whose_time_is_over_comes_in_no_list(is_async: bool) -> None:
    """It has failed, and may be in the retry topic by now: hunts for one that is done twice."""
    lists = Lists(is_async)
    with SubscribedTask(
        batching(lists, 2, LONG),
        concurrency=2,
        on_error="skip",
        clock=ManualClock(1_000_000),
        deferred_complete_timeout_ms=1_000,
    ) as sub:
        sub.feed("one")

        def is_over() -> bool:
            # Only once it is in the list its time begins.
            sub.clock.sleep_ms(1_000)
            return sub.committable == 1

        sub.until(is_over, "its time is over")
        sub.feed("two")
        sub.until(done(sub, 2), "the list is full with it")
        assert (lists.seen, sub.counted("tasks.error")) == ([["two"]], 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_what_waits_when_it_is_given_up_is_neither_processed_nor_told_to_leak(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    lists, later = Lists(is_async), Lists(is_async)
    with (
        SubscribedTask(batching(lists, 100, SHORT), concurrency=2) as sub,
        SubscribedTask(batching(later, 100, 3 * SHORT), concurrency=2) as other,
    ):
        sub.feed("one")
        sub.step()
        sub.task.halt()
        # One that began later and waits longer, so that the first was due when this is processed.
        other.feed("two")
        other.until(done(other, 1), "the other is processed")
        assert not sub.drain(10)
        assert sub.committable == 0
    assert lists.seen == []
    assert not [record for record in caplog.records if "thrown away" in record.message]


def test_a_list_that_is_being_processed_is_waited_for() -> None:
    gate, running = threading.Event(), threading.Event()

    def wait(tasks: list[BatchedTask]) -> None:
        running.set()
        assert gate.wait(10)

    with SubscribedTask(BatchingProcessor(wait, capacity=9, linger=SHORT)) as sub:
        sub.feed("one")
        sub.step()
        assert running.wait(10)
        sub.task.halt()
        assert sub.task.may_land
        gate.set()
        assert sub.drain()
        assert sub.committable == 1


@pytest.mark.parametrize(
    ("processor", "why"),
    [
        (BatchingProcessor(print, capacity=11, linger=LONG), "max_pending_records=10"),
        ([BatchingProcessor(print, capacity=2, linger=LONG), print], "the last one"),
    ],
)
def test_lists_that_cannot_be_are_refused(processor: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ProcessorSubscription(
            "sub",
            topics="tasks",
            processor=processor,
            config=SubscriptionConfig("group", "unused:1"),
            properties=Properties(max_pending_records=10),
        )


def newest(linger: timedelta = SHORT) -> CompactionProcessor:
    return CompactionProcessor(lambda left, right: Choice.RIGHT, linger=linger)


@pytest.mark.parametrize("is_async", [False, True])
def test_of_the_tasks_of_a_key_one_is_left_and_the_others_are_done(is_async: bool) -> None:
    seen: list[str] = []

    async def note_async(context: ProcessingContext, task: str) -> None:
        await asyncio.sleep(0)
        seen.append(task)

    def note(context: ProcessingContext, task: str) -> None:
        seen.append(task)

    with SubscribedTask([newest(), note_async if is_async else note], concurrency=2) as sub:
        sub.feed("a1", "a2", "a3", key="a")
        sub.feed("b1", key="b")
        sub.until(done(sub, 4), "all are done with")
        assert sorted(seen) == ["a3", "b1"]
        assert sub.counted("processor.compaction.compacted") == 2
        sub.feed("a4", key="a")
        sub.until(done(sub, 5), "a new one waits anew")
        assert seen[-1] == "a4"


def test_a_loser_is_done_while_the_winner_waits() -> None:
    first = CompactionProcessor(lambda left, right: Choice.LEFT, linger=LONG)
    with SubscribedTask([first, lambda context, task: None]) as sub:
        sub.feed("a1", "a2", key="a")
        sub.step()
        assert sub.committable == 0
        assert sub.task.in_flight == 1


@pytest.mark.parametrize("lost", ["its time is over", "its partition comes back"])
def test_a_task_that_nobody_processes_any_more_wins_over_none(lost: str) -> None:
    """Of a processor that outlives the partition: hunts for a task that was complete without being
    processed, as the loser of one that was not either."""
    seen: list[str] = []
    first = CompactionProcessor(
        lambda left, right: Choice.LEFT, linger=6 * SHORT, scope=Scope.SUBSCRIPTION
    )
    with SubscribedTask(
        [first, lambda context, task: seen.append(task)],
        on_error="skip",
        clock=ManualClock(1_000_000),
        deferred_complete_timeout_ms=1_000,
    ) as sub:
        sub.feed("a1", key="a")
        sub.step()
        if lost == "its time is over":
            sub.clock.sleep_ms(1_000)
            sub.until(done(sub, 1), lost)
        else:
            sub.begin_anew()
        sub.feed("a2", key="a")
        sub.until(done(sub, 2 if sub.committable else 1), "it is done with")
        assert (seen, sub.counted("processor.compaction.compacted")) == (["a2"], 0)


async def fail_async(context: ProcessingContext, task: str) -> None:
    raise RuntimeError(task)


async def cancelled(context: ProcessingContext, task: str) -> None:
    raise asyncio.CancelledError


def fail(context: ProcessingContext, task: str) -> None:
    raise RuntimeError(task)


def unawaited(context: ProcessingContext, task: str) -> Any:
    return fail_async(context, task)


@pytest.mark.parametrize("failing", [fail, fail_async, cancelled, unawaited])
def test_what_fails_behind_a_compaction_fails_as_any_other(failing: Any) -> None:
    """Decaton loses track of such a task, and the partition stops at it."""
    processors: list[Any] = [newest(), failing]
    with SubscribedTask(processors, concurrency=2, on_error="skip") as sub:
        sub.feed("a1", "a2", key="a")
        sub.until(done(sub, 2), "both are done with")
        assert (sub.counted("tasks.error"), sub.counted("tasks.leaked")) == (1, 0)


def test_what_a_compaction_leaves_may_be_deferred_and_gathered_once_more() -> None:
    lists = Lists(is_async=False)
    with SubscribedTask([newest(), batching(lists, 2, LONG)], concurrency=2) as sub:
        sub.feed("a1", "a2", key="a")
        sub.feed("b1", key="b")
        sub.until(done(sub, 3), "all are done with")
        assert lists.subscriptions == {"sub"}
        assert [sorted(tasks) for tasks in lists.seen] == [["a2", "b1"]]


def test_a_chooser_that_fails_fails_the_task_and_keeps_the_other() -> None:
    def choose(left: str, right: str) -> Choice:
        raise RuntimeError("no idea")

    seen: list[str] = []
    processor = CompactionProcessor(choose, linger=SHORT, scope=Scope.SUBSCRIPTION)
    with SubscribedTask(
        [processor, lambda context, task: seen.append(task)], on_error="skip"
    ) as sub:
        sub.feed("a1", "a2", key="a")
        sub.until(done(sub, 2), "both are done with")
        assert seen == ["a1"]
        assert sub.counted("tasks.error") == 1


def test_a_compaction_without_a_processor_behind_it_says_so() -> None:
    with SubscribedTask(newest(), on_error="skip") as sub:
        sub.feed("a")
        sub.step()
        wait_for(lambda: sub.counted("tasks.error") == 1, 10, "it fails")

"""Tasks that wait for others: batches, and compaction of keys."""

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


class BatchFunction:
    """A function that keeps its batches.

    Args:
        is_async: whether it is a coroutine function.
        fails: the numbers of the batches for which it raises.
    """

    def __init__(self, is_async: bool, fails: tuple[int, ...] = ()) -> None:
        self.seen: list[list[str]] = []
        self.subscriptions: set[str] = set()
        self.max_running = 0
        self._running = 0
        self._fails = fails
        self.function: Callable[[list[BatchedTask]], Any] = self._wait if is_async else self._record

    def _record(self, tasks: list[BatchedTask]) -> None:
        self._running += 1
        self.max_running = max(self.max_running, self._running)
        number = len(self.seen)
        self.subscriptions |= {each.context.subscription_id for each in tasks}
        self.seen.append([each.task for each in tasks])
        time.sleep(0.002)
        self._running -= 1
        if number in self._fails:
            raise RuntimeError(f"list {number}")

    async def _wait(self, tasks: list[BatchedTask]) -> None:
        await asyncio.sleep(0.001)
        self._record(tasks)


def batching(
    batch_function: BatchFunction, capacity: int, linger: timedelta, **options: Any
) -> BatchingProcessor:
    return BatchingProcessor(batch_function.function, capacity=capacity, linger=linger, **options)


def committed_up_to(sub: SubscribedTask, count: int) -> Callable[[], bool]:
    return lambda: sub.committable == count


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("is_async", [False, True])
def test_batch_is_full_at_its_capacity(is_async: bool, concurrency: int) -> None:
    """With an endless linger. Detects Decaton's batches, which are filled by one more task, and two
    batches at a time, which would mix up keys."""
    batch_function = BatchFunction(is_async)
    with SubscribedTask(batching(batch_function, 3, LONG), concurrency=concurrency) as sub:
        sub.feed(*map(str, range(9)))
        sub.until(committed_up_to(sub, 9), "three lists")
        assert [len(tasks) for tasks in batch_function.seen] == [3, 3, 3]
        assert sorted(task for tasks in batch_function.seen for task in tasks) == list(
            map(str, range(9))
        )
        assert batch_function.max_running == 1
        sub.feed("9")
        sub.step()
        assert not sub.drain(30)
        assert sub.committable == 9


@pytest.mark.parametrize("is_async", [False, True])
def test_first_task_waits_no_longer_than_its_linger_even_after_a_failed_batch(
    is_async: bool,
) -> None:
    """Detects Decaton's timer, which an exception ends permanently."""
    batch_function = BatchFunction(is_async, fails=(0,))
    with SubscribedTask(
        batching(batch_function, 100, SHORT), concurrency=2, on_error="skip"
    ) as sub:
        for count in (1, 2, 3):
            started = time.monotonic()
            sub.feed(str(count))
            sub.until(committed_up_to(sub, count), f"list {count}")
            assert time.monotonic() - started >= SHORT.total_seconds() * 0.9
        assert batch_function.seen == [["1"], ["2"], ["3"]]
        assert sub.counted("tasks.error") == 1
        assert sub.counted("tasks.processed") == 3


@pytest.mark.parametrize("is_async", [False, True])
def test_failed_batch_goes_to_the_retry_topic(is_async: bool) -> None:
    batch_function = BatchFunction(is_async, fails=(0,))
    retry = Retry(backoff=LONG, on_send_failure="drop")
    with SubscribedTask(batching(batch_function, 2, LONG), retry=retry, on_error="retry") as sub:
        sub.feed("one", "two")
        sub.until(committed_up_to(sub, 2), "both are completed")
        assert [record.value for record in sub.written("tasks-retry")] == [b"one", b"two"]


def test_tasks_of_a_batch_end_individually() -> None:
    """Completed, failed, retried, or without an outcome. Completed tasks stay completed."""

    def end_individually(tasks: list[BatchedTask]) -> None:
        by_name = {each.task: each for each in tasks}
        by_name["fails"].completion.fail(ValueError("no"))
        by_name["again"].context.retry()
        by_name["done"].completion.complete()
        raise RuntimeError("after that")

    retry = Retry(backoff=LONG, on_send_failure="drop")
    processor = BatchingProcessor(end_individually, capacity=4, linger=LONG)
    with SubscribedTask(processor, retry=retry, on_error="skip") as sub:
        sub.feed("fails", "again", "done", "left")
        sub.until(committed_up_to(sub, 4), "all are completed")
        assert sub.counted("tasks.error") == 3
        assert sub.written("tasks-retry") == []

    def retry_first(tasks: list[BatchedTask]) -> None:
        tasks[0].context.retry()

    with SubscribedTask(
        BatchingProcessor(retry_first, capacity=2, linger=LONG), retry=retry
    ) as sub:
        sub.feed("again", "done")
        sub.until(committed_up_to(sub, 2), "both are completed")
        assert [record.value for record in sub.written("tasks-retry")] == [b"again"]


def test_batch_behind_another_processor_can_request_retries() -> None:
    """Also for tasks that were pushed."""

    def first(context: ProcessingContext, task: str) -> None:
        context.push(task + "!")

    def retry_first(tasks: list[BatchedTask]) -> None:
        tasks[0].context.retry()

    chain: list[Any] = [first, BatchingProcessor(retry_first, capacity=2, linger=LONG)]
    retry = Retry(backoff=LONG, on_send_failure="drop")
    with SubscribedTask(chain, retry=retry) as sub:
        sub.feed("again", "done")
        sub.until(committed_up_to(sub, 2), "both are completed")
        assert [record.value for record in sub.written("tasks-retry")] == [b"again"]


@pytest.mark.parametrize("is_async", [False, True])
def test_task_can_be_split_into_several_tasks_of_a_batch(is_async: bool) -> None:
    """It is completed when all of them are."""

    def split(context: ProcessingContext, task: str) -> None:
        for word in task.split():
            context.push(word)

    async def split_async(context: ProcessingContext, task: str) -> None:
        for word in task.split():
            await context.push(word)

    batch_function = BatchFunction(is_async)
    first: Any = split_async if is_async else split
    with SubscribedTask([first, batching(batch_function, 2, LONG)], concurrency=2) as sub:
        sub.feed("a b c", "d")
        sub.until(committed_up_to(sub, 2), "both are completed")
        assert sorted(word for words in batch_function.seen for word in words) == [
            "a",
            "b",
            "c",
            "d",
        ]


@pytest.mark.parametrize("linger", [LONG, SHORT])
def test_batch_that_is_cancelled_from_within_fails_like_any_other(linger: timedelta) -> None:
    """For example by an awaited task. No task is dropped, neither in a full batch nor in a due one,
    and later batches are processed."""
    batches = 0

    async def cancelled(tasks: list[BatchedTask]) -> None:
        nonlocal batches
        batches += 1
        raise asyncio.CancelledError

    processor = BatchingProcessor(cancelled, capacity=2 if linger is LONG else 9, linger=linger)
    with SubscribedTask(processor, concurrency=4, on_error="skip") as sub:
        for count in (2, 4):
            sub.feed("one", "two")
            sub.until(committed_up_to(sub, count), "both are completed")
        assert (sub.counted("tasks.error"), sub.counted("tasks.leaked")) == (4, 0)
    assert batches == 2


def test_coroutine_of_a_plain_function_is_an_error() -> None:
    """It is not awaited: its tasks would be completed without being processed."""

    async def work(tasks: list[BatchedTask]) -> None: ...

    processor = BatchingProcessor(lambda tasks: work(tasks), capacity=2, linger=LONG)
    with SubscribedTask(processor, on_error="skip") as sub:
        sub.feed("one", "two")
        sub.until(committed_up_to(sub, 2), "both are completed")
        assert sub.counted("tasks.error") == 2


def test_function_can_complete_its_tasks_later() -> None:
    pending: list[BatchedTask] = []
    processor = BatchingProcessor(pending.extend, capacity=2, linger=LONG, completes=False)
    with SubscribedTask(processor) as sub:
        sub.feed("one", "two")
        sub.step()
        assert len(pending) == 2
        assert not sub.drain(20)
        for each in pending:
            each.completion.complete()
        assert sub.drain()
        assert sub.committable == 2


@pytest.mark.parametrize("is_async", [False, True])
def test_timed_out_task_is_in_no_batch(is_async: bool) -> None:
    """It has failed, and may be in the retry topic already. Detects a task that is processed
    twice."""
    batch_function = BatchFunction(is_async)
    with SubscribedTask(
        batching(batch_function, 2, LONG),
        concurrency=2,
        on_error="skip",
        clock=ManualClock(1_000_000),
        deferred_complete_timeout_ms=1_000,
    ) as sub:
        sub.feed("one")

        def is_over() -> bool:
            # The timeout only starts once the task is in the batch.
            sub.clock.sleep_ms(1_000)
            return sub.committable == 1

        sub.until(is_over, "it has timed out")
        sub.feed("two")
        sub.until(committed_up_to(sub, 2), "the list is full with it")
        assert (batch_function.seen, sub.counted("tasks.error")) == ([["two"]], 1)


@pytest.mark.parametrize("is_async", [False, True])
def test_waiting_tasks_are_neither_processed_nor_reported_as_leaked_after_a_halt(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    batch_function, other_function = BatchFunction(is_async), BatchFunction(is_async)
    with (
        SubscribedTask(batching(batch_function, 100, SHORT), concurrency=2) as sub,
        SubscribedTask(batching(other_function, 100, 3 * SHORT), concurrency=2) as other,
    ):
        sub.feed("one")
        sub.step()
        sub.task.halt()
        # The second batch starts later and lingers longer, so the first one was due before it.
        other.feed("two")
        other.until(committed_up_to(other, 1), "the other is processed")
        assert not sub.drain(10)
        assert sub.committable == 0
    assert batch_function.seen == []
    assert not [record for record in caplog.records if "garbage-collected" in record.message]


def test_running_batch_is_awaited() -> None:
    gate, running = threading.Event(), threading.Event()

    def wait(tasks: list[BatchedTask]) -> None:
        running.set()
        assert gate.wait(10)

    with SubscribedTask(BatchingProcessor(wait, capacity=9, linger=SHORT)) as sub:
        sub.feed("one")
        sub.step()
        assert running.wait(10)
        sub.task.halt()
        assert sub.task.can_finish
        gate.set()
        assert sub.drain()
        assert sub.committable == 1


@pytest.mark.parametrize(
    ("processor", "message"),
    [
        (BatchingProcessor(print, capacity=11, linger=LONG), "max_pending_records=10"),
        ([BatchingProcessor(print, capacity=2, linger=LONG), print], "the last one"),
    ],
)
def test_invalid_batches_are_rejected(processor: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
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
def test_one_task_of_a_key_remains_and_the_others_are_completed(is_async: bool) -> None:
    seen: list[str] = []

    async def note_async(context: ProcessingContext, task: str) -> None:
        await asyncio.sleep(0)
        seen.append(task)

    def note(context: ProcessingContext, task: str) -> None:
        seen.append(task)

    with SubscribedTask([newest(), note_async if is_async else note], concurrency=2) as sub:
        sub.feed("a1", "a2", "a3", key="a")
        sub.feed("b1", key="b")
        sub.until(committed_up_to(sub, 4), "all are completed")
        assert sorted(seen) == ["a3", "b1"]
        assert sub.counted("processor.compaction.compacted") == 2
        sub.feed("a4", key="a")
        sub.until(committed_up_to(sub, 5), "the new one is completed")
        assert seen[-1] == "a4"


def test_dropped_task_is_completed_while_the_other_one_waits() -> None:
    first = CompactionProcessor(lambda left, right: Choice.LEFT, linger=LONG)
    with SubscribedTask([first, lambda context, task: None]) as sub:
        sub.feed("a1", "a2", key="a")
        sub.step()
        assert sub.committable == 0
        assert sub.task.in_flight == 1


@pytest.mark.parametrize("cause", ["timeout", "reassignment"])
def test_task_that_is_no_longer_processed_is_not_chosen(cause: str) -> None:
    """The processor outlives the partition. Detects a task that is completed without being
    processed because an obsolete task was chosen."""
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
        if cause == "timeout":
            sub.clock.sleep_ms(1_000)
            sub.until(committed_up_to(sub, 1), cause)
        else:
            sub.restart()
        sub.feed("a2", key="a")
        sub.until(committed_up_to(sub, 2 if sub.committable else 1), "it is completed")
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
def test_failure_behind_a_compaction_is_an_ordinary_failure(failing: Any) -> None:
    """Decaton loses such a task, and the partition stops there."""
    processors: list[Any] = [newest(), failing]
    with SubscribedTask(processors, concurrency=2, on_error="skip") as sub:
        sub.feed("a1", "a2", key="a")
        sub.until(committed_up_to(sub, 2), "both are completed")
        assert (sub.counted("tasks.error"), sub.counted("tasks.leaked")) == (1, 0)


def test_remaining_task_of_a_compaction_can_be_deferred_in_a_batch() -> None:
    batch_function = BatchFunction(is_async=False)
    with SubscribedTask([newest(), batching(batch_function, 2, LONG)], concurrency=2) as sub:
        sub.feed("a1", "a2", key="a")
        sub.feed("b1", key="b")
        sub.until(committed_up_to(sub, 3), "all are completed")
        assert batch_function.subscriptions == {"sub"}
        assert [sorted(tasks) for tasks in batch_function.seen] == [["a2", "b1"]]


def test_failing_chooser_fails_its_task_and_keeps_the_other() -> None:
    def choose(left: str, right: str) -> Choice:
        raise RuntimeError("no idea")

    seen: list[str] = []
    processor = CompactionProcessor(choose, linger=SHORT, scope=Scope.SUBSCRIPTION)
    with SubscribedTask(
        [processor, lambda context, task: seen.append(task)], on_error="skip"
    ) as sub:
        sub.feed("a1", "a2", key="a")
        sub.until(committed_up_to(sub, 2), "both are completed")
        assert seen == ["a1"]
        assert sub.counted("tasks.error") == 1


def test_compaction_without_a_processor_behind_it_fails() -> None:
    with SubscribedTask(newest(), on_error="skip") as sub:
        sub.feed("a")
        sub.step()
        wait_for(lambda: sub.counted("tasks.error") == 1, 10, "it fails")

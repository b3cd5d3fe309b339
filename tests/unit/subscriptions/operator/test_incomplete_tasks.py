"""Tasks without a processor or a completion: none of them is lost silently."""

from __future__ import annotations

import asyncio
import logging
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from support.tasks.subscribed_task import PLACE, SubscribedTask

from millstream.clock import ManualClock
from millstream.errors import StreamsError
from millstream.parallel import (
    BatchedTask,
    BatchingProcessor,
    Completion,
    ProcessingContext,
    Retry,
)
from millstream.subscriptions.tasks.decaton_metadata import METADATA_HEADER
from millstream.testing.driver_topics import RawColumns

Context = ProcessingContext
SECOND = timedelta(seconds=1)
RETRY = Retry(backoff=SECOND, max_attempts=3, dead_letter_topic="dead")
CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 3])


# --- pushed and not awaited ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "without await", "generator"])
def test_push_without_await_fails_the_task(kind: str) -> None:
    """Detects an offset that is committed although the second processor never ran."""
    done: list[str] = []

    def plain(context: Context, task: str) -> None:
        context.push(task)

    async def without_await(context: Context, task: str) -> None:
        context.push(task)

    async def second(context: Context, task: str) -> None:
        done.append(task)

    async def generating(context: Context, task: str) -> Any:
        done.append(task)
        yield task

    first: Any = without_await if kind == "without await" else plain
    last: Any = generating if kind == "generator" else second
    with SubscribedTask([first, last]) as sub:
        sub.feed("one")
        with pytest.raises(StreamsError, match=r"awaits|awaited") as caught:
            sub.until(lambda: False, "it fails")
        assert isinstance(caught.value.__cause__, TypeError)
        assert (done, sub.committable) == ([], 0)


def test_asynchronous_generator_is_no_processor() -> None:
    async def generating(context: Context, task: str) -> Any:
        yield task

    with SubscribedTask(generating) as sub:
        sub.feed("one")
        with pytest.raises(StreamsError, match="asynchronous"):
            sub.until(lambda: False, "it fails")


@CONCURRENCIES
def test_plain_chain_whose_last_processor_returns_a_coroutine_fails(concurrency: int) -> None:
    async def work() -> None: ...

    chain = [lambda context, task: (context.push(task), None)[1], lambda context, task: work()]
    with SubscribedTask(chain, concurrency=concurrency) as sub:
        sub.feed("one")
        with pytest.raises(StreamsError, match=r"result of push\(\) was not awaited"):
            sub.until(lambda: False, "it fails")


@pytest.mark.parametrize("kind", ["awaited", "returned", "deferred"])
def test_awaited_push_is_valid(kind: str) -> None:
    """Awaited by the processor, by the subscription, or by a task of the event loop."""
    done: list[str] = []
    pending: list[Any] = []

    async def awaited(context: Context, task: str) -> None:
        await context.push(task)

    def returned(context: Context, task: str) -> Any:
        return context.push(task)

    async def deferred(context: Context, task: str) -> None:
        completion = context.defer_completion()
        call = asyncio.create_task(context.push(task))
        call.add_done_callback(lambda _: completion.complete())
        pending.append(call)

    async def second(context: Context, task: str) -> None:
        done.append(task)

    first: Any = {"awaited": awaited, "returned": returned, "deferred": deferred}[kind]
    with SubscribedTask([first, second]) as sub:
        sub.feed("one")
        sub.until(lambda: sub.committable == 1, "it is done")
        assert done == ["one"]


# --- cancelled -----------------------------------------------------------------------------------


def cancelled(context: Context, task: str) -> None:
    raise asyncio.CancelledError


@CONCURRENCIES
def test_cancellation_fails_its_task_and_not_the_thread(concurrency: int) -> None:
    with SubscribedTask(cancelled, concurrency=concurrency, on_error="skip") as sub:
        sub.feed("one", "two")
        sub.until(lambda: sub.committable == 2, "both have failed")
        assert sub.counted("tasks.error") == 2


def test_cancellation_in_a_completion_block_fails_its_task_and_not_the_thread() -> None:
    pending: list[Completion] = []
    work = lambda context, task: pending.append(context.defer_completion())  # noqa: E731
    with SubscribedTask(work, on_error="skip") as sub:
        sub.feed("one")
        sub.step()
        with pytest.raises(asyncio.CancelledError), pending[0]:
            raise asyncio.CancelledError
        sub.until(lambda: sub.committable == 1, "it has failed")
        assert sub.counted("tasks.error") == 1


# --- time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [None, "later", 5])
def test_invalid_result_of_on_timeout_fails_the_task(
    answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With a message in the log, instead of ending the thread."""
    pending: list[Completion] = []

    def work(context: Context, task: str) -> None:
        pending.append(context.defer_completion(timeout=SECOND, on_timeout=lambda _: answer))

    with SubscribedTask(work, on_error="skip", clock=ManualClock(1_000)) as sub:
        sub.feed("one")
        sub.step()
        sub.clock.sleep_ms(1_000)
        sub.until(lambda: sub.committable == 1, "it has failed")
        assert f"on_timeout returned {answer!r} for the task of topic tasks" in caplog.text
        assert sub.counted("tasks.error") == 1


@CONCURRENCIES
def test_timeout_of_a_deferred_task_starts_when_its_processor_returns(
    concurrency: int,
) -> None:
    """A processor that defers first and works for long afterwards is not late."""
    clock = ManualClock(1_000)
    pending: list[Completion] = []

    def work(context: Context, task: str) -> None:
        pending.append(context.defer_completion(timeout=SECOND))
        clock.advance(5_000)

    with SubscribedTask(work, concurrency=concurrency, on_error="skip", clock=clock) as sub:
        sub.feed("one")
        sub.until(lambda: bool(pending) and pending[0].deadline_ms is not None, "it has returned")
        clock.advance(999)
        sub.step()
        assert not pending[0].is_done
        clock.advance(1)
        sub.until(lambda: pending[0].is_done, "it has timed out")
        assert sub.counted("tasks.timeout") == 1


@CONCURRENCIES
def test_oldest_incomplete_task_is_logged(
    concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Once per minute, from an age of five minutes; the metrics always contain its age."""
    clock = ManualClock(1_000)
    pending: dict[int, Completion] = {}

    def work(context: Context, task: str) -> None:
        pending[context.offset] = context.defer_completion()

    with SubscribedTask(work, concurrency=concurrency, clock=clock) as sub:
        sub.feed("one", "two")
        sub.until(lambda: len(pending) == 2, "both are deferred")
        sub.until(
            lambda: not sub.task.processing.executor.has_completions, "all completions are handled"
        )
        clock.advance(299_999)
        sub.step()
        assert sub.counted("tasks.pending.age.max") == 299_999
        assert "is not completed" not in caplog.text
        clock.advance(10_001)
        sub.step()
        message = "offset 0 was started 310000 ms ago and is not completed"
        assert f"topic tasks, partition 0, {message}" in caplog.text
        for _ in range(5):
            clock.advance(11_000)
            sub.step()
        assert caplog.text.count("is not completed") == 1
        clock.advance(11_000)
        sub.step()
        assert caplog.text.count("is not completed") == 2
        pending[0].complete()
        sub.until(lambda: sub.task.in_flight == 1, "it is completed")
        assert sub.counted("tasks.pending.age.max") == clock.monotonic_ms() - 1_000


# --- records without a task ----------------------------------------------------------------------


def feed_unreadable(sub: SubscribedTask, offset: int = 0) -> None:
    headers = ((METADATA_HEADER, b"\xff\xff"), ("trace", b"7"))
    columns = RawColumns(
        [b"key", b"key"], [b"bad", None], [5, 6], [offset, offset + 1], [headers] * 2
    )
    sub.task.add_records(PLACE, columns)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_record_without_a_task_becomes_a_dead_letter(concurrency: int) -> None:
    """Unchanged, with the error; it does not wait for the rate."""
    done: list[str] = []
    with SubscribedTask(
        lambda context, task: done.append(task),
        concurrency=concurrency,
        retry=RETRY,
        on_error="retry",
        processing_rate_per_partition=1,
        clock=ManualClock(1_000),
    ) as sub:
        feed_unreadable(sub)
        sub.until(lambda: sub.commit() == 2, "they are completed")
        bad, deleted = sub.written("dead")
        assert (bad.key, bad.value, deleted.value) == (b"key", b"bad", None)
        names = [name for name, _ in bad.headers]
        assert "trace" in names
        assert any("exception" in name for name in names)
        counts = ("tasks.discarded", "tasks.dead", "tasks.processed", "retry.queued.tasks")
        assert [sub.counted(name) for name in counts] == [2, 2, 0, 0]
        assert sub.counted("tasks.process.duration.count") == 0


def test_record_without_a_task_is_logged_if_there_are_no_dead_letters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SubscribedTask(
        lambda context, task: None, retry=Retry(backoff=SECOND), on_error="retry"
    ) as sub:
        feed_unreadable(sub)
        with caplog.at_level(logging.WARNING):
            sub.until(lambda: sub.committable == 2, "they are completed")
        assert "contains no task" in caplog.text


# --- traces and batches --------------------------------------------------------------------------


class TraceEnds:
    """Records the ends of traces. Implements `Tracing` and `TaskTrace`."""

    def __init__(self) -> None:
        self.ends: list[str] = []

    def trace_for(self, context: Context, subscription: str) -> TraceEnds:
        return self

    def processing(self) -> Any:
        return nullcontext()

    def completed(self, outcome: str, error: BaseException | None) -> None:
        self.ends.append(outcome)

    def retry_headers(self) -> Any:
        return ()


def test_trace_of_an_attempt_with_a_rejected_retry_ends() -> None:
    """Detects a trace that stays open forever because the task starts with a new one."""
    tracing, clock = TraceEnds(), ManualClock(1_000)
    retry = Retry(backoff=SECOND)
    with SubscribedTask(
        lambda context, task: context.retry(), retry=retry, tracing=tracing, clock=clock
    ) as sub:
        sub.feed("one")
        sub.step()
        sub.task.processing.runner_context.rejected_tasks.add((PLACE, 0))
        sub.task.on_delivered()
        assert tracing.ends == ["retry"]
        assert sub.task.in_flight == 1


@pytest.mark.parametrize("when", ["within", "later"])
def test_task_of_a_batch_can_be_retried_after_the_function_has_returned(when: str) -> None:
    pending: list[BatchedTask] = []

    def store(tasks: list[BatchedTask]) -> None:
        pending.extend(tasks)
        if when == "within":
            tasks[0].context.retry()

    batching = BatchingProcessor(store, capacity=1, linger=SECOND, completes=False)
    with SubscribedTask(batching, retry=Retry(backoff=SECOND)) as sub:
        sub.feed("one")
        sub.until(lambda: len(pending) == 1, "it has its list")
        if when == "later":
            sub.step()
            assert sub.task.in_flight == 1
            pending[0].context.retry()
        sub.until(lambda: sub.counted("retry.queued.tasks") == 1, "it is retried")
        assert sub.drain()


@CONCURRENCIES
@pytest.mark.parametrize("kind", ["returned", "pushed", "async"])
def test_generator_fails_the_task(kind: str, concurrency: int) -> None:
    """Detects a task that is completed although a lambda hides that its processor yields."""
    done: list[str] = []

    def yielding(context: Context, task: str) -> Any:
        done.append(task)
        yield task

    def hidden(context: Context, task: str) -> Any:
        return yielding(context, task)

    async def asynchronous(context: Context, task: str) -> Any:
        context.push(task)

    chains: dict[str, Any] = {
        "returned": hidden,
        "pushed": [lambda context, task: (context.push(task), None)[1], hidden],
        "async": [asynchronous, hidden],
    }
    with SubscribedTask(chains[kind], concurrency=concurrency) as sub:
        sub.feed("one")
        with pytest.raises(StreamsError, match="yielding is a generator function"):
            sub.until(lambda: False, "it fails")
        assert (done, sub.committable) == ([], 0)

"""One partition of a subscription: its tasks, and its changing properties."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tasks.concurrent_bench import ConcurrentBench

from millstream.errors import IllegalStateError, StreamsError
from millstream.parallel import (
    Completion,
    DecatonMetadata,
    ProcessingContext,
    Properties,
    Retry,
    Scope,
    Scoped,
    TaskProcessor,
)
from millstream.record import TopicPartition
from millstream.serdes import LONG, Serde
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.tasks.decaton_metadata import find_metadata, with_metadata
from millstream.subscriptions.tasks.task_extraction import TaskReader

Make = Callable[..., ConcurrentBench]
Context = ProcessingContext
SECOND = timedelta(seconds=1)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Return a function that makes the partition of a subscription with the given processors."""

    def make_partition(
        *processors: Any,
        topic: str = "in",
        retry: Retry | None = None,
        on_error: Any = "skip",
        shaping: str | None = None,
        key: Serde[Any] | None = None,
        **properties: Any,
    ) -> ConcurrentBench:
        plan = SubscriptionPlan(
            name="mailer",
            chain=ProcessorChain.of(list(processors)),
            reader=TaskReader(None, None, legacy_parse_fallback=False),
            properties=Properties(**properties),
            retry=retry,
            on_error=on_error,
            key=key,
        )
        return ConcurrentBench(subscription_topology(plan, topic, shaping), tmp_path)

    return make_partition


def feed(bench: ConcurrentBench, *tasks: str) -> None:
    """Feed tasks, each with its first letter as the key."""
    for task in tasks:
        bench.feed(task[:1].encode(), task.encode(), 1_000)


def change(bench: ConcurrentBench, **properties: Any) -> None:
    current = bench.share.properties or Properties()
    bench.share.change(current.changed(**properties))


def count(bench: ConcurrentBench, name: str) -> float:
    return sum(value for (metric, _), value in bench.share.metrics.all().items() if metric == name)


def quiet(context: Context, task: bytes) -> None:
    """Does nothing."""


# --- processors ----------------------------------------------------------------------------------


async def push_a(context: Context, task: bytes) -> None:
    await context.push(task + b"a")


async def push_b(context: Context, task: bytes) -> None:
    await context.push(task + b"b")


def test_processors_of_a_chain_push_to_the_next(make: Make) -> None:
    """Also if they are asynchronous, and several tasks run."""
    received: list[bytes] = []

    async def last(context: Context, task: bytes) -> None:
        received.append(task)
        with pytest.raises(IllegalStateError, match="there is no next one"):
            context.push(task)

    bench = make(push_a, push_b, last, partition_concurrency=5)
    feed(bench, "x", "y")
    bench.settle()
    assert received == [b"xab", b"yab"]


def test_keys_are_decoded_with_a_serde(make: Make) -> None:
    """Also behind another processor; retries keep the bytes."""
    seen: list[Any] = []

    def first(context: Context, task: bytes) -> None:
        seen.append((context.key, context.raw_key))
        context.push(task)

    def last(context: Context, task: bytes) -> None:
        seen.append((context.key, context.raw_key))
        raise ValueError("again")

    retry = Retry(backoff=SECOND)
    bench = make(first, last, retry=retry, on_error="retry", key=LONG)
    raw = (7).to_bytes(8, "big")
    bench.feed(raw, b"task", 1_000)
    bench.feed(None, b"keyless", 1_000)
    bench.settle()
    assert seen == [(7, raw)] * 2 + [(None, None)] * 2
    assert [(each.topic, each.key) for each in bench.outputs] == [
        ("in-retry", raw),
        ("in-retry", None),
    ]

    seen.clear()
    plain = make(first, quiet)
    plain.feed(raw, b"task", 1_000)
    plain.settle()
    assert seen == [(raw, raw)]


def test_key_that_cannot_be_decoded(make: Make) -> None:
    """It fails a processor that reads the key, and no other one."""
    done: list[bytes] = []

    def read_key(context: Context, task: bytes) -> None:
        done.append(task if context.key == 7 else b"")

    def ignore_key(context: Context, task: bytes) -> None:
        done.append(task)

    bench = make(read_key, key=LONG)
    bench.feed(b"\xff", b"broken", 1_000)
    bench.feed((7).to_bytes(8, "big"), b"good", 1_000)
    bench.settle()
    assert done == [b"good"]
    assert count(bench, "tasks.error") == 1
    bench = make(ignore_key, key=LONG)
    bench.feed(b"\xff", b"broken", 1_000)
    bench.settle()
    assert done == [b"good", b"broken"]


def test_context_contains_its_subscription(make: Make) -> None:
    """Also behind another processor."""
    names: list[str] = []

    def note(context: Context, task: bytes) -> None:
        names.append(context.subscription_id)
        if len(names) == 1:
            context.push(task)

    bench = make(note, note)
    feed(bench, "x")
    bench.settle()
    assert names == ["mailer", "mailer"]


def test_processor_can_push_several_times(make: Make) -> None:
    received: list[bytes] = []

    def first(context: Context, task: bytes) -> None:
        context.push(task + b"1")
        context.push(task + b"2")

    bench = make(first, lambda context, task: received.append(task))
    feed(bench, "x")
    bench.settle()
    assert received == [b"x1", b"x2"]


@pytest.mark.parametrize("concurrency", [1, 5])
def test_coroutine_without_await_is_an_error(make: Make, concurrency: int) -> None:
    """A plain function returns it: its task would be completed without being processed."""

    async def work(task: bytes) -> None: ...

    bench = make(
        lambda context, task: work(task), on_error="fail", partition_concurrency=concurrency
    )
    feed(bench, "x")
    with pytest.raises(StreamsError, match="returned a coroutine"):
        bench.settle()
    assert bench.offset == 0


def test_plain_function_among_asynchronous_ones_can_return_anything(make: Make) -> None:
    async def last(context: Context, task: bytes) -> None: ...

    bench = make(lambda context, task: 5, last, on_error="fail", partition_concurrency=5)
    feed(bench, "x")
    bench.settle()
    assert bench.offset == 1


class LifecycleProcessor(TaskProcessor):
    """Records its lifecycle."""

    instances: list[LifecycleProcessor]

    def __init__(self) -> None:
        self.places: list[TopicPartition | None] = []
        self.tasks: list[bytes] = []
        self.is_closed = False
        self.instances.append(self)

    def open(self, place: TopicPartition | None) -> Any:
        self.places.append(place)

    def process(self, context: Context, task: bytes) -> Any:
        self.tasks.append(task)

    def close(self) -> Any:
        self.is_closed = True


class AsyncLifecycleProcessor(LifecycleProcessor):
    """The asynchronous version."""

    async def open(self, place: TopicPartition | None) -> None:
        super().open(place)

    async def process(self, context: Context, task: bytes) -> None:
        super().process(context, task)

    async def close(self) -> None:
        super().close()


@pytest.mark.parametrize("kind", [LifecycleProcessor, AsyncLifecycleProcessor])
@pytest.mark.parametrize("scope", [Scope.SUBSCRIPTION, Scope.PARTITION])
def test_lifetime_of_a_processor_is_that_of_its_scope(
    make: Make, kind: type[LifecycleProcessor], scope: Scope
) -> None:
    """A processor of the subscription outlives the partition."""
    kind.instances = []
    bench = make(Scoped(kind, scope), partition_concurrency=3)
    feed(bench, "x", "y", "z")
    bench.settle()
    (instance,) = kind.instances
    assert sorted(instance.tasks) == [b"x", b"y", b"z"]
    place = TopicPartition("in", 0) if scope is Scope.PARTITION else None
    assert (instance.places, instance.is_closed) == ([place], False)
    bench.close()
    assert instance.is_closed is (scope is Scope.PARTITION)
    bench.share.close()
    assert instance.is_closed


def test_units_have_their_own_processors(make: Make) -> None:
    """They are closed when the number of units changes."""
    LifecycleProcessor.instances = []
    bench = make(Scoped(LifecycleProcessor, Scope.UNIT), partition_concurrency=3)
    feed(bench, *"abcdefgh")
    bench.settle()
    assert 1 < len(LifecycleProcessor.instances) <= 3
    change(bench, partition_concurrency=1)
    before = list(LifecycleProcessor.instances)
    feed(bench, "i")
    bench.settle()
    assert all(each.is_closed for each in before)
    assert [each.tasks for each in LifecycleProcessor.instances[len(before) :]] == [[b"i"]]


# --- outcomes of tasks ----------------------------------------------------------------------------


def broken(context: Context, task: bytes) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("concurrency", [1, 5])
def test_failed_task_is_skipped(
    make: Make, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With a log message that names it."""
    bench = make(broken, partition_concurrency=concurrency)
    feed(bench, "x", "y")
    with caplog.at_level(logging.WARNING):
        bench.settle()
    assert (bench.offset, count(bench, "tasks.error")) == (2, 2)
    assert "the task of topic in, partition 0, offset 0: broken" in caplog.text


@pytest.mark.parametrize("concurrency", [1, 5])
def test_a_failed_task_ends_the_thread(make: Make, concurrency: int) -> None:
    bench = make(broken, on_error="fail", partition_concurrency=concurrency)
    feed(bench, "x")
    with pytest.raises(StreamsError) as caught:
        bench.settle()
    assert (caught.value.offset, bench.offset) == (0, 0)


@pytest.mark.parametrize("concurrency", [1, 5])
@pytest.mark.parametrize("explicit", [True, False])
def test_task_is_written_to_the_retry_topic(
    make: Make, concurrency: int, *, explicit: bool
) -> None:
    """On request or after a failure, with the number of its retries and its time."""
    work = (lambda context, task: context.retry()) if explicit else broken
    retry = Retry(backoff=5 * SECOND)
    bench = make(work, retry=retry, on_error="retry", partition_concurrency=concurrency)
    feed(bench, "x")
    bench.settle()
    (written,) = bench.outputs
    assert (written.topic, written.key, written.value) == ("in-retry", b"x", b"x")
    metadata = find_metadata(written.headers)
    assert metadata is not None
    assert (metadata.retry_count, metadata.scheduled_time_ms) == (1, bench.clock.now_ms() + 5_000)
    assert bench.offset == 1


@pytest.mark.parametrize("after", ["dead_letter", "drop", "fail"])
def test_action_after_the_last_attempt(make: Make, after: Any) -> None:
    dead = "dead" if after == "dead_letter" else None
    retry = Retry(backoff=SECOND, max_attempts=1, after_last=after, dead_letter_topic=dead)
    bench = make(broken, retry=retry, on_error="retry")
    feed(bench, "x")
    if after == "fail":
        with pytest.raises(StreamsError):
            bench.settle()
        return
    bench.settle()
    assert [(each.topic, each.value) for each in bench.outputs] == (
        [("dead", b"x")] if dead else []
    )
    assert bench.offset == 1


def test_there_is_no_retry_without_a_topic(make: Make) -> None:
    """Neither at once nor later: the task fails with the reason."""
    pending: list[Completion] = []

    def work(context: Context, task: bytes) -> None:
        with pytest.raises(IllegalStateError, match="no retry topic"):
            context.retry()
        pending.append(context.defer_completion())

    bench = make(work, on_error="fail")
    feed(bench, "x")
    bench.step()
    pending[0].retry()
    with pytest.raises(StreamsError, match="no retry topic"):
        bench.step()


def test_scheduled_task_waits_for_its_time(make: Make) -> None:
    """So does its offset. Tasks that are due continue."""
    done: list[bytes] = []
    bench = make(
        lambda context, task: done.append(task),
        topic="orders",
        retry=Retry(backoff=SECOND, topic="in"),
        partition_concurrency=3,
    )
    scheduled = DecatonMetadata(scheduled_time_ms=bench.clock.now_ms() + 1_000)
    bench.headers = tuple(with_metadata((), scheduled))
    feed(bench, "x")
    bench.step()
    bench.headers = tuple(with_metadata((), DecatonMetadata()))
    feed(bench, "y")
    bench.step()
    bench.held.end_all()
    bench.step()
    bench.commit()
    assert (done, bench.offset) == ([b"y"], 0)
    bench.clock.advance(1_000)
    bench.settle()
    assert (done, bench.offset) == ([b"y", b"x"], 2)


# --- completions ---------------------------------------------------------------------------------


class Deferring:
    """Keeps the completions of its tasks."""

    def __init__(self, **arguments: Any) -> None:
        self.pending: dict[bytes, Completion] = {}
        self._arguments = arguments

    def __call__(self, context: Context, task: bytes) -> None:
        self.pending[task] = context.defer_completion(**self._arguments)


@pytest.mark.parametrize("concurrency", [1, 5])
def test_deferred_task_holds_its_offset(make: Make, concurrency: int) -> None:
    work = Deferring()
    bench = make(work, partition_concurrency=concurrency)
    feed(bench, "x", "y")
    bench.step()
    bench.held.end_all()
    bench.step()
    work.pending[b"y"].complete()
    work.pending[b"y"].complete()
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (1, 0)
    with work.pending[b"x"]:
        pass
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (0, 2)


def test_exception_in_a_completion_block_fails_the_task(make: Make) -> None:
    work = Deferring()
    bench = make(work, on_error="fail")
    feed(bench, "x")
    bench.step()
    with pytest.raises(ValueError, match="no"), work.pending[b"x"]:
        raise ValueError("no")
    with pytest.raises(StreamsError) as caught:
        bench.step()
    assert isinstance(caught.value.__cause__, ValueError)


def test_discarded_completion_is_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """At once, with the task, its offset and its age."""
    work = Deferring()
    bench = make(work)
    feed(bench, "x")
    bench.step()
    bench.clock.advance(1_234)
    work.pending.clear()
    gc.collect()
    assert "topic in, partition 0, offset 0 was deferred 1234 ms ago" in caplog.text
    assert count(bench, "tasks.leaked") == 1
    bench.step()
    bench.commit()
    assert (bench.offset, count(bench, "tasks.error")) == (1, 1)


def test_processor_that_raises_after_deferring_leaks_nothing(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    pending: list[Completion] = []

    def work(context: Context, task: bytes) -> None:
        pending.append(context.defer_completion())
        raise ValueError(task)

    bench = make(work)
    feed(bench, "x")
    bench.settle()
    pending.clear()
    gc.collect()
    assert "garbage-collected" not in caplog.text
    assert (count(bench, "tasks.leaked"), count(bench, "tasks.error")) == (0, 1)


@pytest.mark.parametrize("answer", ["complete", "fail", None])
def test_timed_out_deferred_task_has_an_outcome(make: Make, answer: Any) -> None:
    """By default it fails."""
    on_timeout = None if answer is None else lambda completion: answer
    bench = make(Deferring(timeout=SECOND, on_timeout=on_timeout))
    feed(bench, "x")
    bench.step()
    bench.clock.advance(999)
    bench.step()
    assert bench.task.in_flight == 1
    bench.clock.advance(1)
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (0, 1)
    assert count(bench, "tasks.error") == (0 if answer == "complete" else 1)


def test_timeout_can_be_extended(make: Make) -> None:
    """Repeatedly, without counting as late. An exception of on_timeout is not an answer."""
    answers: list[Any] = ["extend", "extend", ValueError("no")]

    def on_timeout(completion: Completion) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    bench = make(Deferring(on_timeout=on_timeout), deferred_complete_timeout_ms=1_000)
    feed(bench, "x")
    bench.step()
    for left in (2, 1, 0):
        assert bench.task.in_flight == 1
        bench.clock.advance(1_000)
        bench.step()
        assert len(answers) == left
    assert (bench.task.in_flight, count(bench, "tasks.timeout")) == (0, 1)


def test_completion_after_the_loss_of_its_task_has_no_effect(make: Make) -> None:
    work = Deferring()
    bench = make(work)
    feed(bench, "x")
    bench.step()
    completion = work.pending[b"x"]
    bench.crash()
    completion.complete()
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (1, 0)


def test_task_can_only_be_deferred_once_and_not_retried_as_well(make: Make) -> None:
    errors: list[str] = []

    def work(context: Context, task: bytes) -> None:
        second: Any = context.defer_completion if task == b"a" else context.retry
        first: Any = context.retry if task == b"c" else context.defer_completion
        pending = first()
        third: Any = context.defer_completion if task == b"c" else second
        try:
            third()
        except IllegalStateError as error:
            errors.append(str(error))
        if pending is not None:
            pending.complete()

    bench = make(work, retry=Retry(backoff=SECOND))
    feed(bench, "a", "b", "c")
    bench.settle()
    assert ["already deferred" in errors[0], "call retry() of" in errors[1]] == [True, True]
    assert "cannot be deferred" in errors[2]
    assert len(bench.outputs) == 1


@pytest.mark.parametrize(
    ("ends", "outcome"),
    [
        (("complete", "complete", "complete"), "complete"),
        (("complete", "retry", "complete"), "retry"),
        (("fail", "retry", "complete"), "fail"),
        (("complete", "complete", "fail"), "fail"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 5])
def test_pushed_tasks_are_deferred_individually(
    make: Make, concurrency: int, ends: tuple[str, ...], outcome: str
) -> None:
    """Also beside the task itself, which ends with the last of them. Detects an offset that is
    committed before, and an outcome that is lost."""
    work = Deferring()

    def first(context: Context, task: bytes) -> None:
        for part in (b"1", b"2"):
            context.push(task + part)
        work(context, task)

    bench = make(first, work, retry=Retry(backoff=SECOND), partition_concurrency=concurrency)
    feed(bench, "x")
    bench.step()
    bench.held.end_all()
    bench.step()
    completions = [work.pending[part] for part in (b"x", b"x1", b"x2")]
    for completion, end in zip(completions, ends, strict=True):
        bench.step()
        bench.commit()
        assert (bench.task.in_flight, bench.offset) == (1, 0)
        completion.land(end, ValueError("no") if end == "fail" else None)
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (0, 1)
    assert (count(bench, "tasks.error"), len(bench.outputs)) == (
        int(outcome == "fail"),
        int(outcome == "retry"),
    )


def test_completed_task_can_neither_be_deferred_nor_retried(make: Make) -> None:
    pending: list[Context] = []
    work = Deferring()

    def first(context: Context, task: bytes) -> None:
        pending.append(context)
        context.push(task)

    bench = make(first, work, retry=Retry(backoff=SECOND))
    feed(bench, "x")
    bench.step()
    work.pending[b"x"].complete()
    for method in (pending[0].defer_completion, pending[0].retry):
        with pytest.raises(IllegalStateError, match="already completed"):
            method()
    bench.settle()
    assert (bench.offset, bench.outputs) == (1, [])


# --- properties ----------------------------------------------------------------------------------


def test_records_with_ignored_keys_are_completed_without_processing(make: Make) -> None:
    done: list[bytes] = []
    bench = make(lambda context, task: done.append(task), ignore_keys=("b",))
    feed(bench, "a1", "b1")
    bench.settle()
    change(bench, ignore_keys=("a",))
    feed(bench, "a2", "b2")
    bench.settle()
    assert (done, bench.offset, count(bench, "tasks.ignored")) == ([b"a1", b"b2"], 4, 2)


def test_rate_of_0_stops_tasks_and_no_rate_starts_them(make: Make) -> None:
    done: list[bytes] = []
    bench = make(lambda context, task: done.append(task), processing_rate_per_partition=0)
    feed(bench, "a", "b")
    for _ in range(3):
        bench.step()
        bench.clock.advance(10_000)
    assert done == []
    change(bench, processing_rate_per_partition=-1)
    bench.step()
    assert done == [b"a", b"b"]


def test_rate_limits_the_starts_per_second(make: Make) -> None:
    done: list[bytes] = []
    bench = make(lambda context, task: done.append(task), processing_rate_per_partition=10)
    feed(bench, *(f"{n}" for n in range(100)))
    for _ in range(50):
        bench.step()
        bench.clock.advance(100)
    assert 45 <= len(done) <= 65


def test_shaping_topic_has_its_own_rate(make: Make) -> None:
    """From its first task."""
    done: list[bytes] = []
    bench = make(
        lambda context, task: done.append(task),
        topic="orders",
        shaping="in",
        per_key_quota_processing_rate=1_000,
        shaping_topic_processing_rate_per_partition={"in": 0},
    )
    feed(bench, "a")
    bench.step()
    bench.clock.advance(10_000)
    bench.step()
    assert done == []


def test_keys_above_their_quota_go_to_the_shaping_topic(make: Make) -> None:
    """Records are unchanged, and their offsets are completed."""
    done: list[bytes] = []
    bench = make(
        lambda context, task: done.append(task), shaping="later", per_key_quota_processing_rate=1
    )
    for _ in range(40):
        feed(bench, "a", "a", "a")
        bench.settle()
        bench.clock.advance(500)
    feed(bench, "b")
    bench.settle()
    assert {each.topic for each in bench.outputs} == {"later"}
    assert {each.key for each in bench.outputs} == {b"a"}
    assert len(done) + len(bench.outputs) == bench.offset == 121
    assert done[-1] == b"b"
    assert count(bench, "shaping.queued.tasks") == len(bench.outputs)


def test_change_of_the_concurrency_waits_until_nothing_is_in_flight(make: Make) -> None:
    """In this way the tasks of a key keep their order."""
    bench = make(quiet, partition_concurrency=2)
    feed(bench, "a1", "b1")
    bench.step()
    first = [units for units, _ in bench.held.begun]
    change(bench, partition_concurrency=4)
    feed(bench, "a2")
    bench.step()
    assert [units for units, _ in bench.held.begun] == first
    bench.held.end_all()
    bench.step()
    bench.step()
    ((units, call),) = bench.held.begun
    assert units not in first
    assert call.context.offset == 2


def test_pending_records_are_bounded(make: Make) -> None:
    """Completed records behind an incomplete one count as well."""
    bench = make(quiet, partition_concurrency=10, max_pending_records=3)
    feed(bench, *"abcdefgh")
    bench.step()
    while len(bench.held.begun) > 1:
        bench.held.end(1)
    bench.step()
    assert len(bench.held.begun) == 1
    assert bench.task.processing.group.largest_pending == 3
    change(bench, partition_concurrency=10, max_pending_records=5)
    bench.step()
    assert bench.task.processing.group.largest_pending == 5
    bench.settle()
    assert bench.offset == 8

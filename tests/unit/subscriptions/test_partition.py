"""One partition of a subscription: what becomes of its tasks, and of properties that change."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tasks.apart_bench import ApartBench

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
from millstream.parallel.subscription_topology import subscription_topology
from millstream.record import TopicPartition
from millstream.serdes import LONG, Serde
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.processors import Chain
from millstream.subscriptions.tasks.extraction import TaskReader
from millstream.subscriptions.tasks.metadata import find_metadata, with_metadata

Make = Callable[..., ApartBench]
Context = ProcessingContext
SECOND = timedelta(seconds=1)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Makes the partition of a subscription with these processors."""

    def made(
        *processors: Any,
        topic: str = "in",
        retry: Retry | None = None,
        on_error: Any = "skip",
        shaping: str | None = None,
        key: Serde[Any] | None = None,
        **properties: Any,
    ) -> ApartBench:
        plan = SubscriptionPlan(
            name="mailer",
            chain=Chain.of(list(processors)),
            reader=TaskReader(None, None, legacy_parse_fallback=False),
            properties=Properties(**properties),
            retry=retry,
            on_error=on_error,
            key=key,
        )
        return ApartBench(subscription_topology(plan, topic, shaping), tmp_path)

    return made


def feed(bench: ApartBench, *tasks: str) -> None:
    """Tasks, each with its first letter as the key."""
    for task in tasks:
        bench.feed(task[:1].encode(), task.encode(), 1_000)


def change(bench: ApartBench, **properties: Any) -> None:
    known = bench.share.properties or Properties()
    bench.share.change(known.changed(**properties))


def count(bench: ApartBench, name: str) -> float:
    return sum(value for (known, _), value in bench.share.metrics.all().items() if known == name)


def quiet(context: Context, task: bytes) -> None:
    """Does nothing."""


# --- processors ----------------------------------------------------------------------------------


async def push_a(context: Context, task: bytes) -> None:
    await context.push(task + b"a")


async def push_b(context: Context, task: bytes) -> None:
    await context.push(task + b"b")


def test_each_of_a_chain_pushes_to_the_next(make: Make) -> None:
    """Also where they are asynchronous, and several at work."""
    got: list[bytes] = []

    async def last(context: Context, task: bytes) -> None:
        got.append(task)
        with pytest.raises(IllegalStateError, match="none after it"):
            context.push(task)

    bench = make(push_a, push_b, last, partition_concurrency=5)
    feed(bench, "x", "y")
    bench.settle()
    assert got == [b"xab", b"yab"]


def test_keys_are_decoded_where_a_serde_was_given(make: Make) -> None:
    """Also behind another processor and where tasks are gathered; retries keep the bytes."""
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


def test_a_key_that_cannot_be_decoded(make: Make) -> None:
    """Fails the processor that reads it, and no other."""
    done: list[bytes] = []

    def reads(context: Context, task: bytes) -> None:
        done.append(task if context.key == 7 else b"")

    def reads_not(context: Context, task: bytes) -> None:
        done.append(task)

    bench = make(reads, key=LONG)
    bench.feed(b"\xff", b"broken", 1_000)
    bench.feed((7).to_bytes(8, "big"), b"good", 1_000)
    bench.settle()
    assert done == [b"good"]
    assert count(bench, "tasks.error") == 1
    bench = make(reads_not, key=LONG)
    bench.feed(b"\xff", b"broken", 1_000)
    bench.settle()
    assert done == [b"good", b"broken"]


def test_a_context_knows_its_subscription(make: Make) -> None:
    """Also behind another processor, and where tasks were gathered."""
    names: list[str] = []

    def note(context: Context, task: bytes) -> None:
        names.append(context.subscription_id)
        if len(names) == 1:
            context.push(task)

    bench = make(note, note)
    feed(bench, "x")
    bench.settle()
    assert names == ["mailer", "mailer"]


def test_a_processor_may_push_several_times(make: Make) -> None:
    got: list[bytes] = []

    def first(context: Context, task: bytes) -> None:
        context.push(task + b"1")
        context.push(task + b"2")

    bench = make(first, lambda context, task: got.append(task))
    feed(bench, "x")
    bench.settle()
    assert got == [b"x1", b"x2"]


@pytest.mark.parametrize("concurrency", [1, 5])
def test_a_coroutine_that_nobody_awaits_is_an_error(make: Make, concurrency: int) -> None:
    """A function that does not look asynchronous gives one: its task would be done for nothing."""

    async def work(task: bytes) -> None: ...

    bench = make(
        lambda context, task: work(task), on_error="fail", partition_concurrency=concurrency
    )
    feed(bench, "x")
    with pytest.raises(StreamsError, match="gave a coroutine"):
        bench.settle()
    assert bench.offset == 0


def test_a_plain_function_among_asynchronous_ones_may_return_anything(make: Make) -> None:
    async def last(context: Context, task: bytes) -> None: ...

    bench = make(lambda context, task: 5, last, on_error="fail", partition_concurrency=5)
    feed(bench, "x")
    bench.settle()
    assert bench.offset == 1


class Lived(TaskProcessor):
    """Notes its life."""

    lives: list[Lived]

    def __init__(self) -> None:
        self.places: list[TopicPartition | None] = []
        self.tasks: list[bytes] = []
        self.is_closed = False
        self.lives.append(self)

    def open(self, place: TopicPartition | None) -> Any:
        self.places.append(place)

    def process(self, context: Context, task: bytes) -> Any:
        self.tasks.append(task)

    def close(self) -> Any:
        self.is_closed = True


class LivedAsync(Lived):
    """The same, asynchronously."""

    async def open(self, place: TopicPartition | None) -> None:
        super().open(place)

    async def process(self, context: Context, task: bytes) -> None:
        super().process(context, task)

    async def close(self) -> None:
        super().close()


@pytest.mark.parametrize("kind", [Lived, LivedAsync])
@pytest.mark.parametrize("scope", [Scope.SUBSCRIPTION, Scope.PARTITION])
def test_a_processor_lives_as_long_as_its_scope(
    make: Make, kind: type[Lived], scope: Scope
) -> None:
    """One of the subscription outlives the partition."""
    kind.lives = []
    bench = make(Scoped(kind, scope), partition_concurrency=3)
    feed(bench, "x", "y", "z")
    bench.settle()
    (one,) = kind.lives
    assert sorted(one.tasks) == [b"x", b"y", b"z"]
    place = TopicPartition("in", 0) if scope is Scope.PARTITION else None
    assert (one.places, one.is_closed) == ([place], False)
    bench.close()
    assert one.is_closed is (scope is Scope.PARTITION)
    bench.share.close()
    assert one.is_closed


def test_units_have_processors_of_their_own(make: Make) -> None:
    """Which are closed when there is another number of units."""
    Lived.lives = []
    bench = make(Scoped(Lived, Scope.UNIT), partition_concurrency=3)
    feed(bench, *"abcdefgh")
    bench.settle()
    assert 1 < len(Lived.lives) <= 3
    change(bench, partition_concurrency=1)
    before = list(Lived.lives)
    feed(bench, "i")
    bench.settle()
    assert all(each.is_closed for each in before)
    assert [each.tasks for each in Lived.lives[len(before) :]] == [[b"i"]]


# --- what becomes of a task ----------------------------------------------------------------------


def broken(context: Context, task: bytes) -> None:
    raise ValueError("broken")


@pytest.mark.parametrize("concurrency", [1, 5])
def test_a_failed_task_is_left_out(
    make: Make, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    """With a line in the log that names it."""
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
@pytest.mark.parametrize("asks", [True, False])
def test_a_task_goes_to_the_retry_topic(make: Make, concurrency: int, *, asks: bool) -> None:
    """Because it asks for it or fails; with the count of its retries and when it is due."""
    work = (lambda context, task: context.retry()) if asks else broken
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
def test_after_the_last_attempt_comes_what_was_chosen(make: Make, after: Any) -> None:
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
    """Neither at once nor later: the task fails and says why."""
    kept: list[Completion] = []

    def work(context: Context, task: bytes) -> None:
        with pytest.raises(IllegalStateError, match="no retry topic"):
            context.retry()
        kept.append(context.defer_completion())

    bench = make(work, on_error="fail")
    feed(bench, "x")
    bench.step()
    kept[0].retry()
    with pytest.raises(StreamsError, match="no retry topic"):
        bench.step()


def test_a_scheduled_task_waits_for_its_time(make: Make) -> None:
    """And the offset for it; tasks that are due go on."""
    done: list[bytes] = []
    bench = make(
        lambda context, task: done.append(task),
        topic="orders",
        retry=Retry(backoff=SECOND, topic="in"),
        partition_concurrency=3,
    )
    later = DecatonMetadata(scheduled_time_ms=bench.clock.now_ms() + 1_000)
    bench.headers = tuple(with_metadata((), later))
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
        self.kept: dict[bytes, Completion] = {}
        self._arguments = arguments

    def __call__(self, context: Context, task: bytes) -> None:
        self.kept[task] = context.defer_completion(**self._arguments)


@pytest.mark.parametrize("concurrency", [1, 5])
def test_a_deferred_task_keeps_its_offset(make: Make, concurrency: int) -> None:
    work = Deferring()
    bench = make(work, partition_concurrency=concurrency)
    feed(bench, "x", "y")
    bench.step()
    bench.held.end_all()
    bench.step()
    work.kept[b"y"].complete()
    work.kept[b"y"].complete()
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (1, 0)
    with work.kept[b"x"]:
        pass
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (0, 2)


def test_what_is_raised_in_the_block_fails_the_task(make: Make) -> None:
    work = Deferring()
    bench = make(work, on_error="fail")
    feed(bench, "x")
    bench.step()
    with pytest.raises(ValueError, match="no"), work.kept[b"x"]:
        raise ValueError("no")
    with pytest.raises(StreamsError) as caught:
        bench.step()
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_completion_that_is_thrown_away_is_named(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """At once: with the task, its offset and its age."""
    work = Deferring()
    bench = make(work)
    feed(bench, "x")
    bench.step()
    bench.clock.advance(1_234)
    work.kept.clear()
    gc.collect()
    assert "topic in, partition 0, offset 0 was deferred 1234 ms ago" in caplog.text
    assert count(bench, "tasks.leaked") == 1
    bench.step()
    bench.commit()
    assert (bench.offset, count(bench, "tasks.error")) == (1, 1)


def test_a_processor_that_raises_after_it_deferred_leaks_nothing(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Completion] = []

    def work(context: Context, task: bytes) -> None:
        kept.append(context.defer_completion())
        raise ValueError(task)

    bench = make(work)
    feed(bench, "x")
    bench.settle()
    kept.clear()
    gc.collect()
    assert "thrown away" not in caplog.text
    assert (count(bench, "tasks.leaked"), count(bench, "tasks.error")) == (0, 1)


@pytest.mark.parametrize("answer", ["complete", "fail", None])
def test_a_task_that_is_deferred_for_too_long_gets_an_answer(make: Make, answer: Any) -> None:
    """By default it fails."""
    asked = None if answer is None else lambda completion: answer
    bench = make(Deferring(timeout=SECOND, on_timeout=asked))
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


def test_more_time_can_be_asked_for(make: Make) -> None:
    """As often as it takes, without counting as late; and what on_timeout raises is no answer."""
    answers: list[Any] = ["extend", "extend", ValueError("no")]

    def asked(completion: Completion) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    bench = make(Deferring(on_timeout=asked), deferred_complete_timeout_ms=1_000)
    feed(bench, "x")
    bench.step()
    for left in (2, 1, 0):
        assert bench.task.in_flight == 1
        bench.clock.advance(1_000)
        bench.step()
        assert len(answers) == left
    assert (bench.task.in_flight, count(bench, "tasks.timeout")) == (0, 1)


def test_nobody_hears_of_a_completion_after_its_task_is_lost(make: Make) -> None:
    work = Deferring()
    bench = make(work)
    feed(bench, "x")
    bench.step()
    late = work.kept[b"x"]
    bench.crash()
    late.complete()
    bench.step()
    bench.commit()
    assert (bench.task.in_flight, bench.offset) == (1, 0)


def test_a_task_is_deferred_once_and_not_retried_as_well(make: Make) -> None:
    errors: list[str] = []

    def work(context: Context, task: bytes) -> None:
        second: Any = context.defer_completion if task == b"a" else context.retry
        first: Any = context.retry if task == b"c" else context.defer_completion
        kept = first()
        third: Any = context.defer_completion if task == b"c" else second
        try:
            third()
        except IllegalStateError as error:
            errors.append(str(error))
        if kept is not None:
            kept.complete()

    bench = make(work, retry=Retry(backoff=SECOND))
    feed(bench, "a", "b", "c")
    bench.settle()
    assert ["deferred before" in errors[0], "call retry() of" in errors[1]] == [True, True]
    assert "nothing is left to defer" in errors[2]
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
def test_what_was_pushed_is_deferred_one_by_one(
    make: Make, concurrency: int, ends: tuple[str, ...], outcome: str
) -> None:
    """Also beside the task itself, which ends with the last of them: hunts for an offset that is
    committed before, and for an end that gets lost."""
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
    completions = [work.kept[part] for part in (b"x", b"x1", b"x2")]
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


def test_a_task_that_has_ended_is_neither_deferred_nor_retried(make: Make) -> None:
    kept: list[Context] = []
    work = Deferring()

    def first(context: Context, task: bytes) -> None:
        kept.append(context)
        context.push(task)

    bench = make(first, work, retry=Retry(backoff=SECOND))
    feed(bench, "x")
    bench.step()
    work.kept[b"x"].complete()
    for late in (kept[0].defer_completion, kept[0].retry):
        with pytest.raises(IllegalStateError, match="has ended"):
            late()
    bench.settle()
    assert (bench.offset, bench.outputs) == (1, [])


# --- properties ----------------------------------------------------------------------------------


def test_records_with_ignored_keys_are_done_without_being_processed(make: Make) -> None:
    done: list[bytes] = []
    bench = make(lambda context, task: done.append(task), ignore_keys=("b",))
    feed(bench, "a1", "b1")
    bench.settle()
    change(bench, ignore_keys=("a",))
    feed(bench, "a2", "b2")
    bench.settle()
    assert (done, bench.offset, count(bench, "tasks.ignored")) == ([b"a1", b"b2"], 4, 2)


def test_a_rate_of_0_stops_and_none_frees(make: Make) -> None:
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


def test_a_rate_lets_as_many_begin_in_a_second(make: Make) -> None:
    done: list[bytes] = []
    bench = make(lambda context, task: done.append(task), processing_rate_per_partition=10)
    feed(bench, *(f"{n}" for n in range(100)))
    for _ in range(50):
        bench.step()
        bench.clock.advance(100)
    assert 45 <= len(done) <= 65


def test_a_shaping_topic_has_its_own_rate(make: Make) -> None:
    """From its first task on."""
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
    """As they were; their offsets are done."""
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


def test_another_concurrency_waits_until_nothing_is_in_flight(make: Make) -> None:
    """So that the tasks of a key stay one behind the other."""
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
    """Those that are done behind one that is not count as well."""
    bench = make(quiet, partition_concurrency=10, max_pending_records=3)
    feed(bench, *"abcdefgh")
    bench.step()
    while len(bench.held.begun) > 1:
        bench.held.end(1)
    bench.step()
    assert len(bench.held.begun) == 1
    assert bench.task.processing.group.most_pending == 3
    change(bench, partition_concurrency=10, max_pending_records=5)
    bench.step()
    assert bench.task.processing.group.most_pending == 5
    bench.settle()
    assert bench.offset == 8

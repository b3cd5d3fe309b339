"""Tasks that were taken and may not begin yet: for their time, for their key's, or for the rate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.apart_bench import ApartBench
from support.tasks.subscribed_task import SubscribedTask
from support.waiting import wait_for

from millstream.clock import ManualClock, SystemClock
from millstream.operators.apart.subscription.waiting import Waiting
from millstream.parallel import (
    DecatonMetadata,
    ProcessingContext,
    Properties,
    Retry,
    Scope,
    Scoped,
    TaskProcessor,
)
from millstream.parallel.subscription_topology import subscription_topology
from millstream.runtime.loop.commits import Commits
from millstream.runtime.loop.patience import Patience
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.processors import Chain
from millstream.subscriptions.tasks.extraction import TaskReader
from millstream.subscriptions.tasks.metadata import with_metadata

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000
CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 3])


class Partition:
    """A partition of a subscription above held calls, and the tasks that it has processed.

    Args:
        folder: for state.
        topic: of the subscription: `in` is the one that is read.
        processor: of tasks, beside noting them.
        properties: of the subscription.
    """

    def __init__(
        self,
        folder: Path,
        *,
        topic: str = "in",
        retry: Retry | None = None,
        shaping: str | None = None,
        processor: Callable[[ProcessingContext, bytes], Any] | None = None,
        **properties: Any,
    ) -> None:
        self.done: list[str] = []
        self._processor = processor
        plan = SubscriptionPlan(
            name="sub",
            chain=Chain.of(self._work),
            reader=TaskReader(None, None, legacy_parse_fallback=False),
            properties=Properties(**properties),
            retry=retry,
            on_error="skip",
        )
        self.bench = ApartBench(subscription_topology(plan, topic, shaping), folder)
        self.clock, self.held = self.bench.clock, self.bench.held

    def _work(self, context: ProcessingContext, task: bytes) -> Any:
        self.done.append(task.decode())
        return None if self._processor is None else self._processor(context, task)

    def feed(self, *tasks: str, delay_ms: int = 0, key: str | None = None) -> None:
        """Tasks, each with its first letter as the key unless one is given."""
        due_ms = self.clock.now_ms() + delay_ms if delay_ms else 0
        metadata = DecatonMetadata(timestamp_ms=1_000, scheduled_time_ms=due_ms)
        self.bench.headers = tuple(with_metadata((), metadata))
        for task in tasks:
            self.bench.feed((key or task[:1]).encode(), task.encode(), 1_000)

    def go(self, rounds: int = 5) -> list[str]:
        """Let the loop come round some times, with all calls ending at once; what was done since
        the last time."""
        before = len(self.done)
        for _ in range(rounds):
            self.bench.step()
            self.held.end_all()
        self.bench.step()
        return self.done[before:]

    def change(self, **properties: Any) -> None:
        known = self.bench.share.properties or Properties()
        self.bench.share.change(known.changed(**properties))

    def counted(self, name: str) -> float:
        found = self.bench.share.metrics.all().items()
        return sum(value for (known, _), value in found if known == name)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Partition]]:
    made: list[Partition] = []

    def partition(**options: Any) -> Partition:
        made.append(Partition(tmp_path, **options))
        return made[-1]

    yield partition
    for each in made:
        each.bench.close()


Make = Callable[..., Partition]


# --- schedule and order --------------------------------------------------------------------------


@CONCURRENCIES
def test_tasks_of_a_key_wait_behind_one_that_is_scheduled(make: Make, concurrency: int) -> None:
    """Those of the batch as those that come later; other keys go on."""
    sub = make(partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2", "b1")
    assert sub.go() == ["b1"]
    sub.feed("a3", "b2")
    assert sub.go() == ["b2"]
    sub.clock.advance(999)
    assert sub.go() == []
    sub.clock.advance(1)
    assert sub.go() == ["a1", "a2", "a3"]
    sub.feed("a4")
    assert sub.go() == ["a4"], "nothing waits any more"
    sub.bench.commit()
    assert sub.bench.offset == 6


@CONCURRENCIES
def test_scheduled_tasks_of_a_key_begin_in_the_order_of_their_offsets(
    make: Make, concurrency: int
) -> None:
    """Not by their times: and each not before its own."""
    sub = make(partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=2_000)
    sub.feed("a2", delay_ms=1_000)
    sub.feed("a3", delay_ms=3_000)
    sub.feed("a4")
    sub.clock.advance(1_000)
    assert sub.go() == []
    sub.clock.advance(1_000)
    assert sub.go() == ["a1", "a2"]
    sub.clock.advance(1_000)
    assert sub.go() == ["a3", "a4"]


@CONCURRENCIES
@pytest.mark.parametrize("outcome", ["retried", "dead"])
def test_what_is_written_of_tasks_of_a_key_keeps_their_order(
    make: Make, concurrency: int, outcome: str
) -> None:
    """One whose time has come, and the next one, which was just taken."""

    def ask(context: ProcessingContext, task: bytes) -> None:
        context.retry()

    policy: dict[str, Any] = {}
    if outcome == "dead":
        policy = {"max_attempts": 1, "dead_letter_topic": "dead"}
    retry = Retry(backoff=HOUR, topic="retried", **policy)
    sub = make(partition_concurrency=concurrency, retry=retry, processor=ask)
    sub.feed("a1", delay_ms=1_000)
    assert sub.go() == []
    sub.clock.advance(1_000)
    sub.feed("a2")
    assert sub.go() == ["a1", "a2"]
    written = [(each.topic, each.value) for each in sub.bench.outputs]
    assert written == [(outcome, b"a1"), (outcome, b"a2")]
    sub.bench.settle()
    assert (sub.bench.offset, sub.bench.task.in_flight) == (2, 0)
    assert sub.counted("tasks.processed") == 2


@CONCURRENCIES
def test_records_without_a_key_wait_for_none(make: Make, concurrency: int) -> None:
    sub = make(partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.bench.log[0] = (None, *sub.bench.log[0][1:])
    sub.bench.headers = ()
    sub.bench.feed(None, b"a2", 1_000)
    assert sub.go() == ["a2"]


@CONCURRENCIES
def test_the_retry_topic_lets_later_tasks_pass(make: Make, concurrency: int) -> None:
    retry = Retry(backoff=HOUR, topic="in")
    sub = make(topic="orders", retry=retry, partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2")
    assert sub.go() == ["a2"]
    sub.clock.advance(1_000)
    assert sub.go() == ["a1"]


@CONCURRENCIES
def test_a_shaping_topic_keeps_the_order(make: Make, concurrency: int) -> None:
    sub = make(topic="orders", shaping="in", partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2")
    assert sub.go() == []
    sub.clock.advance(1_000)
    assert sub.go() == ["a1", "a2"]


@CONCURRENCIES
def test_what_waits_is_pending(make: Make, concurrency: int) -> None:
    """So that memory is bounded: the partition is paused."""
    sub = make(partition_concurrency=concurrency, max_pending_records=3)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2", "a3", "a4", "b1")
    assert sub.go() == []
    assert sub.bench.task.in_flight == 3
    assert sub.counted("tasks.pending") == 3
    sub.clock.advance(1_000)
    assert sub.go() == ["a1", "a2", "a3", "a4", "b1"]


def test_another_concurrency_does_not_wait_for_what_has_not_begun(make: Make) -> None:
    """Or a task for the next hour would stop its partition until then."""
    sub = make(partition_concurrency=3)
    sub.feed("a1", delay_ms=HOUR_MS)
    sub.feed("a2", "b1")
    assert sub.go() == ["b1"]
    sub.change(partition_concurrency=1)
    sub.feed("b2", "a3")
    assert sub.go() == ["b2"]
    sub.change(partition_concurrency=2)
    sub.clock.advance(HOUR_MS)
    assert sub.go() == ["a1", "a2", "a3"]


# --- rate ----------------------------------------------------------------------------------------


def test_a_rate_of_0_holds_what_was_taken_and_has_not_begun(make: Make) -> None:
    """On threads that were at work: those two go on, the other 48 wait, and go on in order."""
    sub = make(partition_concurrency=2)
    sub.feed(*(f"{chr(97 + n % 7)}{n}" for n in range(50)))
    sub.bench.step()
    sub.held.end(0)
    sub.change(processing_rate_per_partition=0)
    assert len(sub.go()) == 0
    assert len(sub.done) == 1, "one that was begun before the change came to its end"
    sub.clock.advance(10_000)
    assert sub.go() == []
    sub.change(processing_rate_per_partition=-1)
    sub.go()
    assert sorted(sub.done, key=lambda task: int(task[1:])) == [
        f"{chr(97 + n % 7)}{n}" for n in range(50)
    ]
    for key in "abcdefg":
        mine = [int(task[1:]) for task in sub.done if task.startswith(key)]
        assert mine == sorted(mine)


@pytest.mark.parametrize("is_async", [False, True])
def test_real_units_give_back_what_they_have_not_begun(*, is_async: bool) -> None:
    """Hunts for tasks that begin at a rate of 0 since a thread or the event loop had them."""
    begun: list[str] = []
    gate = threading.Event()

    def work(context: ProcessingContext, task: str) -> None:
        begun.append(task)
        assert gate.wait(10)

    async def work_async(context: ProcessingContext, task: str) -> None:
        begun.append(task)
        await asyncio.to_thread(gate.wait, 10)

    with SubscribedTask(work_async if is_async else work, concurrency=2) as sub:
        sub.feed(*(str(n) for n in range(50)))
        sub.step()
        wait_for(lambda: len(begun) == 2, 10, "two have begun")
        sub.share.change(Properties(partition_concurrency=2, processing_rate_per_partition=0))
        sub.step()
        gate.set()
        sub.until(lambda: not sub.task.may_land, "all came back")
        sub.step()
        assert len(begun) == 2
        assert sub.task.in_flight == 48
        sub.share.change(Properties(partition_concurrency=2))
        sub.until(lambda: sub.committable == 50, "all are done")
        assert sorted(begun, key=int) == [str(n) for n in range(50)]


@CONCURRENCIES
def test_the_rate_counts_where_tasks_begin(make: Make, concurrency: int) -> None:
    """300 tasks that are due at the same instant, as after a mass of failures."""
    sub = make(partition_concurrency=concurrency, processing_rate_per_partition=10)
    sub.feed(*(f"{n}" for n in range(300)), delay_ms=5_000)
    sub.bench.step()
    sub.clock.advance(5_000)
    assert len(sub.go()) <= 11, "no more than a second's worth, and one"
    begun = len(sub.done)
    for _ in range(10):
        sub.clock.advance(100)
        sub.go()
    assert 9 <= len(sub.done) - begun <= 11


def test_a_stall_does_not_save_up_tasks(make: Make) -> None:
    """Threads that were stuck for a minute: what came meanwhile begins by the rate all the same."""
    sub = make(partition_concurrency=2, processing_rate_per_partition=10)
    sub.feed(*(f"{chr(97 + n % 20)}{n}" for n in range(200)))
    for _ in range(600):
        sub.bench.step()
        sub.clock.advance(100)
    assert len(sub.held.begun) <= 2
    assert len(sub.go(50)) <= 2 + 12


def test_a_task_whose_unit_is_at_work_holds_up_no_other(make: Make) -> None:
    """With a rate: the second one of a key does not take the place of another key's."""
    sub = make(partition_concurrency=3, processing_rate_per_partition=1_000)
    sub.feed("a1", "a2", "a3", "b1", "c1", "d1", "e1")
    for _ in range(100):
        sub.bench.step()
        sub.clock.advance(10)
    running = [call.context.task.decode() for _, call in sub.held.begun]
    assert running[0] == "a1"
    assert len(running) > 1
    assert "a2" not in running
    sub.clock.advance(1_000)
    sub.go(20)
    assert [task for task in sub.done if task[0] == "a"] == ["a1", "a2", "a3"]
    assert len(sub.done) == 7


@CONCURRENCIES
def test_only_tasks_cost_a_permit(make: Make, concurrency: int) -> None:
    """Not those that are ignored, shaped or hold no task."""
    sub = make(
        partition_concurrency=concurrency, processing_rate_per_partition=1, ignore_keys=("i",)
    )
    sub.feed(*(f"i{n}" for n in range(100)))
    sub.bench.feed(b"x", None, 1_000)
    sub.feed("good")
    sub.clock.advance(1)
    assert sub.go() == ["good"]
    assert sub.counted("tasks.ignored") == 100
    assert sub.counted("tasks.discarded") == 1


@CONCURRENCIES
def test_a_rate_that_ends_lets_all_begin_in_order(make: Make, concurrency: int) -> None:
    sub = make(partition_concurrency=concurrency, processing_rate_per_partition=1)
    sub.feed(*(f"a{n}" for n in range(9)), *(f"b{n}" for n in range(9)))
    sub.go()
    sub.feed("a9")
    sub.change(processing_rate_per_partition=-1)
    sub.go(10)
    assert [task for task in sub.done if task[0] == "a"] == [f"a{n}" for n in range(10)]
    assert len(sub.done) == 19


def test_within_the_loop_others_have_their_turn() -> None:
    """Slow tasks that have waited are processed for a moment at a time: hunts for a loop that does
    not come round for all of them."""
    clock = ManualClock(1_000)
    rounds: list[int] = []
    done: list[str] = []

    def work(context: ProcessingContext, task: str) -> None:
        SystemClock().sleep_ms(30)
        done.append(task)

    with SubscribedTask(work, clock=clock) as sub:
        due = with_metadata((), DecatonMetadata(scheduled_time_ms=2_000))
        sub.feed(*(str(n) for n in range(20)), headers=tuple(due))
        sub.step()
        clock.advance(1_000)
        while len(done) < 20:
            before = len(done)
            sub.step()
            rounds.append(len(done) - before)
            assert len(rounds) < 50
        assert max(rounds) < 15
        assert sub.drain()
        assert sub.committable == 20


# --- giving up -----------------------------------------------------------------------------------


class Publication:
    """Where nothing is committed. It is `Publication`."""

    all_or_nothing = False
    is_open = False


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("rate", [-1, 0])
def test_what_has_not_begun_is_given_up_at_once(concurrency: int, rate: int) -> None:
    """A task for the next hour, or one that a rate of 0 holds, makes no rebalance wait."""
    clock = SystemClock()
    waits: list[None] = []
    publication: Any = Publication()
    commits = Commits(publication, publication, clock, lambda: waits.append(None))
    commits.when_given_up = Patience(60_000, None)
    due_ms = clock.now_ms() + HOUR_MS if rate < 0 else 0
    headers = tuple(with_metadata((), DecatonMetadata(scheduled_time_ms=due_ms)))
    done: list[str] = []
    with SubscribedTask(lambda context, task: done.append(task), concurrency=concurrency) as sub:
        if rate == 0:
            slow = Properties(partition_concurrency=concurrency, processing_rate_per_partition=1)
            sub.share.change(slow)
        sub.feed("one", "two", "three", headers=headers, key="key")
        sub.until(lambda: sub.task.in_flight >= 2, "they wait")
        if rate == 0:
            stopped = slow.changed(processing_rate_per_partition=0)
            sub.share.change(stopped)
            sub.until(lambda: sub.counted("partition.paused") == 1, "the rate is 0")
        begun, started_ms = len(done), clock.monotonic_ms()
        tasks: Any = [sub.task]
        commits.drain(tasks)
        assert clock.monotonic_ms() - started_ms < 5_000
        assert len(done) == begun
        assert sub.committable == begun


def test_what_runs_is_still_waited_for() -> None:
    gate = threading.Event()
    with SubscribedTask(lambda context, task: gate.wait(10), concurrency=3) as sub:
        due = DecatonMetadata(scheduled_time_ms=SystemClock().now_ms() + HOUR_MS)
        sub.feed("one")
        sub.feed("two", headers=tuple(with_metadata((), due)))
        sub.until(lambda: sub.task.in_flight == 2, "one runs, one waits")
        assert sub.task.may_land
        assert not sub.drain(20)
        threading.Timer(0.05, gate.set).start()
        assert not sub.drain(10_000)
        assert sub.committable == 1
        assert not sub.task.may_land


# --- units ---------------------------------------------------------------------------------------


class Alone(TaskProcessor):
    """Notices whether anybody else calls it meanwhile."""

    made = 0
    at_once: list[int]

    def __init__(self) -> None:
        type(self).made += 1
        self._inside = 0

    def process(self, context: ProcessingContext, task: str) -> None:
        self._inside += 1
        self.at_once.append(self._inside)
        SystemClock().sleep_ms(5)
        self._inside -= 1


def test_a_unit_has_a_processor_of_its_own_for_records_without_a_key() -> None:
    """Which nobody else calls meanwhile."""
    Alone.made, Alone.at_once = 0, []
    with SubscribedTask(Scoped(Alone, Scope.UNIT), concurrency=4) as sub:
        sub.feed_keyless(*(str(n) for n in range(40)))
        sub.step()
        assert sub.drain()
    assert Alone.made == 4
    assert Alone.at_once == [1] * 40


def test_what_is_handed_back_in_parts_keeps_its_order() -> None:
    """The calls of a unit end one after the other, and the loop may look in between."""
    waiting = Waiting(ManualClock(0), Mock(is_limited=False), keeps_order=True)
    calls = [Mock(context=Mock(offset=offset, key=b"k")) for offset in range(4)]
    waiting.put_back(calls[1:2])
    waiting.put_back([calls[0], *calls[2:]])
    assert waiting.take(None, lambda key: key) == calls
    assert len(waiting) == 0

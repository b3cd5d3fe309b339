"""Tasks that wait for their time, for other tasks of their key, or for the rate."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.concurrent_bench import ConcurrentBench
from support.tasks.subscribed_task import SubscribedTask
from support.waiting import wait_for

from millstream.clock import ManualClock, SystemClock
from millstream.parallel import (
    DecatonMetadata,
    ProcessingContext,
    Properties,
    Retry,
    Scope,
    Scoped,
    TaskProcessor,
)
from millstream.runtime.loop.commits import DrainTimeouts, TaskCommitter
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.operator.queued_tasks import QueuedTasks
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.tasks.decaton_metadata import with_metadata
from millstream.subscriptions.tasks.task_extraction import TaskReader

HOUR = timedelta(hours=1)
HOUR_MS = 3_600_000
CONCURRENCIES = pytest.mark.parametrize("concurrency", [1, 3])


class Partition:
    """A partition of a subscription whose calls the test ends, and the tasks that it has processed.

    Args:
        folder: the state directory.
        topic: the topic of the subscription; `in` is the topic that is read.
        processor: processes tasks, after they were recorded.
        properties: the properties of the subscription.
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
            chain=ProcessorChain.of(self._work),
            reader=TaskReader(None, None, legacy_parse_fallback=False),
            properties=Properties(**properties),
            retry=retry,
            on_error="skip",
        )
        self.bench = ConcurrentBench(subscription_topology(plan, topic, shaping), folder)
        self.clock, self.held = self.bench.clock, self.bench.held

    def _work(self, context: ProcessingContext, task: bytes) -> Any:
        self.done.append(task.decode())
        return None if self._processor is None else self._processor(context, task)

    def feed(self, *tasks: str, delay_ms: int = 0, key: str | None = None) -> None:
        """Feed tasks, each with its first letter as the key unless there is another one."""
        due_ms = self.clock.now_ms() + delay_ms if delay_ms else 0
        metadata = DecatonMetadata(timestamp_ms=1_000, scheduled_time_ms=due_ms)
        self.bench.headers = tuple(with_metadata((), metadata))
        for task in tasks:
            self.bench.feed((key or task[:1]).encode(), task.encode(), 1_000)

    def run(self, rounds: int = 5) -> list[str]:
        """Run the loop some times, with all calls ending at once, and return the tasks done
        since."""
        before = len(self.done)
        for _ in range(rounds):
            self.bench.step()
            self.held.end_all()
        self.bench.step()
        return self.done[before:]

    def change(self, **properties: Any) -> None:
        current = self.bench.share.properties or Properties()
        self.bench.share.change(current.changed(**properties))

    def counted(self, name: str) -> float:
        found = self.bench.share.metrics.all().items()
        return sum(value for (metric, _), value in found if metric == name)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Partition]]:
    instances: list[Partition] = []

    def partition(**options: Any) -> Partition:
        instances.append(Partition(tmp_path, **options))
        return instances[-1]

    yield partition
    for each in instances:
        each.bench.close()


Make = Callable[..., Partition]


# --- schedule and order --------------------------------------------------------------------------


@CONCURRENCIES
def test_tasks_of_a_key_wait_behind_a_scheduled_task(make: Make, concurrency: int) -> None:
    """Those of the same batch and later ones; other keys continue."""
    sub = make(partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2", "b1")
    assert sub.run() == ["b1"]
    sub.feed("a3", "b2")
    assert sub.run() == ["b2"]
    sub.clock.advance(999)
    assert sub.run() == []
    sub.clock.advance(1)
    assert sub.run() == ["a1", "a2", "a3"]
    sub.feed("a4")
    assert sub.run() == ["a4"], "nothing waits anymore"
    sub.bench.commit()
    assert sub.bench.offset == 6


@CONCURRENCIES
def test_scheduled_tasks_of_a_key_start_in_the_order_of_their_offsets(
    make: Make, concurrency: int
) -> None:
    """Not in the order of their times, but each not before its own."""
    sub = make(partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=2_000)
    sub.feed("a2", delay_ms=1_000)
    sub.feed("a3", delay_ms=3_000)
    sub.feed("a4")
    sub.clock.advance(1_000)
    assert sub.run() == []
    sub.clock.advance(1_000)
    assert sub.run() == ["a1", "a2"]
    sub.clock.advance(1_000)
    assert sub.run() == ["a3", "a4"]


@CONCURRENCIES
@pytest.mark.parametrize("outcome", ["retried", "dead"])
def test_output_for_tasks_of_a_key_keeps_their_order(
    make: Make, concurrency: int, outcome: str
) -> None:
    """For a task whose time has come, and the next one, which was just taken."""

    def request_retry(context: ProcessingContext, task: bytes) -> None:
        context.retry()

    policy: dict[str, Any] = {}
    if outcome == "dead":
        policy = {"max_attempts": 1, "dead_letter_topic": "dead"}
    retry = Retry(backoff=HOUR, topic="retried", **policy)
    sub = make(partition_concurrency=concurrency, retry=retry, processor=request_retry)
    sub.feed("a1", delay_ms=1_000)
    assert sub.run() == []
    sub.clock.advance(1_000)
    sub.feed("a2")
    assert sub.run() == ["a1", "a2"]
    written = [(each.topic, each.value) for each in sub.bench.outputs]
    assert written == [(outcome, b"a1"), (outcome, b"a2")]
    sub.bench.settle()
    assert (sub.bench.offset, sub.bench.task.in_flight) == (2, 0)
    assert sub.counted("tasks.processed") == 2


@CONCURRENCIES
def test_records_without_a_key_do_not_wait(make: Make, concurrency: int) -> None:
    sub = make(partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.bench.log[0] = (None, *sub.bench.log[0][1:])
    sub.bench.headers = ()
    sub.bench.feed(None, b"a2", 1_000)
    assert sub.run() == ["a2"]


@CONCURRENCIES
def test_retry_topic_lets_later_tasks_pass(make: Make, concurrency: int) -> None:
    retry = Retry(backoff=HOUR, topic="in")
    sub = make(topic="orders", retry=retry, partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2")
    assert sub.run() == ["a2"]
    sub.clock.advance(1_000)
    assert sub.run() == ["a1"]


@CONCURRENCIES
def test_a_shaping_topic_keeps_the_order(make: Make, concurrency: int) -> None:
    sub = make(topic="orders", shaping="in", partition_concurrency=concurrency)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2")
    assert sub.run() == []
    sub.clock.advance(1_000)
    assert sub.run() == ["a1", "a2"]


@CONCURRENCIES
def test_waiting_tasks_are_pending(make: Make, concurrency: int) -> None:
    """Memory is bounded, since the partition is paused."""
    sub = make(partition_concurrency=concurrency, max_pending_records=3)
    sub.feed("a1", delay_ms=1_000)
    sub.feed("a2", "a3", "a4", "b1")
    assert sub.run() == []
    assert sub.bench.task.in_flight == 3
    assert sub.counted("tasks.pending") == 3
    sub.clock.advance(1_000)
    assert sub.run() == ["a1", "a2", "a3", "a4", "b1"]


def test_change_of_the_concurrency_does_not_wait_for_tasks_that_have_not_started(
    make: Make,
) -> None:
    """Otherwise a task that is scheduled in an hour would stop its partition until then."""
    sub = make(partition_concurrency=3)
    sub.feed("a1", delay_ms=HOUR_MS)
    sub.feed("a2", "b1")
    assert sub.run() == ["b1"]
    sub.change(partition_concurrency=1)
    sub.feed("b2", "a3")
    assert sub.run() == ["b2"]
    sub.change(partition_concurrency=2)
    sub.clock.advance(HOUR_MS)
    assert sub.run() == ["a1", "a2", "a3"]


# --- rate ----------------------------------------------------------------------------------------


def test_rate_of_0_holds_tasks_that_have_not_started(make: Make) -> None:
    """Two tasks run on threads and finish; the other 48 wait, and continue later in order."""
    sub = make(partition_concurrency=2)
    sub.feed(*(f"{chr(97 + n % 7)}{n}" for n in range(50)))
    sub.bench.step()
    sub.held.end(0)
    sub.change(processing_rate_per_partition=0)
    assert len(sub.run()) == 0
    assert len(sub.done) == 1, "a task that had started before the change has ended"
    sub.clock.advance(10_000)
    assert sub.run() == []
    sub.change(processing_rate_per_partition=-1)
    sub.run()
    assert sorted(sub.done, key=lambda task: int(task[1:])) == [
        f"{chr(97 + n % 7)}{n}" for n in range(50)
    ]
    for key in "abcdefg":
        numbers = [int(task[1:]) for task in sub.done if task.startswith(key)]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("is_async", [False, True])
def test_real_runners_return_tasks_that_have_not_started(*, is_async: bool) -> None:
    """Detects tasks that start at a rate of 0 because a thread or the event loop already had
    them."""
    started: list[str] = []
    gate = threading.Event()

    def work(context: ProcessingContext, task: str) -> None:
        started.append(task)
        assert gate.wait(10)

    async def work_async(context: ProcessingContext, task: str) -> None:
        started.append(task)
        await asyncio.to_thread(gate.wait, 10)

    with SubscribedTask(work_async if is_async else work, concurrency=2) as sub:
        sub.feed(*(str(n) for n in range(50)))
        sub.step()
        wait_for(lambda: len(started) == 2, 10, "two have started")
        sub.share.change(Properties(partition_concurrency=2, processing_rate_per_partition=0))
        sub.step()
        gate.set()
        sub.until(lambda: not sub.task.can_finish, "all have returned")
        sub.step()
        assert len(started) == 2
        assert sub.task.in_flight == 48
        sub.share.change(Properties(partition_concurrency=2))
        sub.until(lambda: sub.committable == 50, "all are done")
        assert sorted(started, key=int) == [str(n) for n in range(50)]


@CONCURRENCIES
def test_rate_limits_the_starts_of_tasks(make: Make, concurrency: int) -> None:
    """300 tasks that are due at the same time, as after many failures."""
    sub = make(partition_concurrency=concurrency, processing_rate_per_partition=10)
    sub.feed(*(f"{n}" for n in range(300)), delay_ms=5_000)
    sub.bench.step()
    sub.clock.advance(5_000)
    assert len(sub.run()) <= 11, "at most the permits of a second, and one"
    started = len(sub.done)
    for _ in range(10):
        sub.clock.advance(100)
        sub.run()
    assert 9 <= len(sub.done) - started <= 11


def test_stall_does_not_accumulate_permits(make: Make) -> None:
    """Threads were stuck for a minute: tasks that arrived meanwhile still start at the rate."""
    sub = make(partition_concurrency=2, processing_rate_per_partition=10)
    sub.feed(*(f"{chr(97 + n % 20)}{n}" for n in range(200)))
    for _ in range(600):
        sub.bench.step()
        sub.clock.advance(100)
    assert len(sub.held.begun) <= 2
    assert len(sub.run(50)) <= 2 + 12


def test_task_whose_unit_is_busy_does_not_delay_others(make: Make) -> None:
    """With a rate: the second task of a key does not take the permit of another key."""
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
    sub.run(20)
    assert [task for task in sub.done if task[0] == "a"] == ["a1", "a2", "a3"]
    assert len(sub.done) == 7


@CONCURRENCIES
def test_only_tasks_use_permits(make: Make, concurrency: int) -> None:
    """Not records that are ignored, shaped or without a task."""
    sub = make(
        partition_concurrency=concurrency, processing_rate_per_partition=1, ignore_keys=("i",)
    )
    sub.feed(*(f"i{n}" for n in range(100)))
    sub.bench.feed(b"x", None, 1_000)
    sub.feed("good")
    sub.clock.advance(1)
    assert sub.run() == ["good"]
    assert sub.counted("tasks.ignored") == 100
    assert sub.counted("tasks.discarded") == 1


@CONCURRENCIES
def test_all_tasks_start_in_order_when_the_rate_is_removed(make: Make, concurrency: int) -> None:
    sub = make(partition_concurrency=concurrency, processing_rate_per_partition=1)
    sub.feed(*(f"a{n}" for n in range(9)), *(f"b{n}" for n in range(9)))
    sub.run()
    sub.feed("a9")
    sub.change(processing_rate_per_partition=-1)
    sub.run(10)
    assert [task for task in sub.done if task[0] == "a"] == [f"a{n}" for n in range(10)]
    assert len(sub.done) == 19


def test_waiting_tasks_share_the_loop_with_other_work() -> None:
    """Slow tasks that have waited are processed for a limited time per round. Detects a loop that
    processes all of them in one round."""
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


# --- release --------------------------------------------------------------------------------------


class Publication:
    """Commits nothing. Implements `Publication`."""

    all_or_nothing = False
    in_transaction = False


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("rate", [-1, 0])
def test_tasks_that_have_not_started_are_released_at_once(concurrency: int, rate: int) -> None:
    """A task that is scheduled in an hour, or held by a rate of 0, does not delay a rebalance."""
    clock = SystemClock()
    waits: list[None] = []
    publication: Any = Publication()
    commits = TaskCommitter(publication, publication, clock, lambda: waits.append(None))
    commits.revocation_timeouts = DrainTimeouts(60_000, None)
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
        started, started_ms = len(done), clock.monotonic_ms()
        tasks: Any = [sub.task]
        commits.drain(tasks)
        assert clock.monotonic_ms() - started_ms < 5_000
        assert len(done) == started
        assert sub.committable == started


def test_running_tasks_are_still_awaited() -> None:
    gate = threading.Event()
    with SubscribedTask(lambda context, task: gate.wait(10), concurrency=3) as sub:
        due = DecatonMetadata(scheduled_time_ms=SystemClock().now_ms() + HOUR_MS)
        sub.feed("one")
        sub.feed("two", headers=tuple(with_metadata((), due)))
        sub.until(lambda: sub.task.in_flight == 2, "one runs, one waits")
        assert sub.task.can_finish
        assert not sub.drain(20)
        threading.Timer(0.05, gate.set).start()
        assert not sub.drain(10_000)
        assert sub.committable == 1
        assert not sub.task.can_finish


# --- units ---------------------------------------------------------------------------------------


class ExclusiveProcessor(TaskProcessor):
    """Detects concurrent calls."""

    instances = 0
    running_counts: list[int]

    def __init__(self) -> None:
        type(self).instances += 1
        self._running = 0

    def process(self, context: ProcessingContext, task: str) -> None:
        self._running += 1
        self.running_counts.append(self._running)
        SystemClock().sleep_ms(5)
        self._running -= 1


def test_unit_has_its_own_processor_for_records_without_a_key() -> None:
    """It is never called concurrently."""
    ExclusiveProcessor.instances, ExclusiveProcessor.running_counts = 0, []
    with SubscribedTask(Scoped(ExclusiveProcessor, Scope.UNIT), concurrency=4) as sub:
        sub.feed_keyless(*(str(n) for n in range(40)))
        sub.step()
        assert sub.drain()
    assert ExclusiveProcessor.instances == 4
    assert ExclusiveProcessor.running_counts == [1] * 40


def test_tasks_that_are_returned_in_parts_keep_their_order() -> None:
    """The calls of a unit end one after the other, and the loop may take some in between."""
    waiting = QueuedTasks(ManualClock(0), Mock(is_limited=False), keeps_order=True)
    calls = [Mock(context=Mock(offset=offset, key=b"k")) for offset in range(4)]
    waiting.put_back(calls[1:2])
    waiting.put_back([calls[0], *calls[2:]])
    assert waiting.take(None, lambda key: key) == calls
    assert len(waiting) == 0

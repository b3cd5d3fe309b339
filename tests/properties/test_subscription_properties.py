"""The guarantees of a subscription, with events in random order.

Method: the tasks of one partition end in an order that Hypothesis chooses; some of them are
deferred, retried, or fail. Commits, drains, crashes and changes of properties happen in between.
The results are compared with the list of input records.

- A committed offset never passes a task that is not completed.
- The tasks of a key start in their order, after the previous one has returned, and not before their
  scheduled time.
- Every task is processed, or skipped because of its key.
- The numbers of concurrent tasks and of pending records are limited.
"""

from __future__ import annotations

import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.tasks.concurrent_bench import IN, ConcurrentBench

from millstream.parallel import (
    Completion,
    DecatonMetadata,
    ProcessingContext,
    Properties,
    Retry,
)
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.tasks.decaton_metadata import with_metadata
from millstream.subscriptions.tasks.task_extraction import TaskReader

KEYS = (b"a", b"b", b"c", None)


class Subscription(RuleBasedStateMachine):
    """A partition and its input."""

    asynchronous = True

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.fed: list[bytes | None] = []
        #: The started offsets of this incarnation by key, and all completed offsets.
        self.begun: dict[bytes, list[int]] = {}
        self.complete: set[int] = set()
        self.out_of_order: list[tuple[bytes, int, int]] = []
        #: The scheduled times of tasks, and the tasks that started too early.
        self.due_ms: list[int] = []
        self.too_early: list[int] = []
        self.deferred: list[tuple[int, Completion]] = []
        self.properties = Properties(partition_concurrency=3, max_pending_records=8)
        #: The limit of pending records, including a previous one until a change is effective.
        self.max_pending = 8
        plan = SubscriptionPlan(
            name="sub",
            chain=ProcessorChain.of(self.work_async if self.asynchronous else self.work),
            reader=TaskReader(None, None, legacy_parse_fallback=False),
            properties=self.properties,
            retry=Retry(backoff=timedelta(seconds=1), max_attempts=2, dead_letter_topic="dead"),
            on_error="skip",
        )
        self.bench = ConcurrentBench(
            subscription_topology(plan, IN.topic, None), Path(self.folder.name)
        )
        self.bench.held.on_wait = self._waited

    async def work_async(self, context: ProcessingContext, task: Any) -> None:
        self.work(context, task)

    def work(self, context: ProcessingContext, task: Any) -> None:
        """Complete, defer, retry or fail, depending on the task."""
        offset, key = context.offset, context.key
        if self.bench.clock.now_ms() < self.due_ms[offset]:
            self.too_early.append(offset)
        if key is not None:
            known = self.begun.setdefault(key, [])
            if known and known[-1] >= offset:
                # An assertion error here would count as a failure of the task.
                self.out_of_order.append((key, known[-1], offset))
            known.append(offset)
        kind = int(task) % 5
        if kind == 1:
            self.deferred.append((offset, context.defer_completion()))
        elif kind == 2:
            context.retry()
        elif kind == 3:
            self.complete.add(offset)
            raise ValueError(task)
        if kind != 1:
            self.complete.add(offset)

    def teardown(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.change(rate=-1)
        for _ in range(10_000):
            while self.deferred:
                self._complete(0)
            self.bench.step()
            while self.bench.held.begun:
                self.end(0)
            self.bench.commit()
            if self.bench.offset == len(self.fed):
                break
            self.bench.clock.advance(10)
        assert self.bench.offset == len(self.fed)
        self.check()
        self.bench.close()
        self.folder.cleanup()

    def _waited(self) -> None:
        self.bench.clock.advance(400)
        if self.bench.held.begun:
            self.end(0)

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=12),
        delay_ms=st.sampled_from((0, 0, 300, 3_000)),
    )
    def feed(self, keys: list[bytes | None], delay_ms: int) -> None:
        due_ms = self.bench.clock.now_ms() + delay_ms if delay_ms else 0
        metadata = DecatonMetadata(timestamp_ms=1_000, scheduled_time_ms=due_ms)
        self.bench.headers = tuple(with_metadata((), metadata))
        for key in keys:
            self.due_ms.append(due_ms)
            self.bench.feed(key, b"%d" % len(self.fed), 1_000)
            self.fed.append(key)

    @rule(limit=st.sampled_from((1, 3, 1_000)))
    def step(self, limit: int) -> None:
        # A lower limit does not affect records that are already pending.
        pending = self.bench.task.processing.group.largest_pending
        self.bench.step(limit)
        self.max_pending = max(pending, self.properties.max_pending_records)

    @precondition(lambda self: self.bench.held.begun)
    @rule(data=st.data())
    def end_some(self, data: st.DataObject) -> None:
        self.end(data.draw(st.integers(0, len(self.bench.held.begun) - 1)))

    def end(self, index: int) -> None:
        runner, _ = self.bench.held.begun[index]
        if runner.is_closed:
            # A call of a previous incarnation, whose result does not matter.
            del self.bench.held.begun[index]
        else:
            self.bench.held.end(index)

    @precondition(lambda self: self.deferred)
    @rule(data=st.data())
    def complete_some(self, data: st.DataObject) -> None:
        self._complete(data.draw(st.integers(0, len(self.deferred) - 1)))

    def _complete(self, index: int) -> None:
        offset, completion = self.deferred.pop(index)
        self.complete.add(offset)
        completion.complete()

    @rule()
    def commit(self) -> None:
        self.bench.commit()

    @rule()
    def drain(self) -> None:
        self.bench.drain()

    @rule()
    def crash(self) -> None:
        """Completions of a previous incarnation have no effect."""
        late, self.deferred = self.deferred, []
        self.begun = {}
        before = self.bench.offset
        self.bench.crash()
        for _, completion in late:
            completion.complete()
        self.bench.commit()
        assert self.bench.offset == before

    @rule(
        concurrency=st.none() | st.integers(1, 4),
        pending=st.none() | st.integers(1, 12),
        rate=st.none() | st.sampled_from((-1, 0, 5)),
        ignored=st.none() | st.sampled_from(((), ("b",))),
    )
    def change(
        self,
        concurrency: int | None = None,
        pending: int | None = None,
        rate: int | None = None,
        ignored: tuple[str, ...] | None = None,
    ) -> None:
        values = {
            "partition_concurrency": concurrency,
            "max_pending_records": pending,
            "processing_rate_per_partition": rate,
            "ignore_keys": ignored,
        }
        self.properties = self.properties.changed(
            **{name: value for name, value in values.items() if value is not None}
        )
        self.max_pending = max(self.max_pending, self.properties.max_pending_records)
        self.bench.share.change(self.properties)

    @rule(ms=st.sampled_from((1, 200, 2_000)))
    def pass_time(self, ms: int) -> None:
        self.bench.clock.advance(ms)

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "bench"):
            return
        assert self.out_of_order == []
        assert self.too_early == []
        for offset, key in enumerate(self.fed[: self.bench.offset]):
            assert offset in self.complete or key == b"b", offset
        mine = [call for runner, call in self.bench.held.begun if not runner.is_closed]
        assert len(mine) <= 4
        keys = [call.context.raw_key for call in mine if call.context.raw_key is not None]
        assert len(keys) == len(set(keys))
        assert self.bench.task.processing.group.largest_pending <= self.max_pending


@pytest.mark.parametrize("asynchronous", [True, False])
def test_guarantees_of_a_subscription(*, asynchronous: bool) -> None:
    """With coroutines, and with plain functions on threads and in the loop."""
    machine = type("Machine", (Subscription,), {"asynchronous": asynchronous})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=30, stateful_step_count=40, deadline=None)
    )

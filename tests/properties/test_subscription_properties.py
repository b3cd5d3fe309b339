"""What a subscription promises, whatever happens in whatever order.

Method: one partition of a subscription whose tasks end in an order that hypothesis chooses, some of
them deferred, retried, or failing, with commits, drains, crashes and properties that change in
between, against the list of what was fed.

- A committed offset never passes a task that is not complete.
- The tasks of a key begin in their order, and never before the one before has returned, nor before
  their time.
- Every task is processed, or was left out by its key.
- There are never more tasks at a time than allowed, nor more records pending.
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
from support.tasks.apart_bench import IN, ApartBench

from millstream.parallel import (
    Completion,
    DecatonMetadata,
    ProcessingContext,
    Properties,
    Retry,
)
from millstream.parallel.subscription_topology import subscription_topology
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.processors import Chain
from millstream.subscriptions.tasks.extraction import TaskReader
from millstream.subscriptions.tasks.metadata import with_metadata

KEYS = (b"a", b"b", b"c", None)


class Subscription(RuleBasedStateMachine):
    """A partition, and what it was fed."""

    asynchronous = True

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.fed: list[bytes | None] = []
        #: Offsets that were begun in this life, by key; and those that were completed in any.
        self.begun: dict[bytes, list[int]] = {}
        self.complete: set[int] = set()
        self.wrong: list[tuple[bytes, int, int]] = []
        #: When tasks are due; and those that began before.
        self.due_ms: list[int] = []
        self.too_early: list[int] = []
        self.deferred: list[tuple[int, Completion]] = []
        self.properties = Properties(partition_concurrency=3, max_pending_records=8)
        #: What holds at most, until a change has been taken over.
        self.most_pending = 8
        plan = SubscriptionPlan(
            name="sub",
            chain=Chain.of(self.work_async if self.asynchronous else self.work),
            reader=TaskReader(None, None, legacy_parse_fallback=False),
            properties=self.properties,
            retry=Retry(backoff=timedelta(seconds=1), max_attempts=2, dead_letter_topic="dead"),
            on_error="skip",
        )
        self.bench = ApartBench(subscription_topology(plan, IN.topic, None), Path(self.folder.name))
        self.bench.held.on_wait = self._waited

    async def work_async(self, context: ProcessingContext, task: Any) -> None:
        self.work(context, task)

    def work(self, context: ProcessingContext, task: Any) -> None:
        """Complete, defer, retry or fail, by what the task says."""
        offset, key = context.offset, context.key
        if self.bench.clock.now_ms() < self.due_ms[offset]:
            self.too_early.append(offset)
        if key is not None:
            known = self.begun.setdefault(key, [])
            if known and known[-1] >= offset:
                # An error here would be that of the task.
                self.wrong.append((key, known[-1], offset))
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
        # A lower bound takes nothing back.
        pending = self.bench.task.processing.group.most_pending
        self.bench.step(limit)
        self.most_pending = max(pending, self.properties.max_pending_records)

    @precondition(lambda self: self.bench.held.begun)
    @rule(data=st.data())
    def end_some(self, data: st.DataObject) -> None:
        self.end(data.draw(st.integers(0, len(self.bench.held.begun) - 1)))

    def end(self, index: int) -> None:
        units, _ = self.bench.held.begun[index]
        if units.is_closed:
            # Of a life before: what it does there is its own affair.
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
        """What is deferred is completed for nobody."""
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
        self.most_pending = max(self.most_pending, self.properties.max_pending_records)
        self.bench.share.change(self.properties)

    @rule(ms=st.sampled_from((1, 200, 2_000)))
    def pass_time(self, ms: int) -> None:
        self.bench.clock.advance(ms)

    @invariant()
    def check(self) -> None:
        if not hasattr(self, "bench"):
            return
        assert self.wrong == []
        assert self.too_early == []
        for offset, key in enumerate(self.fed[: self.bench.offset]):
            assert offset in self.complete or key == b"b", offset
        mine = [call for units, call in self.bench.held.begun if not units.is_closed]
        assert len(mine) <= 4
        keys = [call.context.raw_key for call in mine if call.context.raw_key is not None]
        assert len(keys) == len(set(keys))
        assert self.bench.task.processing.group.most_pending <= self.most_pending


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_subscription_keeps_its_promises(*, asynchronous: bool) -> None:
    """Of coroutines, and of plain functions on threads and within the loop."""
    machine = type("Machine", (Subscription,), {"asynchronous": asynchronous})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=30, stateful_step_count=40, deadline=None)
    )

"""Batches with tasks of several partitions, one of which is released."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

from millstream.clock import SystemClock
from millstream.operators.record_batch import Batch, Origin
from millstream.parallel import BatchedTask, BatchingProcessor, DecatonMetadata, Scope
from millstream.record import TopicPartition
from millstream.subscriptions.processing_context import ProcessingContext
from millstream.subscriptions.tasks.task_extraction import DecatonTask


class Partition:
    """The parts of a partition that contexts use."""

    def __init__(self, number: int) -> None:
        self.host: Any = Mock(deferred_timeout_ms=None, is_open=True, clock=SystemClock())
        self.host.enter = lambda: self.host.is_open
        self._place = TopicPartition("tasks", number)

    def context(self, task: str) -> ProcessingContext:
        batch = Batch([None], [task], [0], [0], Origin(self._place, [0]))
        decoded = DecatonTask(DecatonMetadata(), task, task.encode())
        return ProcessingContext(self.host, batch, 0, decoded, (), 0)


async def _until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def test_tasks_of_other_partitions_in_a_cancelled_batch_are_repeated() -> None:
    """In the running batch, and in a batch that waits for it. The released partition has filled
    both, and its own tasks are not repeated."""
    seen: list[list[str]] = []
    done: list[str] = []

    async def record_batch(tasks: list[BatchedTask]) -> None:
        seen.append([each.task for each in tasks])
        if len(seen) == 1:
            await asyncio.Event().wait()
        done.extend(each.task for each in tasks)

    async def run() -> None:
        processor = BatchingProcessor(
            record_batch, capacity=2, linger=timedelta(hours=1), scope=Scope.SUBSCRIPTION
        ).supplier()
        released, remaining = Partition(0), Partition(1)
        contexts = {name: remaining.context(name) for name in ("b1", "b2")}
        calls: list[asyncio.Task[Any]] = []
        for own, other in (("a1", "b1"), ("a2", "b2")):
            await processor.process(contexts[other], other)
            assert not contexts[other].returned(None)
            filling = processor.process(released.context(own), own)
            calls.append(asyncio.ensure_future(filling))
            await _until(lambda: seen)
        await asyncio.sleep(0)
        released.host.is_open = False
        for call in calls:
            call.cancel()
        await _until(lambda: len(done) == 2)
        await asyncio.gather(*calls, return_exceptions=True)
        assert [each.outcome for each in contexts.values()] == ["complete", "complete"]

    asyncio.run(run())
    assert seen == [["b1", "a1"], ["b1"], ["b2"]]

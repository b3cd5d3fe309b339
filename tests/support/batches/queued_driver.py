"""A test driver that first queues everything, then works in batches, then commits.

All sub-topologies are one task, as the test driver has them. What goes through a repartition topic
is queued by the commit at the end of a round, and taken in the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.clock import ManualClock
from millstream.record import Headers, TopicPartition
from millstream.runtime.task.executor import Executor
from millstream.state.caches.record_cache import RecordCache
from millstream.testing.driver_topics import Captured, RawColumns
from millstream.testing.stepping import SteppingDriver
from support.batches.depth_first import DepthFirst

#: Rounds of batches and commits; a topology that feeds itself may have no last one.
_MOST_ROUNDS = 50


class QueuedDriver(SteppingDriver):
    """Takes nothing before it is told to.

    Args:
        batch_size: how many records a batch has at most.
        order_across_topics: whether there is an order among different topics, too; the tasks of an
            application keep none.
        plain: whether records go depth-first, one at a time, instead of in batches.
    """

    def __init__(
        self,
        topology: Any,
        config: Any,
        *,
        batch_size: int,
        order_across_topics: bool = True,
        plain: bool = False,
    ) -> None:
        self._batch_size = batch_size
        super().__init__(
            topology,
            config,
            ManualClock(0),
            order_across_topics=order_across_topics,
            make_executor=DepthFirst if plain else Executor,
        )

    def feed_together(
        self, topic: str, records: Sequence[tuple[bytes, bytes, int, Headers]]
    ) -> None:
        """Queue records as one poll brings them: a batch of one topic has no records of several."""
        first = self._offsets[topic]
        self._offsets[topic] += len(records)
        keys, values, times, headers = map(list, zip(*records, strict=True))
        offsets = list(range(first, first + len(records)))
        columns = RawColumns(keys, values, times, offsets, headers if any(headers) else None)
        self._task.add_records(TopicPartition(topic, 0), columns)

    @property
    def caches(self) -> list[RecordCache]:
        """The record caches of the stores."""
        return list(self._task.stores.caches().values())

    def finish(self) -> None:
        """Process what is queued, and what that leads to."""
        for _ in range(_MOST_ROUNDS):
            while self.is_ready:
                self.step(self._batch_size)
            self.commit()
            if not self.is_ready:
                break

    def in_order_of_delivery(self, records: list[Captured]) -> Sequence[Captured]:
        # In which order a task writes to different topics is no promise, but decides which of them
        # gets its first record earlier, and so what is read first where timestamps are equal.
        return sorted(records, key=lambda record: record.topic)

    def written(self) -> dict[str, list[Captured]]:
        """What was written to each topic, internal ones included, in the order of writing."""
        return {topic: list(records) for topic, records in self.outputs.items()}

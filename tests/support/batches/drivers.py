"""Test drivers that work in batches or commit rarely, and a handler that records failed records.

All sub-topologies are one task, as in the test driver. Records written to a repartition topic are
queued by the commit at the end of a round, and processed in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from millstream.clock import ManualClock
from millstream.processor.handlers import CONTINUE, ErrorContext, HandlerResponse
from millstream.record import Headers, Record, TopicPartition
from millstream.runtime.task.executor import Executor
from millstream.state.caches.record_cache import RecordCache
from millstream.testing.driver_topics import CapturedRecord, RawColumns
from millstream.testing.stepping import SteppingDriver
from support.batches.depth_first import DepthFirst

#: The maximum number of rounds of batches and commits: a topology that feeds itself may never
#: finish.
_MOST_ROUNDS = 50


class _Driver(SteppingDriver):
    def written(self) -> dict[str, list[CapturedRecord]]:
        """The records written to each topic, including internal ones, in order."""
        return {topic: list(records) for topic, records in self.outputs.items()}


class QueuedDriver(_Driver):
    """Processes nothing before `finish`.

    Args:
        order_across_topics: whether the order among different topics is kept; tasks of an
            application do not keep it.
        plain: whether records are processed depth-first, one at a time, instead of in batches.
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
        """Queue records as one poll returns them: a batch of a topic has no records of other
        topics."""
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
        """Process queued records and everything that they cause."""
        for _ in range(_MOST_ROUNDS):
            while self.is_ready:
                self.step(self._batch_size)
            self.commit()
            if not self.is_ready:
                break

    def delivery_order(self, records: list[CapturedRecord]) -> Sequence[CapturedRecord]:
        # The order in which a task writes to different topics is not guaranteed, but it decides
        # which topic gets its first record earlier, and so which one is read first at equal
        # timestamps.
        return sorted(records, key=lambda record: record.topic)


class LazyDriver(_Driver):
    """Processes one record at a time, but does not commit after each."""

    def __init__(self, topology: Any, config: Any, *, commit_every: int) -> None:
        self._commit_every = commit_every
        self._uncommitted = 0
        super().__init__(topology, config, ManualClock(0))

    def feed(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
    ) -> None:
        super().feed(topic, key, value, timestamp, headers)
        self._work()

    def finish(self) -> None:
        """Commit until a commit has no more effects."""
        self._commit_every = 1
        # Output of a commit to a repartition topic is processed, which may change caches again.
        for _ in range(10):
            self.commit()
            self._work()

    @property
    def has_just_committed(self) -> bool:
        """Whether nothing was processed since the last commit."""
        return self._uncommitted == 0

    def commit(self) -> None:
        super().commit()
        self._uncommitted = 0

    def _work(self) -> None:
        while self.is_ready:
            self.step()
            self._uncommitted += 1
            if self._uncommitted >= self._commit_every:
                self.commit()
            else:
                self.deliver()


class SkippedRecords:
    """A processing exception handler that skips failed records and records them."""

    def __init__(self, described_as: Callable[[Exception], Any]) -> None:
        self._described_as = described_as
        self.seen: list[tuple[Any, ...]] = []

    def __call__(
        self, context: ErrorContext, record: Record[Any, Any], error: Exception
    ) -> HandlerResponse:
        self.seen.append((context.topic, context.offset, record.value, self._described_as(error)))
        return CONTINUE

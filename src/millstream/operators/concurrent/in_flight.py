"""The records of a task that are in flight in concurrent operators."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.operators.record_batch import Batch
from millstream.record import TopicPartition


class InFlightRecords:
    """Counts the unfinished results of each input record of a task."""

    def __init__(self) -> None:
        #: The number of records in flight that come from a punctuation, not from an input record.
        self.from_punctuations = 0
        self._pending: dict[TopicPartition, dict[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self.from_punctuations or any(self._pending.values()))

    @property
    def first(self) -> tuple[TopicPartition, int] | None:
        """The first input record in flight of any one partition; None if there is none."""
        return next(
            ((partition, min(pending)) for partition, pending in self._pending.items() if pending),
            None,
        )

    def add(self, batch: Batch) -> None:
        """Add the records of a batch. Takes 0.2 us per record."""
        pending = self._pending
        for partition, offset in zip(*batch.input_positions(), strict=False):
            if partition is None:
                self.from_punctuations += 1
                continue
            counts = pending.get(partition)
            if counts is None:
                counts = pending[partition] = {}
            counts[offset] = counts.get(offset, 0) + 1

    def add_one(self, partition: TopicPartition, offset: int) -> None:
        counts = self._pending.setdefault(partition, {})
        counts[offset] = counts.get(offset, 0) + 1

    def remove(self, batch: Batch) -> list[tuple[TopicPartition, int]]:
        """Remove the records of a batch. Returns input records without results in flight."""
        finished: list[tuple[TopicPartition, int]] = []
        for partition, offset in zip(*batch.input_positions(), strict=False):
            if partition is None:
                self.from_punctuations -= 1
                continue
            counts = self._pending[partition]
            left = counts[offset] - 1
            if left:
                counts[offset] = left
            else:
                del counts[offset]
                finished.append((partition, offset))
        return finished

    def not_in_flight(self, batch: Batch) -> Iterable[tuple[TopicPartition, int]]:
        """Yield the positions of a batch's input records that have no results in flight."""
        pending = self._pending
        for partition, offset in zip(*batch.input_positions(), strict=False):
            if partition is not None and offset not in pending.get(partition, ()):
                yield partition, offset

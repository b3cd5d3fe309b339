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
        """Partition and offset of an input record in flight, the first of its partition."""
        return next(
            ((place, min(pending)) for place, pending in self._pending.items() if pending), None
        )

    def add(self, batch: Batch) -> None:
        """Add the records of a batch. 0.2 us each."""
        pending = self._pending
        for place, offset in zip(*batch.input_positions(), strict=False):
            if place is None:
                self.from_punctuations += 1
                continue
            counts = pending.get(place)
            if counts is None:
                counts = pending[place] = {}
            counts[offset] = counts.get(offset, 0) + 1

    def add_one(self, place: TopicPartition, offset: int) -> None:
        counts = self._pending.setdefault(place, {})
        counts[offset] = counts.get(offset, 0) + 1

    def remove(self, batch: Batch) -> list[tuple[TopicPartition, int]]:
        """Remove the records of a batch. Returns the input records that have nothing left in
        flight."""
        finished: list[tuple[TopicPartition, int]] = []
        for place, offset in zip(*batch.input_positions(), strict=False):
            if place is None:
                self.from_punctuations -= 1
                continue
            counts = self._pending[place]
            left = counts[offset] - 1
            if left:
                counts[offset] = left
            else:
                del counts[offset]
                finished.append((place, offset))
        return finished

    def not_in_flight(self, batch: Batch) -> Iterable[tuple[TopicPartition, int]]:
        """Return the positions of the input records of a batch that have nothing in flight."""
        pending = self._pending
        for place, offset in zip(*batch.input_positions(), strict=False):
            if place is not None and offset not in pending.get(place, ()):
                yield place, offset

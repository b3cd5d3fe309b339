"""Which input records of a task have something in flight, so that their offsets are not done."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.operators.batch import Batch
from millstream.record import TopicPartition


class Flights:
    """Counts, for each input record of a task, what it has caused that is not finished.

    Attributes:
        unplaced: how many records are in flight that come from no input record, but from a
            punctuation.
    """

    def __init__(self) -> None:
        self.unplaced = 0
        self._held: dict[TopicPartition, dict[int, int]] = {}

    def __bool__(self) -> bool:
        return bool(self.unplaced or any(self._held.values()))

    @property
    def first(self) -> tuple[TopicPartition, int] | None:
        """The place and offset of an input record of which something is in flight, of a partition
        the first; None if there is none."""
        return next(((place, min(held)) for place, held in self._held.items() if held), None)

    def hold(self, batch: Batch) -> None:
        """The records of a batch are in flight. 0.2 us each."""
        held = self._held
        for place, offset in zip(*batch.read_at(), strict=False):
            if place is None:
                self.unplaced += 1
                continue
            counts = held.get(place)
            if counts is None:
                counts = held[place] = {}
            counts[offset] = counts.get(offset, 0) + 1

    def hold_one(self, place: TopicPartition, offset: int) -> None:
        """One record of a partition is in flight."""
        counts = self._held.setdefault(place, {})
        counts[offset] = counts.get(offset, 0) + 1

    def let_go(self, batch: Batch) -> list[tuple[TopicPartition, int]]:
        """The records of a batch are not in flight any more; the places and offsets of which
        nothing else is."""
        finished: list[tuple[TopicPartition, int]] = []
        for place, offset in zip(*batch.read_at(), strict=False):
            if place is None:
                self.unplaced -= 1
                continue
            counts = self._held[place]
            left = counts[offset] - 1
            if left:
                counts[offset] = left
            else:
                del counts[offset]
                finished.append((place, offset))
        return finished

    def not_held(self, batch: Batch) -> Iterable[tuple[TopicPartition, int]]:
        """The places and offsets of a batch of which nothing is in flight."""
        held = self._held
        for place, offset in zip(*batch.read_at(), strict=False):
            if place is not None and offset not in held.get(place, ()):
                yield place, offset

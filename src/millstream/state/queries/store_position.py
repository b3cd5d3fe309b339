"""How far a store has got, by the records at hand when it was written."""

from __future__ import annotations

from millstream.query.requests.position import Position
from millstream.record import TopicPartition
from millstream.state.changelogs.record_at_hand import RecordAtHand


class StorePosition:
    """The last record of each input partition for which something was put.

    Follows Kafka Streams' `StoreQueryUtils.updatePosition`: what a punctuator puts does not count.
    What only the record cache has is known apart, since some queries pass it by.

    Args:
        cached: whether there is a record cache.
    """

    def __init__(self, *, cached: bool = False) -> None:
        self._cached = cached
        self._seen: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}

    def note(self, record: RecordAtHand) -> None:
        """Something was put for this record."""
        place = record.place
        if place is not None and record.offset > self._seen.get(place, -1):
            self._seen[place] = record.offset

    def flushed(self) -> None:
        """What the cache had is written."""
        self._written.update(self._seen)

    def position(self, *, past_cache: bool = False) -> Position:
        """The position now.

        Args:
            past_cache: of what lies below the cache.
        """
        below = self._written if past_cache and self._cached else self._seen
        offsets: dict[str, dict[int, int]] = {}
        for place, offset in below.items():
            offsets.setdefault(place.topic, {})[place.partition] = offset
        return Position(offsets)

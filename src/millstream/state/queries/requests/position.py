"""The input position of a store."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class Position:
    """The last offset of each input partition that a store reflects. Immutable.

    Kafka Streams' `Position` (KIP-796).

    Example:
        >>> Position({"clicks": {0: 41}}).merge(Position({"clicks": {0: 7, 1: 3}}))
        Position({'clicks': {0: 41, 1: 3}})
    """

    __slots__ = ("_offsets",)

    def __init__(self, offsets: Mapping[str, Mapping[int, int]] | None = None) -> None:
        self._offsets = {
            topic: dict(sorted(partitions.items()))
            for topic, partitions in sorted((offsets or {}).items())
        }

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics in the position, sorted."""
        return tuple(self._offsets)

    def partitions(self, topic: str) -> Mapping[int, int]:
        """Return the last offset of each partition of a topic; empty for an unknown one.

        Example:
            >>> dict(Position({"clicks": {0: 41}}).partitions("clicks"))
            {0: 41}
        """
        return MappingProxyType(self._offsets.get(topic, {}))

    def merge(self, other: Position) -> Position:
        """Return the position with the higher offset of each partition.

        Example:
            >>> Position({"clicks": {0: 41}}).merge(Position({"views": {0: 7}})).topics
            ('clicks', 'views')
        """
        merged = {topic: dict(partitions) for topic, partitions in self._offsets.items()}
        for topic, partitions in other._offsets.items():
            mine = merged.setdefault(topic, {})
            for partition, offset in partitions.items():
                mine[partition] = max(offset, mine.get(partition, offset))
        return Position(merged)

    def reaches(self, bound: Position, partition: int) -> bool:
        """Return whether this position satisfies a bound for one partition.

        Args:
            bound: the required position. Topics without an offset for the partition are ignored.

        Example:
            >>> bound = Position({"clicks": {0: 41}})
            >>> bound.reaches(bound, 0), Position().reaches(bound, 0), Position().reaches(bound, 1)
            (True, False, True)
        """
        for topic, partitions in bound._offsets.items():
            required = partitions.get(partition)
            if required is None:
                continue
            seen = self._offsets.get(topic, {}).get(partition)
            if seen is None or seen < required:
                return False
        return True

    def as_dict(self) -> dict[str, dict[int, int]]:
        """Return a copy as a dict by topic and partition.

        Example:
            >>> Position({"clicks": {0: 41}}).as_dict()
            {'clicks': {0: 41}}
        """
        return {topic: dict(partitions) for topic, partitions in self._offsets.items()}

    def __eq__(self, other: object) -> bool:
        return self._offsets == other._offsets if isinstance(other, Position) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple((topic, tuple(p.items())) for topic, p in self._offsets.items()))

    def __bool__(self) -> bool:
        return any(self._offsets.values())

    def __repr__(self) -> str:
        return f"Position({self._offsets!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Position, (self._offsets,)


class PositionBound:
    """The minimum position of a store for a query. Immutable.

    Create a bound with `at` or `unbounded`. If the position of each result is the bound of the next
    query, later results never go back in time, even from other instances. Kafka Streams'
    `PositionBound`.

    Example:
        >>> PositionBound.at(Position({"clicks": {0: 41}})).is_unbounded
        False
    """

    __slots__ = ("position",)

    def __init__(self, position: Position) -> None:
        self.position: Position = position

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """Create a bound: the store must reflect at least this position.

        Example:
            >>> PositionBound.at(Position({"clicks": {0: 41}})).position
            Position({'clicks': {0: 41}})
        """
        return cls(position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        """Create a bound that any store satisfies.

        Example:
            >>> PositionBound.unbounded().is_unbounded
            True
        """
        return cls(Position())

    @property
    def is_unbounded(self) -> bool:
        """Whether any store satisfies this bound."""
        return not self.position

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PositionBound):
            return NotImplemented
        return self.position == other.position

    def __hash__(self) -> int:
        return hash(self.position)

    def __repr__(self) -> str:
        return (
            "PositionBound.unbounded()"
            if self.is_unbounded
            else f"PositionBound.at({self.position})"
        )

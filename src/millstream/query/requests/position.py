"""How far a store has got: the input that its content stands for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


class Position:
    """The last offset of each input partition that a store's content reflects. Immutable.

    Kafka Streams' `Position` (KIP-796).

    Args:
        offsets: by topic the offsets by partition.

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
        """The topics of which it says something, sorted."""
        return tuple(self._offsets)

    def partitions(self, topic: str) -> Mapping[int, int]:
        """The last offset of each partition of a topic; empty for a topic that it does not know.

        Example:
            >>> dict(Position({"clicks": {0: 41}}).partitions("clicks"))
            {0: 41}
        """
        return MappingProxyType(self._offsets.get(topic, {}))

    def merge(self, other: Position) -> Position:
        """Of each partition the higher of both.

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
        """Whether a store at this position has seen all that a bound asks of one partition.

        Args:
            bound: what must be reflected. Topics that have no offset for the partition ask nothing.
            partition: the store's.

        Example:
            >>> bound = Position({"clicks": {0: 41}})
            >>> bound.reaches(bound, 0), Position().reaches(bound, 0), Position().reaches(bound, 1)
            (True, False, True)
        """
        for topic, partitions in bound._offsets.items():
            wanted = partitions.get(partition)
            if wanted is None:
                continue
            seen = self._offsets.get(topic, {}).get(partition)
            if seen is None or seen < wanted:
                return False
        return True

    def as_dict(self) -> dict[str, dict[int, int]]:
        """A copy, by topic and partition.

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
    """How far a store must have got to be asked: `at` a position, or `unbounded`. Immutable.

    With the position of an answer as the next bound, later answers never go back in time, whoever
    gives them. Kafka Streams' `PositionBound`.

    Example:
        >>> PositionBound.at(Position({"clicks": {0: 41}})).is_unbounded
        False
    """

    __slots__ = ("position",)

    def __init__(self, position: Position) -> None:
        self.position = position

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """All that this position stands for must be in the store.

        Example:
            >>> PositionBound.at(Position({"clicks": {0: 41}})).position
            Position({'clicks': {0: 41}})
        """
        return cls(position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        """However far it is.

        Example:
            >>> PositionBound.unbounded().is_unbounded
            True
        """
        return cls(Position())

    @property
    def is_unbounded(self) -> bool:
        """Whether nothing is asked."""
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

"""Names of sources, in the order in which Java's hash sets have them."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.topology.physical.java_order import hash_order


class SourceNames(frozenset[str]):
    """A set that also knows in which order a `java.util.HashSet` iterates it.

    Kafka Streams unites what must be co-partitioned in that order, and some of it not at all: what
    it lists depends on it.

    Attributes:
        in_order: the names in that order.
    """

    in_order: tuple[str, ...]

    def __new__(cls, names: Iterable[str]) -> SourceNames:
        added = names.in_order if isinstance(names, SourceNames) else tuple(names)
        made = super().__new__(cls, added)
        made.in_order = tuple(hash_order(added))
        return made

    def united(self, other: SourceNames) -> SourceNames:
        """The names of both, as if the others were added to these."""
        return SourceNames((*self.in_order, *other.in_order))

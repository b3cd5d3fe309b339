"""The iteration order of Java's collections.

Descriptions and a task's partitions are in this order. Kafka Streams prints sets in the order of
`java.util.HashSet`, and sorts siblings by sizes that still grow during the sort. Reproducing both
makes the descriptions of a Java application and its Python counterpart textually equal, so that
`diff` shows whether they match. The order of partitions determines for which partition a task waits
first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from millstream.record import TopicPartition

T = TypeVar("T", bound=Hashable)

_DEFAULT_TABLE_SIZE = 16


def hash_order(names: Iterable[str], *, copied: bool = False) -> list[str]:
    """Return the names in the iteration order of a `HashSet<String>`.

    Args:
        copied: whether the set was created from a collection, which determines the size of
            the table in advance.
    """
    return _by_bucket(names, _string_hash, copied=copied)


def partition_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions in the iteration order of a `HashMap` with these keys.

    Partitions that share a bucket are in the order of a set of their topics.
    """
    ordered = sorted(partitions)
    topics = hash_order(partition.topic for partition in ordered)
    ordered.sort(key=lambda partition: topics.index(partition.topic))
    return _by_bucket(_by_bucket(ordered, _partition_hash, copied=True), _partition_hash)


def _by_bucket(
    elements: Iterable[T], hash_of: Callable[[T], int], *, copied: bool = False
) -> list[T]:
    unique = list(dict.fromkeys(elements))
    table = _DEFAULT_TABLE_SIZE
    if copied:
        while table < len(unique) * 4 // 3 + 1:
            table *= 2
    else:
        while table * 3 < len(unique) * 4:
            table *= 2

    def bucket(element: T) -> int:
        code = hash_of(element)
        return (code ^ code >> 16) & (table - 1)

    # Java keeps the insertion order within a bucket, and sorted() is stable.
    return sorted(unique, key=bucket)


def _partition_hash(partition: TopicPartition) -> int:
    """Return the result of `TopicPartition.hashCode()` as an unsigned number."""
    return (31 * (31 + partition.partition) + _string_hash(partition.topic)) & 0xFFFFFFFF


def _string_hash(text: str) -> int:
    """Return the result of `String.hashCode()` as an unsigned number."""
    code = 0
    utf16 = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code


class TreeSet:
    """A `java.util.TreeSet<String>` whose comparator may change between additions.

    As in Java, elements are only compared while a new element is inserted, so that existing
    elements keep their positions.
    """

    def __init__(self, before: Callable[[str, str], bool]) -> None:
        self._before = before
        self._root: _Entry | None = None

    def __iter__(self) -> Iterator[str]:
        return _in_order(self._root)

    def add(self, name: str) -> None:
        """Insert a name, unless the search for its position finds it."""
        parent: _Entry | None = None
        entry = self._root
        left = False
        while entry is not None:
            if entry.name == name:
                return
            parent = entry
            left = self._before(name, entry.name)
            entry = entry.left if left else entry.right
        added = _Entry(name, parent)
        if parent is None:
            self._root = added
        elif left:
            parent.left = added
        else:
            parent.right = added
        self._rebalance(added)

    def _rebalance(self, entry: _Entry) -> None:
        """Restore the red-black invariants above a new red entry."""
        while (parent := entry.parent) is not None and parent.red:
            # The parent is red and therefore not the root, so there is a grandparent.
            grandparent = parent.parent
            assert grandparent is not None
            on_left = parent is grandparent.left
            uncle = grandparent.right if on_left else grandparent.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grandparent.red = True
                entry = grandparent
                continue
            if entry is (parent.right if on_left else parent.left):
                self._rotate(parent, left=on_left)
                parent = entry
            parent.red = False
            grandparent.red = True
            self._rotate(grandparent, left=not on_left)
            break
        assert self._root is not None
        self._root.red = False

    def _rotate(self, entry: _Entry, *, left: bool) -> None:
        """Move a child of `entry` above it: the right child when rotating to the left."""
        child = entry.right if left else entry.left
        assert child is not None
        moved = child.left if left else child.right
        if left:
            entry.right, child.left = moved, entry
        else:
            entry.left, child.right = moved, entry
        if moved is not None:
            moved.parent = entry
        above = entry.parent
        child.parent, entry.parent = above, child
        if above is None:
            self._root = child
        elif above.left is entry:
            above.left = child
        else:
            above.right = child


class _Entry:
    __slots__ = ("left", "name", "parent", "red", "right")

    def __init__(self, name: str, parent: _Entry | None) -> None:
        self.name = name
        self.parent = parent
        self.left: _Entry | None = None
        self.right: _Entry | None = None
        self.red = True


def _in_order(entry: _Entry | None) -> Iterator[str]:
    if entry is not None:
        yield from _in_order(entry.left)
        yield entry.name
        yield from _in_order(entry.right)


class SourceNames(frozenset[str]):
    """A set with the iteration order of a `java.util.HashSet`.

    Kafka Streams merges only some co-partition groups, in this order. The groups that it lists
    therefore depend on the order.
    """

    in_order: tuple[str, ...]

    def __new__(cls, names: Iterable[str]) -> SourceNames:
        added = names.in_order if isinstance(names, SourceNames) else tuple(names)
        instance = super().__new__(cls, added)
        instance.in_order = tuple(hash_order(added))
        return instance

    def united(self, other: SourceNames) -> SourceNames:
        """Return the union, ordered as if the names of `other` were added to this set."""
        return SourceNames((*self.in_order, *other.in_order))

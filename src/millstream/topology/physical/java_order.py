"""The orders in which Java's collections list the nodes of a description, and a task's partitions.

Kafka Streams prints sets as `java.util.HashSet` iterates them, and sorts siblings by sizes that
still grow while it sorts. Reproducing both makes the two descriptions of one topology equal as
text, so that `diff` tells whether a Java application and its Python twin fit. The order of
partitions decides for which one a task waits first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from millstream.record import TopicPartition

T = TypeVar("T", bound=Hashable)

_DEFAULT_TABLE = 16


def hash_order(names: Iterable[str], *, copied: bool = False) -> list[str]:
    """The names in the order of iteration of a `HashSet<String>` to which they were added.

    Args:
        names: in the order of adding.
        copied: whether the set was made from a collection, which gives it a larger table at once.
    """
    return _by_bucket(names, _string_hash, copied=copied)


def partition_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """The partitions in the order of iteration of a `HashMap` with them as its keys.

    Those that share a bucket are in the order in which a set of their topics has them.
    """
    places = sorted(partitions)
    topics = hash_order(place.topic for place in places)
    places.sort(key=lambda place: topics.index(place.topic))
    return _by_bucket(_by_bucket(places, _partition_hash, copied=True), _partition_hash)


def _by_bucket(
    elements: Iterable[T], hash_of: Callable[[T], int], *, copied: bool = False
) -> list[T]:
    unique = list(dict.fromkeys(elements))
    table = _DEFAULT_TABLE
    if copied:
        while table < len(unique) * 4 // 3 + 1:
            table *= 2
    else:
        while table * 3 < len(unique) * 4:
            table *= 2

    def bucket(element: T) -> int:
        code = hash_of(element)
        return (code ^ code >> 16) & (table - 1)

    # Within a bucket Java keeps the order of adding, and so does sorted().
    return sorted(unique, key=bucket)


def _partition_hash(place: TopicPartition) -> int:
    """`TopicPartition.hashCode()`, unsigned."""
    return (31 * (31 + place.partition) + _string_hash(place.topic)) & 0xFFFFFFFF


def _string_hash(text: str) -> int:
    """`String.hashCode()`, unsigned."""
    code = 0
    utf16 = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(utf16[::2], utf16[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code


class TreeSet:
    """A `java.util.TreeSet<String>` whose comparator may change its mind between two additions.

    What comes before what is only asked on the way down to the new element's place, so elements
    that are in the set already stay where they are, as they do in Java.

    Args:
        before: whether the first name sorts before the second one, as of now.
    """

    def __init__(self, before: Callable[[str, str], bool]) -> None:
        self._before = before
        self._root: _Entry | None = None

    def __iter__(self) -> Iterator[str]:
        return _in_order(self._root)

    def add(self, name: str) -> None:
        """Put a name at its place; nothing happens if the descent meets it."""
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
            # A red entry is never the root, so there is a grandparent.
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
        """Put a child of `entry` above it: its right child when rotating to the left."""
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

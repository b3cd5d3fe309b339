"""What every layer of a state store speaks: byte keys, byte values, unsigned lexicographic order.

A store is built from layers, each wrapping the one below through the same protocol:

    KeyValueStore        objects, serdes                       what processors see
      RecordCache        the latest value per key, as objects  only with caching
        LoggedStore      each write goes to the changelog too
          OverlayStore   writes that are not committed yet
            Storage      RocksDB: what is committed, and the changelog offset it stands for

An in-memory store needs no overlay: nothing of it survives its process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Protocol

from millstream.record import TopicPartition

#: Pairs in order of their keys, over the state at the time of the call. Close it when done early.
ByteItems = Generator[tuple[bytes, bytes], None, None]

#: How far a store has got: it reflects its changelog up to and including this offset.
ChangelogOffset = tuple[TopicPartition, int]


class ReadableBytes(Protocol):
    """Reading by key and by range of keys."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None if there is none."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each key, in their order."""
        ...

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        """The pairs whose key is in `[start, end)`; None leaves that side open."""
        ...

    def approximate_num_entries(self) -> int:
        """About how many keys there are."""
        ...


class BytesStore(ReadableBytes, Protocol):
    """A layer that can be written. A value of None deletes the key."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key.

        Args:
            key: the key.
            value: the value, None deletes.
            timestamp: of the changelog record, in milliseconds; other layers pass it on.
        """
        ...

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys, in order; the columns are equally long."""
        ...


class Committable(Protocol):
    """What decides which writes survive a crash: the lowest writable layer of a store of any kind.

    Invariant: after a crash the store holds what was written before some `commit` or `restore`,
    and `committed_offset` is the offset given with it.
    """

    @property
    def persistent(self) -> bool:
        """Whether anything survives the process."""
        ...

    @property
    def uncommitted_bytes(self) -> int:
        """At most how many bytes wait for a commit."""
        ...

    def count_uncommitted(self) -> int:
        """How many bytes wait for a commit, counted anew."""
        ...

    def commit_begun(self) -> None:
        """What was put so far is what the next commit keeps; what comes is for the one after.

        One that has begun before and did not come about is part of this one.
        """
        ...

    def commit(self, offset: ChangelogOffset | None) -> None:
        """Keep what was put until `commit_begun`, or so far if that was not called, together with
        the changelog offset it stands for.

        Args:
            offset: None leaves the offset as it is, for stores without a changelog and for
                commits in which nothing was logged.
        """
        ...

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        """Apply changelog records, and keep the offset of the last one with them."""
        ...

    def expect_many(self, expected: bool) -> None:
        """Prepare for many changelog records, of which the last ones come before anything is read;
        or for the end of that."""
        ...

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the last changelog record reflected in the store; None if unknown."""
        ...

    def close(self) -> None:
        """Release everything, without committing. Does nothing the second time."""
        ...


class CommittableStore(BytesStore, Committable, Protocol):
    """The lowest writable layer of a store that is read by key and by range of keys."""

    def commit_restored(self, offset: ChangelogOffset) -> None:
        """Commit the writes of applied changelog records, with the offset of the last one."""
        ...


class Storage(ReadableBytes, Protocol):
    """What keeps committed data: ordered scans over a snapshot, atomic data with offset.

    Attributes:
        on_failure: called with each error of the disk or the database before it is raised.
    """

    on_failure: Callable[[Exception], None]

    def is_empty(self) -> bool:
        """Whether there is no key."""
        ...

    def write_batch(
        self,
        items: Mapping[bytes, bytes | None],
        offset: ChangelogOffset | None,
        *,
        dropped: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Write all items, and the offset if there is one, or nothing of it.

        Args:
            items: the values by key; None deletes.
            offset: the changelog offset reached with these items; None leaves the one there is.
            dropped: ranges `[start, end)` of keys to delete, before the items are written.
        """
        ...

    def expect_many(self, expected: bool) -> None:
        """Prepare for much that is written and not read; or for its end."""
        ...

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """The offset last written for that changelog partition."""
        ...

    def close(self) -> None:
        """Release everything. Does nothing the second time."""
        ...


def end_including(last: bytes | None) -> bytes | None:
    """The exclusive end of a range which includes `last`: the smallest key after it."""
    return None if last is None else last + b"\x00"


def end_of_prefix(prefix: bytes) -> bytes | None:
    """The exclusive end of all keys that begin with `prefix`; None if no key comes after them."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None

"""The protocols of store layers, whose keys and values are bytes.

Keys are in unsigned lexicographic order.

A store is built from layers; each wraps the one below and has the same interface:

    KeyValueStore        objects and serdes                    the interface for processors
      RecordCache        the latest value per key, as objects  only with caching
        LoggedStore      logs each write to the changelog
          OverlayStore   uncommitted writes
            Storage      RocksDB: committed data and its changelog offset

An in-memory store needs no overlay: its data does not survive the process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Protocol

from millstream.record import TopicPartition

#: Pairs in key order, from a snapshot at the time of the call. Close the generator
#: unless it is exhausted.
ByteItems = Generator[tuple[bytes, bytes], None, None]

#: The position of a store, which reflects its changelog up to and including this offset.
ChangelogOffset = tuple[TopicPartition, int]


class ReadableBytesStore(Protocol):
    """Reads by key and by key range."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> ByteItems:
        """Iterate over the pairs with keys in `[start, end)`; None leaves that side open."""
        ...

    def approximate_num_entries(self) -> int: ...


class BytesStore(ReadableBytesStore, Protocol):
    """A writable layer. The value None deletes the key."""

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one key.

        Args:
            timestamp: the timestamp of the changelog record, in milliseconds; layers that do not
                log pass it on.
        """
        ...

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many keys, in order; the columns have the same length."""
        ...


class Committable(Protocol):
    """The lowest writable layer of a store.

    It determines which writes survive a crash.

    Invariant: after a crash the store contains the writes up to some `commit` or `restore`, and
    `committed_offset` returns the offset passed to that call.
    """

    @property
    def persistent(self) -> bool: ...

    @property
    def uncommitted_bytes(self) -> int:
        """An upper bound of the bytes of uncommitted writes."""
        ...

    def count_uncommitted(self) -> int: ...

    def on_commit_started(self) -> None:
        """Freeze the writes made so far: the next commit persists only these writes.

        If an earlier commit was begun but not completed, the next one includes its writes.
        """
        ...

    def commit(self, offset: ChangelogOffset | None) -> None:
        """Persist the frozen writes together with their changelog offset.

        If `on_commit_started` was not called, persist all writes.

        Args:
            offset: None to keep the previous offset, for stores without a changelog and for commits
                in which nothing was logged.
        """
        ...

    def restore(self, items: Mapping[bytes, bytes | None], offset: ChangelogOffset) -> None:
        """Apply changelog records, and store the offset of the last record with them."""
        ...

    def set_bulk_loading(self, enabled: bool) -> None:
        """Turn bulk loading on or off.

        Bulk loading is for many changelog records without reads in between.
        """
        ...

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the last changelog record reflected in the store, or None."""
        ...

    def close(self) -> None:
        """Release all resources without committing. Idempotent."""
        ...


class CommittableStore(BytesStore, Committable, Protocol):
    """The lowest writable layer of a store that is read by key and by key range."""

    def commit_restored(self, offset: ChangelogOffset) -> None:
        """Commit the writes of applied changelog records, with the last record's offset."""
        ...


class Storage(ReadableBytesStore, Protocol):
    """A storage of committed data.

    Scans read a snapshot. Data and offset are written atomically.

    Attributes:
        on_failure: called with each disk or database error before it is raised.
    """

    on_failure: Callable[[Exception], None]

    def is_empty(self) -> bool: ...

    def write_batch(
        self,
        items: Mapping[bytes, bytes | None],
        offset: ChangelogOffset | None,
        *,
        deleted_ranges: Sequence[tuple[bytes, bytes]] = (),
    ) -> None:
        """Write all items and the offset, if any, atomically.

        Args:
            offset: the changelog offset reached with these items; None to keep the previous one.
            deleted_ranges: key ranges `[start, end)` to delete before the items are written.
        """
        ...

    def set_bulk_loading(self, enabled: bool) -> None:
        """Turn bulk loading on or off, for many writes without reads."""
        ...

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """Return the last offset written for a changelog partition, or None."""
        ...

    def close(self) -> None:
        """Release all resources. Idempotent."""
        ...


def iterate(pairs: Iterable[tuple[bytes, bytes]] = ()) -> ByteItems:
    """Iterate over existing pairs; without an argument, over none."""
    yield from pairs


def end_including(last: bytes | None) -> bytes | None:
    """Return the exclusive end of a range that includes `last`.

    This is the smallest key after `last`.
    """
    return None if last is None else last + b"\x00"


def end_of_prefix(prefix: bytes) -> bytes | None:
    """Return the exclusive end of the keys with a prefix; None if unbounded."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes((stem[-1] + 1,)) if stem else None

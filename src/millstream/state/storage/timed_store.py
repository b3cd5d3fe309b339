"""The protocols of the layers of window and session stores.

The layers are read by key and time. Stored keys are defined in `window_keys`. The time of a stored
key is the window's start or the session's end; it determines when the entry expires. Ranges of
times and keys include both ends. A bound of None leaves that side of a key range open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from millstream.state.storage.bytes_store import ByteItems, Committable

#: Stored keys and their values, in order.
StoredPairs = Sequence[tuple[bytes, bytes]]

V = TypeVar("V")


def from_stored_key(
    pairs: Sequence[tuple[bytes, V]],
    begin: bytes,
    sort_key_of: Callable[[bytes], Any],
    reverse: bool,
) -> list[tuple[bytes, V]]:
    """Return the pairs from a stored key on, in the direction of the read.

    The pairs keep their order.
    """
    first = sort_key_of(begin)
    if reverse:
        return [pair for pair in pairs if sort_key_of(pair[0]) <= first]
    return [pair for pair in pairs if sort_key_of(pair[0]) >= first]


class ReadableTimedStore(Protocol):
    """Reads of windows or sessions by key and time. Expired entries are not returned."""

    def get(self, key: bytes) -> bytes | None: ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def read_key(self, key: bytes, first: int, last: int) -> StoredPairs:
        """Return the entries of a key from time `first` to `last`, ascending.

        `key` does not include a window.
        """
        ...

    def read_keys(
        self,
        lowest: bytes | None,
        highest: bytes | None,
        first: int,
        last: int,
        *,
        reverse: bool = False,
        begin: bytes | None = None,
    ) -> ByteItems:
        """Iterate over a range of keys in a time range, in the store's own order.

        Follows Kafka Streams: the order is by time segment and stored key in RocksDB, and by time
        and key in memory. The order is also by time and key in a time-ordered window store in
        RocksDB (for windows that are emitted when they close), if all keys are read.

        Args:
            begin: the stored key at which to start, in the direction of the read. It does not need
                to exist. None starts with the first entry.
        """
        ...

    def sort_key_of(self, stored: bytes, every_key: bool = False) -> tuple[int, bytes, bytes]:
        """Return the sort key of a stored key in `read_keys`.

        Args:
            every_key: whether all keys are read.
        """
        ...


class TimedStore(ReadableTimedStore, Protocol):
    """A writable layer. The value None deletes the stored key."""

    @property
    def observed_time(self) -> int:
        """The store's stream time: the latest time written; -1 before the first write."""
        ...

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one stored key, or count it as dropped if it has expired."""
        ...

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many stored keys, in order; the columns have the same length."""
        ...

    def remove(self, key: bytes, timestamp: int) -> None:
        """Delete one stored key. Unlike `put`, this does not count expired keys."""
        ...

    def approximate_num_entries(self) -> int: ...


class CommittableTimedStore(TimedStore, Committable, Protocol):
    """The lowest writable layer of a window or session store.

    Attributes:
        last_seqnum: the latest sequence number, which distinguishes duplicates of a key and time;
            stored and restored with the data.
    """

    last_seqnum: int

    @property
    def readable_from(self) -> int:
        """The earliest readable time.

        Older entries are never returned, although RocksDB may still accept them.
        """
        ...

    def put_at(self, key: bytes, value: bytes | None, time: int) -> None:
        """Write a stored key whose time is already known; see `put`."""
        ...

    def read_including_expired(self, first: int, last: int) -> ByteItems:
        """Iterate over the entries of all keys in a time range, in the store's own order.

        Follows Kafka Streams, which finds closed sessions in this way. In RocksDB, they are
        found as long as their segment is live; in memory, only until they expire.
        """
        ...

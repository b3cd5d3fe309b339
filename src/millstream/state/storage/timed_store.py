"""What the layers of window and session stores speak beyond keys and values: stretches of time.

Stored keys are those of `window_keys`. The time of a stored key is the window's start or the
session's end; by it the store decides what is too old to be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from millstream.state.storage.bytes_store import ByteItems, Committable

#: Stored keys with their values, in order.
StoredPairs = Sequence[tuple[bytes, bytes]]

V = TypeVar("V")


def from_place(
    pairs: Sequence[tuple[bytes, V]], begin: bytes, place_of: Callable[[bytes], Any], reverse: bool
) -> list[tuple[bytes, V]]:
    """Those pairs that do not come before a stored key, in the order in which they are given.

    Args:
        pairs: in any order.
        begin: the stored key.
        place_of: by what the store orders its stored keys.
        reverse: whether the store is read backwards.
    """
    place = place_of(begin)
    if reverse:
        return [pair for pair in pairs if place_of(pair[0]) <= place]
    return [pair for pair in pairs if place_of(pair[0]) >= place]


class TimedReads(Protocol):
    """Reading windows or sessions by key and time. What has expired is not there."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a stored key, None if there is none."""
        ...

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The value of each stored key, in their order."""
        ...

    def read_key(self, key: bytes, first: int, last: int) -> StoredPairs:
        """What a key has within some time, ascending.

        Args:
            key: the serialized key, without a window.
            first: the earliest time, in milliseconds.
            last: the latest time, included.
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
        """What all keys between two have within some time, in the store's own order.

        Follows Kafka Streams: in RocksDB by segments of time, in a segment by stored key; in memory
        by time, then by key. Every key of a window store that is ordered by time (of windows that
        are emitted when they close) is read by time as well.

        Args:
            lowest: the first serialized key; None begins with the first one there is.
            highest: the last one, included; None ends with the last one there is.
            first: the earliest time, in milliseconds.
            last: the latest time, included.
            reverse: whether to go backwards.
            begin: a stored key, which need not be there: what comes before it, in the order of
                reading, is left out. None begins with the first.
        """
        ...

    def place_of(self, stored: bytes, every_key: bool = False) -> tuple[int, bytes, bytes]:
        """The sort key of a stored key in `read_keys`.

        Args:
            stored: the stored key.
            every_key: whether neither `lowest` nor `highest` is given.
        """
        ...


class TimedStore(TimedReads, Protocol):
    """A layer that can be written. A value of None deletes the stored key."""

    @property
    def observed_time(self) -> int:
        """The latest time that was put, -1 at first: the store's stream time."""
        ...

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        """Write one stored key, unless it is too old: then it is counted as dropped.

        Args:
            key: the stored key.
            value: the value, None deletes.
            timestamp: of the changelog record, in milliseconds; other layers pass it on.
        """
        ...

    def put_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Write many stored keys, in order; the columns are equally long."""
        ...

    def remove(self, key: bytes, timestamp: int) -> None:
        """Delete one stored key. That it is too old is not counted, unlike in `put`."""
        ...

    def approximate_num_entries(self) -> int:
        """About how many stored keys there are."""
        ...


class CommittableTimedStore(TimedStore, Committable, Protocol):
    """The lowest writable layer of a window or session store.

    Attributes:
        last_number: the number given to the last duplicate; kept and restored with the data.
    """

    last_number: int

    @property
    def readable_from(self) -> int:
        """The earliest time that is read: whatever is older has expired, though it may be put."""
        ...

    def put_at(self, key: bytes, value: bytes | None, time: int) -> None:
        """`put` for a stored key whose time is known."""
        ...

    def read_expired_too(self, first: int, last: int) -> ByteItems:
        """What all keys have within some time, in the store's own order.

        Follows Kafka Streams: sessions that are closed are looked for in this way. In RocksDB they
        are found as long as their segment is live, in memory they are gone when they expire.
        """
        ...

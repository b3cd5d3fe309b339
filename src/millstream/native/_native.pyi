"""The C extension. `Client` holds the GIL, except while it waits for records."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from millstream.native.shapes import Columns, Event, Run, Updates

#: The version of the package. Millstream only uses the extension of its own version.
VERSION: Final[str]

def load(library: str, /) -> str | None:
    """Find librdkafka in the dependencies of a shared library. Returns an error text or None."""

def attach(owner: object, /) -> Client:
    """Return the client that this thread has just created with the plugin, for the object `owner`.

    Raises:
        RuntimeError: the thread has created none.
    """

def murmur3_128(data: bytes, /) -> bytes:
    """Return the 128-bit x64 MurmurHash3 with Kafka Streams' seed, as two big-endian longs."""

def with_times(values: Iterable[bytes | None], timestamps: Iterable[int], /) -> list[bytes | None]:
    """Prepend the timestamp as a big-endian long to each value; None for None.

    Raises:
        TypeError, OverflowError: a value or a timestamp is invalid.
        ValueError: the numbers of values and timestamps differ.
    """

class CachedEntry:
    """A cache entry, like Millstream's `PureCachedEntry`."""

    key_bytes: bytes
    value: Any
    timestamp: int
    dirty_seq: int
    used_seq: int
    queued_seq: int
    place: Any
    offset: int
    headers: Any
    stored: bytes | None
    raw: bytes | None
    size: int

    def __new__(
        cls, key_bytes: bytes, stored: bytes | None, size: int, used_seq: int
    ) -> CachedEntry: ...
    def change(
        self, value: Any, timestamp: int, seq: int, place: Any, offset: int, headers: Any, /
    ) -> bool:
        """Set another value. Returns whether the entry was unchanged before."""

class EntryTable:
    """A dict of entries by their keys, which are bytes. Its views are new lists.

    Methods raise a TypeError for a key or an entry of another type, and a ValueError for an entry
    under another key than its own.
    """

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __getitem__(self, key: bytes, /) -> CachedEntry: ...
    def __setitem__(self, key: bytes, entry: CachedEntry, /) -> None: ...
    def __delitem__(self, key: bytes, /) -> None: ...
    def get(self, key: bytes, otherwise: Any = None, /) -> Any: ...
    def pop(self, key: bytes, otherwise: Any = ..., /) -> Any: ...
    def update(self, pairs: Iterable[tuple[bytes, CachedEntry]], /) -> None: ...
    def clear(self) -> None: ...
    def keys(self) -> list[bytes]: ...
    def values(self) -> list[CachedEntry]: ...
    def items(self) -> list[tuple[bytes, CachedEntry]]: ...

class EvictionOrder:
    """Entries from the least to the most recently used, like Millstream's `PureEvictionOrder`."""

    def __len__(self) -> int: ...
    def add(self, entry: CachedEntry, /) -> None: ...
    def add_many(self, entries: Iterable[CachedEntry], /) -> None: ...
    def pop(self) -> CachedEntry | None: ...
    def pop_unchanged(self, size_bytes: int, /) -> list[CachedEntry]: ...
    def drop_removed(self) -> None: ...
    def clear(self) -> None: ...

class KeyIndex:
    """The stored keys of each key, like Millstream's `PureKeyIndex`."""

    def __new__(cls, layout: Any, stored_keys: Callable[[], Iterable[bytes]]) -> KeyIndex: ...
    @property
    def needs_fill(self) -> bool: ...
    def add(self, stored: bytes, /) -> None: ...
    def remove(self, stored: bytes, /) -> None: ...
    def of_key(self, key: bytes, first: int, last: int, /) -> list[bytes]: ...

def new_entries(keys: list[bytes], extra_bytes: int, seq: int, /) -> list[CachedEntry]:
    """Create entries without a value, used one after the other from `seq` on.

    The size of an entry is that of its key plus `extra_bytes`.
    """

def remove_entries(
    table: EntryTable, entries: list[CachedEntry], /
) -> tuple[int, list[CachedEntry]]:
    """Remove entries from a table. Returns their total size, and the missing entries."""

def sorted_by_change(changed: list[CachedEntry], /) -> list[CachedEntry]:
    """Sort entries by the order of their changes."""

def columns_of(entries: list[CachedEntry], /) -> Columns:
    """Return the contents of entries as columns."""

def mark_flushed(entries: list[CachedEntry], stored: list[bytes], overhead_bytes: int, /) -> int:
    """Mark flushed entries as clean. Returns by how many bytes they have grown in total."""

def count_entries(cache: Any, updates: Updates, /) -> None:
    """Count records in the entries of a cache.

    Args:
        cache: has `entries`, `dirty`, `seq` and `load`.
        updates: the entries, and the columns of records.
    """

def fold_entries(
    cache: Any,
    updates: Updates,
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    own: Callable[[Any], Any] | None,
    failed: Callable[[int, Exception], object],
    /,
) -> None:
    """Fold the values of records into the entries of a cache.

    Args:
        cache: has `entries`, `dirty`, `seq` and `load`.
        updates: the entries, and the columns of records.
        initializer: returns the initial value of an entry without a value.
        aggregator: returns the next value from a record's key, its value, and the current value.
        own: copies a record's own value that is to be kept.
        failed: called with the index of a record on which these functions fail, and the error.
    """

class Client:
    """A client of librdkafka. Not thread-safe.

    References its owner, so that the client lives as long as this object; if the owner is closed
    nevertheless, calls raise a RuntimeError.
    """

    @property
    def failed(self) -> int:
        """The number of failed records since the last `take_failures`."""

    def close(self) -> None:
        """Release the owner. Further calls raise a RuntimeError, except for `close`."""

    def open_queue(self) -> None:
        """Create the queue for `read_columns`, of a consumer."""

    def forward(self, topic: str, partition: int, /) -> None:
        """Forward the fetched records of a partition, also waiting ones, to that queue."""

    def read_columns(self, max_records: int, timeout_ms: int, /) -> tuple[list[Run], list[Event]]:
        """Wait for the first record, and read the available ones, without the GIL.

        Args:
            max_records: the maximum number of records and events, 1 to 65,536.
            timeout_ms: how long to wait for the first.
        """

    def produce_columns(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Sequence[tuple[str, bytes | None]] | None] | None,
        start: int,
        /,
    ) -> tuple[int, int]:
        """Send records, up to the first that is rejected.

        An invalid record is never the last one tried: the call ends before it, so that the next
        call raises.

        Args:
            topic: the topic.
            partitions: one for all, one for each, or None to hash the key.
            keys: of all records.
            values: of all records.
            timestamps: of all records, in milliseconds since the epoch; 1 is written for 0.
            headers: for each record, or None.
            start: the index of the first record to send.

        Returns:
            The number of records sent, and librdkafka's error for the next one; 0 for none.

        Raises:
            TypeError, ValueError, OverflowError: the first record is invalid.
        """

    def take_failures(self) -> tuple[list[tuple[int, str | None, int]], int]:
        """Return the first failed records since the last call, and the number of further failures.

        A failure is (error, topic, partition); the partition is negative if it was not determined.
        """

    def acked_offsets(self) -> list[tuple[str, int, int]]:
        """Return topic, partition and offset of the last acknowledged record of each partition."""

    def reset_deliveries(self) -> None:
        """Reset acknowledged offsets and failures."""

def fold_sessions(
    cache: Any,
    index: KeyIndex,
    order: EvictionOrder,
    resting: dict[bytes, CachedEntry],
    updates: Updates,
    times: tuple[int, int, int, int, int],
    initializer: Callable[[], Any],
    aggregator: Callable[[Any, Any, Any], Any],
    merger: Callable[[Any, Any, Any], Any],
    failed: Callable[[int, Exception], object],
    otherwise: Callable[[int, int, Any, int, Any, int], bool],
    /,
) -> tuple[int, int]:
    """Fold the values of records into the sessions of a cache.

    Args:
        cache: has `entries`, `dirty`, `seq` and `on_added`, which is called with the number of new
            entries and their size in bytes.
        index: the sessions of each key in the cache.
        order: the eviction order of the entries.
        resting: entries of the cache that are not in `entries`.
        updates: the serialized key of each record, and its columns.
        times: the inactivity gap; the time after its end when a session is closed; stream time; the
            time until which sessions may be found below the cache; and the size in bytes of a new
            entry in addition to its key.
        initializer: returns the initial value of a session.
        aggregator: returns the next value from a record's key, its value, and the current value.
        merger: merges two values of a key.
        failed: called with the index of a record on which these functions fail, and the error.
        otherwise: processes a record that neither starts a session nor extends the existing one:
            its index, timestamp, place, offset and headers, and stream time; returns whether it is
            late.

    Returns:
        Stream time, and the number of late records.
    """

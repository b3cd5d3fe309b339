"""The C part. What a `Client` does, it does with the GIL held, but waiting for records."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from millstream_speedups.shapes import Columns, Event, Run, Updates

#: Of the package that this was compiled for. Millstream uses no other version than its own.
VERSION: Final[str]

def load(library: str, /) -> str | None:
    """Find librdkafka, as what a shared library depends on; why it cannot be used, else None."""

def attach(owner: object, /) -> Client:
    """The client that this thread has just made with the plugin, of which `owner` is the object.

    Raises:
        RuntimeError: it has made none.
    """

def murmur3_128(data: bytes, /) -> bytes:
    """MurmurHash3 of 128 bits, x64 variant, with Kafka Streams' seed: two big-endian longs."""

def with_times(values: Iterable[bytes | None], timestamps: Iterable[int], /) -> list[bytes | None]:
    """Each value behind its timestamp as a big-endian long; None for None.

    Raises:
        TypeError, OverflowError: a value or a timestamp is none.
        ValueError: there are not as many of both.
    """

class CachedEntry:
    """An entry of a cache, as Millstream's `PureCachedEntry`."""

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
        """Give it another value; whether it had no change before."""

class EntryTable:
    """A dict of entries by their keys, which are bytes. What it gives of all is a list of its own.

    Methods that take a key or an entry raise a TypeError where it is none, and a ValueError where
    an entry is put under another key than its own.
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
    """Entries from the least to the most recently used, as Millstream's `PureEvictionOrder`."""

    def __len__(self) -> int: ...
    def add(self, entry: CachedEntry, /) -> None: ...
    def add_many(self, entries: Iterable[CachedEntry], /) -> None: ...
    def pop(self) -> CachedEntry | None: ...
    def pop_unchanged(self, size_bytes: int, /) -> list[CachedEntry]: ...
    def forget_gone(self) -> None: ...
    def clear(self) -> None: ...

class KeyIndex:
    """The stored keys of each key, as Millstream's `PureKeyIndex`."""

    def __new__(cls, layout: Any, stored_keys: Callable[[], Iterable[bytes]]) -> KeyIndex: ...
    @property
    def is_asleep(self) -> bool: ...
    def note(self, stored: bytes, /) -> None: ...
    def unnote(self, stored: bytes, /) -> None: ...
    def of_key(self, key: bytes, first: int, last: int, /) -> list[bytes]: ...

def new_entries(keys: list[bytes], extra_bytes: int, seq: int, /) -> list[CachedEntry]:
    """Entries without a value, of the size of their keys and what is extra, used one after the
    other from a number on."""

def remove_entries(
    table: EntryTable, entries: list[CachedEntry], /
) -> tuple[int, list[CachedEntry]]:
    """Take entries out of a table; their size, and those that were not in it."""

def in_order(changed: list[CachedEntry], /) -> list[CachedEntry]:
    """Entries in the order of their changes."""

def columns_of(entries: list[CachedEntry], /) -> Columns:
    """What entries hold, as columns."""

def settle_entries(entries: list[CachedEntry], stored: list[bytes], overhead_bytes: int, /) -> int:
    """Make flushed entries clean; by how many bytes they have grown together."""

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
        initializer: gives what an entry without a value starts from.
        aggregator: gives the next value of a record's key, its value, and the value so far.
        own: makes another object of a record's own value that is to be kept.
        failed: told the index of a record that these functions fail on, and the error.
    """

class Client:
    """One of librdkafka's clients. Not thread-safe.

    It keeps its owner, so that the client lives as long as this; where that is closed all the same,
    calls raise a RuntimeError.
    """

    @property
    def failed(self) -> int:
        """How many records failed since failures were taken."""

    def close(self) -> None:
        """Let the owner go. Further calls raise a RuntimeError; another `close` does nothing."""

    def open_queue(self) -> None:
        """Make the queue that `read_columns` reads; of a consumer."""

    def forward(self, topic: str, partition: int, /) -> None:
        """Have what is fetched of a partition put into that queue, also what waits already."""

    def read_columns(self, most: int, timeout_ms: int, /) -> tuple[list[Run], list[Event]]:
        """Wait for a record, and take what is there; without the GIL.

        Args:
            most: how many records and events; at least one, at most 65,536 are taken.
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
        """Hand records over, up to the first that is refused.

        A record that is no such thing is never the last that was tried: the call ends before it,
        so that the next one raises.

        Args:
            topic: where they go.
            partitions: one for all, one for each, or None for that of the key's hash.
            keys: of all records.
            values: as many.
            timestamps: as many, in milliseconds since the epoch; 1 is written for 0.
            headers: for each record, or None.
            start: the index of the first to hand over.

        Returns:
            How many were taken, and librdkafka's error for the one behind them; 0 for none.

        Raises:
            TypeError, ValueError, OverflowError: what the first record has cannot be written.
        """

    def take_failures(self) -> tuple[list[tuple[int, str | None, int]], int]:
        """The first records that failed since the last call (error, topic, partition, or a negative
        one where it was not decided), and how many more did."""

    def acked_offsets(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of the last record of each that was acknowledged."""

    def forget(self) -> None:
        """Acknowledged offsets and failures do not count any more."""

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
        cache: has `entries`, `dirty`, `seq` and `came`, which hears of new entries and their bytes.
        index: knows which sessions of a key the cache has.
        order: in which entries are given up.
        resting: entries of the cache that are not in `entries`.
        updates: of each record the serialized key, and its columns.
        times: the gap between sessions; how long after its end one is closed; stream time; until
            when sessions may be found below the cache; and how many bytes a new entry has beside
            those of its key.
        initializer: gives what a session starts from.
        aggregator: gives the next value of a record's key, its value, and the value so far.
        merger: gives one value of a key and two values.
        failed: told the index of a record that these functions fail on, and the error.
        otherwise: takes a record that neither begins a session nor moves the one that there is: its
            index, timestamp, place, offset and headers, and stream time; tells whether it is late.

    Returns:
        Stream time, and how many records were late.
    """

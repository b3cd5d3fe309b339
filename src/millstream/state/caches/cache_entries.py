"""What a record cache holds, what it gives when flushed, and the bytes it may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, Final, Protocol, TypeAlias

from millstream.record import UNKNOWN, Headers, TopicPartition

#: What an entry counts besides its key and value: record context and links, about as in Kafka
#: Streams, so that a budget holds as many entries. The memory really used is larger: about 400
#: bytes an entry in Python, 220 with the extension.
ENTRY_OVERHEAD_BYTES: Final = 64

#: Stands in `CachedEntry.stored` for «not read»; compared by identity. Made at run time, since
#: equal constants may be one object.
UNREAD: Final = bytes(bytearray(b"unread"))


class PureCachedEntry:
    """The latest value of one key.

    Operators change entries in place, in their hot loops; see `RecordCache` for the rules.

    Attributes:
        key_bytes: the serialized key.
        value: the value as an object; None is no value.
        timestamp: of the value, or of the record that deleted it.
        dirty_seq: the place among the changes not flushed yet; 0 for an unchanged entry.
        used_seq: when it was last read.
        place, offset, headers: where the record was read that made the last change.
        stored: what the layer below has for the key, or `UNREAD`.
        raw: while the value is not decoded, the bytes to decode it from.
        size: the bytes counted for it.
        queued_seq: see `EvictionOrder`.
    """

    __slots__ = (
        "dirty_seq",
        "headers",
        "key_bytes",
        "offset",
        "place",
        "queued_seq",
        "raw",
        "size",
        "stored",
        "timestamp",
        "used_seq",
        "value",
    )

    def __init__(self, key_bytes: bytes, stored: bytes | None, size: int, used_seq: int) -> None:
        self.key_bytes = key_bytes
        self.value: Any = None
        self.timestamp = UNKNOWN
        self.dirty_seq = 0
        self.used_seq = used_seq
        self.queued_seq = 0
        self.place: TopicPartition | None = None
        self.offset = UNKNOWN
        self.headers: Headers = ()
        self.stored = stored
        self.raw = stored
        self.size = size

    def change(
        self,
        value: Any,
        timestamp: int,
        seq: int,
        place: TopicPartition | None,
        offset: int,
        headers: Headers,
    ) -> bool:
        """Give it another value, by the rules of `RecordCache`: whether it had no change before."""
        was_clean = not self.dirty_seq
        self.value = value
        self.timestamp = timestamp
        self.dirty_seq = seq
        self.place = place
        self.offset = offset
        self.headers = headers
        return was_clean


#: An entry, of Python or of the extension (`cache_code.py`).
CachedEntry: TypeAlias = PureCachedEntry


def pure_new_entries(keys: list[bytes], extra_bytes: int, seq: int) -> list[CachedEntry]:
    """Entries without a value.

    Args:
        keys: their keys.
        extra_bytes: what they count besides.
        seq: when the first was used; each later one is by one more.
    """
    return [
        PureCachedEntry(key, None, len(key) + extra_bytes, used)
        for used, key in enumerate(keys, seq)
    ]


#: What entries hold: key bytes, values, timestamps, places, offsets, headers.
Columns: TypeAlias = tuple[
    list[bytes], list[Any], list[int], list[TopicPartition | None], list[int], list[Headers]
]


def pure_columns_of(entries: list[CachedEntry]) -> Columns:
    """What entries hold, as columns.

    One pass over the entries, which lie scattered in memory, so that each visit costs more than
    what it reads: 0.9 us an entry of 20,000, and 1.8 us with a pass for each column.
    """
    keys: list[bytes] = []
    values: list[Any] = []
    timestamps: list[int] = []
    places: list[TopicPartition | None] = []
    offsets: list[int] = []
    headers: list[Headers] = []
    add_key, add_value, add_timestamp = keys.append, values.append, timestamps.append
    add_place, add_offset, add_headers = places.append, offsets.append, headers.append
    for entry in entries:
        add_key(entry.key_bytes)
        add_value(entry.value)
        add_timestamp(entry.timestamp)
        add_place(entry.place)
        add_offset(entry.offset)
        add_headers(entry.headers)
    return keys, values, timestamps, places, offsets, headers


def pure_settle_entries(
    entries: list[CachedEntry], stored: list[bytes], overhead_bytes: int
) -> int:
    """Make flushed entries clean, all of which have a value: 0.3 us each.

    Args:
        entries: that were written below.
        stored: what was stored for each.
        overhead_bytes: what an entry counts besides key and value.

    Returns:
        By how many bytes they have grown together.
    """
    grown = 0
    for entry, new in zip(entries, stored, strict=True):
        dirty_seq = entry.dirty_seq
        if dirty_seq > entry.used_seq:
            entry.used_seq = dirty_seq
        entry.dirty_seq = 0
        entry.headers = ()
        entry.stored = new
        size = len(entry.key_bytes) + len(new) + overhead_bytes
        if size != entry.size:
            grown += size - entry.size
            entry.size = size
    return grown


class ChangedEntries:
    """Changed entries, and what they hold as columns.

    Args:
        entries: the entries, in the order of their changes.
        columns_of: reads them.

    Attributes:
        stored: what is to be stored for each; None deletes. To be filled by the cache.
    """

    def __init__(
        self, entries: list[CachedEntry], columns_of: Callable[[list[CachedEntry]], Columns]
    ) -> None:
        self.entries = entries
        self._columns_of = columns_of
        self.stored: list[bytes | None] = []
        (
            self.key_bytes,
            self.values,
            self.timestamps,
            self.places,
            self.offsets,
            self.headers,
        ) = columns_of(entries)

    def flushed(
        self, keys: list[Any], new_values: list[Any], old_values: list[Any] | None
    ) -> FlushedChanges:
        """What is to be forwarded, with the keys and values that it is to have."""
        return FlushedChanges(
            key_bytes=self.key_bytes,
            keys=keys,
            new_values=new_values,
            old_values=old_values,
            timestamps=self.timestamps,
            places=self.places,
            offsets=self.offsets,
            headers=headers_column(self.headers),
        )

    def select(self, keep: Sequence[bool]) -> ChangedEntries:
        """Those whose element in `keep` is true."""
        kept = ChangedEntries(list(compress(self.entries, keep)), self._columns_of)
        kept.stored = list(compress(self.stored, keep))
        return kept


@dataclass(slots=True)
class FlushedChanges:
    """What a flush wrote and is to be forwarded downstream, as columns, in order.

    Args:
        key_bytes: the serialized keys.
        keys: the keys.
        new_values: None is a deletion.
        old_values: what was in the store before; None if nobody wants to know.
        timestamps: of the new values; for deletions that of the deleting record.
        places: where the record was read that made each change; None in a punctuator.
        offsets: its offset.
        headers: its headers; None if no record had any.
    """

    key_bytes: list[bytes]
    keys: list[Any]
    new_values: list[Any]
    old_values: list[Any] | None
    timestamps: list[int]
    places: list[TopicPartition | None]
    offsets: list[int]
    headers: list[Headers] | None

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class CacheStatistics:
    """A cache at one moment.

    Args:
        entries: keys held.
        dirty: keys with changes that are not flushed.
        size_bytes: bytes counted, partly estimated.
        loads: reads of the layers below, since the cache was made.
    """

    entries: int
    dirty: int
    size_bytes: int
    loads: int


class KeyWatcher(Protocol):
    """Told which keys a cache holds."""

    def note(self, stored: bytes) -> None:
        """A key has come."""
        ...

    def unnote(self, stored: bytes) -> None:
        """A key has gone."""
        ...


class Sized(Protocol):
    """Something that uses up a budget."""

    @property
    def size_bytes(self) -> int:
        """Bytes in use now."""
        ...


class CacheBudget:
    """The bytes that all record caches of one stream thread may use together.

    Each cache gives back from its own entries when the total is exceeded after it was written to,
    as in Kafka Streams (`ThreadCache`). One that is not written to keeps what it has.

    Args:
        max_bytes: the bound; `statestore.cache.max.bytes` divided by the number of threads.
        speedups: the setting of that name; False keeps these caches to Python.
    """

    def __init__(self, max_bytes: int, speedups: bool | None = None) -> None:
        self.max_bytes = max_bytes
        self.speedups = speedups
        self._caches: list[Sized] = []

    @property
    def used_bytes(self) -> int:
        """Bytes in use now."""
        return sum(cache.size_bytes for cache in self._caches)

    def excess_bytes(self) -> int:
        """Bytes above the bound; negative while there is room."""
        return self.used_bytes - self.max_bytes

    def resize(self, max_bytes: int) -> None:
        """Change the bound, when threads are added or removed."""
        self.max_bytes = max_bytes

    def add(self, cache: Sized) -> None:
        """Count a cache."""
        self._caches.append(cache)

    def remove(self, cache: Sized) -> None:
        """Count a cache no more."""
        self._caches = [each for each in self._caches if each is not cache]


def headers_bytes(headers: Headers) -> int:
    """Bytes of names and values."""
    return sum(len(name) + len(value or b"") for name, value in headers)


def headers_column(headers: Sequence[Headers]) -> list[Headers] | None:
    """The headers of some records; None if there are none at all."""
    return list(headers) if any(headers) else None

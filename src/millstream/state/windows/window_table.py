"""A window store as the DSL's operators use it: keys in bytes, values as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.record import UNKNOWN, Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.keyvalue.encoded_table import EncodedTable
from millstream.state.keyvalue.table import TimedValue
from millstream.state.storage.bytes_store import ByteItems
from millstream.state.storage.timed_store import CommittableTimedStore, StoredPairs, TimedStore
from millstream.state.storage.value_formats import ValueFormat
from millstream.state.windows.duplicate_windows import Arrivals, DuplicateStore
from millstream.state.windows.window_cache import WindowCache
from millstream.state.windows.window_keys import (
    LAST_NUMBER,
    WINDOWS,
    StoredKeySerde,
    window_key,
    window_keys,
)
from millstream.windowed import Windowed

#: The start of a window, its value and the value's timestamp.
WindowValue = tuple[int, Any, int]


class WindowTable(EncodedTable):
    """The store behind a windowed table, or behind one side of a stream-stream join.

    Keys are serialized record keys (`encode_keys`), without their window; times are those at which
    windows start. A value comes with its timestamp, which is -1 in a store that keeps none.

    **Per record**: `fetch`, `fetch_between`, `fetch_all`, `put`. With a cache, what `put` changes
    is forwarded when the cache is flushed (`cache.flush()`, and `cache.evict()` once a batch), if
    the operator has set `cache.forwards_changes`; the keys of such changes are `Windowed`. Without,
    it is written and logged at once, and the operator forwards it itself.

    **Hot loops** make stored keys with `window_key(key, start)` and go on as with a key-value
    table: on `cache.entries` by the rules of `RecordCache`; without a cache by `read_encoded_many`
    and `write_encoded_many`.

    **Aliasing.** As in `TimestampedTable`: what is read is a fresh decode or an immutable value.
    What is put belongs to the cache until it is flushed, so do not hand on the same object unless
    `immutable` (see `own`).

    Follows Kafka Streams where something is too old for the store: it cannot be read, and a put is
    dropped (and counted), but logged, cached and forwarded all the same.

    Args:
        name: the store's name.
        base: the lowest layer.
        duplicates: the same, if it keeps duplicates and takes many at once.
        layers: the topmost layer: the cache if there is one.
        changelog: where duplicates are logged; the layers log everything else.
        cache: the record cache among the layers, None without caching.
        value_format: whether values are kept with timestamps.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        value_serde: for values.
        window_size_ms: how long windows are, for the ends of those that are read.
        retention_ms: how long they are kept, counted from their start.
        retain_duplicates: whether several values of one key at one time are kept beside each
            other, as joins need them. Putting None then does nothing but log.
        log_headers: whether the changelog records of what is put have the records' headers.
    """

    def __init__(
        self,
        name: str,
        base: CommittableTimedStore,
        *,
        duplicates: DuplicateStore | None,
        layers: TimedStore,
        changelog: StoreChangelog,
        cache: WindowCache | None,
        value_format: ValueFormat,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        window_size_ms: int,
        retention_ms: int,
        retain_duplicates: bool,
        log_headers: bool,
    ) -> None:
        super().__init__(name, topic=topic, key_serde=key_serde, value_serde=value_serde)
        self.cache = cache
        self.timestamped = value_format.timestamped
        self.window_size_ms = window_size_ms
        self.retention_ms = retention_ms
        self.retain_duplicates = retain_duplicates
        self._base = base
        self._duplicates = duplicates
        self._layers = layers
        self._changelog = changelog
        self._format = value_format
        self._stored_key_serde = StoredKeySerde(key_serde, WINDOWS, window_size_ms)
        self._log_headers = log_headers
        self._number = 0

    # --- one record at a time --------------------------------------------------------------------

    @property
    def observed_time(self) -> int:
        """The latest start that was written to the store below the cache; -1 if none was."""
        return self._base.observed_time

    def unreadable(self, stored_keys: Sequence[bytes]) -> frozenset[bytes]:
        """Those that have expired: whatever is put under them is not read again."""
        first, time_of = self._base.readable_from, WINDOWS.time_of
        size = WINDOWS.suffix_bytes
        # Few windows are asked for at a time.
        if first <= 0 or all(
            time_of(each) >= first for each in {key[-size:] for key in stored_keys}
        ):
            return frozenset()
        return frozenset(key for key in stored_keys if time_of(key) < first)

    def fetch(self, key: bytes, start: int) -> TimedValue | None:
        """The value of a window, None if there is none.

        Args:
            key: the serialized key.
            start: of the window, in milliseconds.
        """
        cache = self.cache
        if cache is not None and self.immutable:
            return cache.read(window_key(key, start))
        raw = self.fetch_raw(key, start)
        return None if raw is None else self.split(raw)

    def fetch_between(self, key: bytes, first: int, last: int) -> list[WindowValue]:
        """The windows of a key that start within some time, in the order of their starts.

        Duplicates come in the order in which they were put.

        Args:
            key: the serialized key.
            first: the earliest start, in milliseconds; negative ones count as 0.
            last: the latest start, included.
        """
        time_of = WINDOWS.time_of
        if self.cache is None or not self.immutable:
            pairs = self._layers.read_key(key, first, last)
            if not pairs:
                return []
            return [(time_of(stored), *self.split(raw)) for stored, raw in pairs]
        values: list[WindowValue] = []
        for stored, entry, raw in self.cache.windows_of(key, first, last):
            value = self.split(raw) if entry is None else self.cache.value_of(entry)
            assert value is not None
            values.append((time_of(stored), *value))
        return values

    def fetch_all(self, first: int, last: int) -> list[tuple[Windowed[Any], Any, int]]:
        """The windows of all keys that start within some time, with their values and timestamps.

        In a time-ordered store by start, then by key; in others in the store's own order (see
        `TimedStore.read_keys`). Costs as much as there is within that time; in RocksDB, unless the
        store is time-ordered, a look at all of its segments.

        Args:
            first: the earliest start, in milliseconds.
            last: the latest start, included.
        """
        pairs = list(self.read_keys(None, None, first, last))
        keys = self._stored_key_serde.deserialize_many(self._topic, [pair[0] for pair in pairs])
        return [(key, *self.split(raw)) for key, (_, raw) in zip(keys, pairs, strict=True)]

    def put(
        self,
        key: bytes,
        start: int,
        value: Any,
        timestamp: int,
        place: TopicPartition | None = None,
        offset: int = UNKNOWN,
        headers: Headers = (),
    ) -> None:
        """Store the value of a window; None deletes it.

        Args:
            key: the serialized key.
            start: of the window, in milliseconds.
            value: the value.
            timestamp: of the value; for a deletion, and in a store that keeps none, the record's.
            place: where the record was read; for the cache, like the rest.
            offset: its offset.
            headers: its headers; also for the changelog in a store with `log_headers`.
        """
        if self.cache is not None:
            self.cache.write(window_key(key, start), value, timestamp, place, offset, headers)
        else:
            self.put_encoded(key, start, self.encode(value), timestamp, headers)

    # --- many at once ----------------------------------------------------------------------------

    def read_encoded_many(self, stored_keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """The serialized value of each `window_key` and its timestamp, in their order."""
        split = self._format.split
        return [None if raw is None else split(raw) for raw in self._layers.get_many(stored_keys)]

    def write_encoded_many(
        self,
        stored_keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
    ) -> None:
        """Put serialized values under each `window_key`, in order. Not for duplicates."""
        stored = self._format.join_many(values, timestamps)
        self._layers.put_many(stored_keys, stored, timestamps)

    def put_duplicate(self, key: bytes, start: int, data: bytes | None, timestamp: int) -> bytes:
        """Store a serialized value beside the others of its key and time; it is not logged yet.

        Follows Kafka Streams: a null deletes nothing, as it says not which duplicate. It takes a
        number all the same, is to be logged, and in memory it moves the time on.

        Returns:
            The stored key, for `log_duplicates`.
        """
        base = self._base
        number = base.last_number = (base.last_number + 1) & LAST_NUMBER
        stored = window_key(key, start, number)
        if data is not None:
            self._number = number
            base.put_at(stored, self._format.join(data, timestamp), start)
        elif not base.persistent:
            base.put(stored, None, timestamp)
        return stored

    def has_in_memory(self, first: int) -> bool:
        """Whether `arrivals` find all that can be read from a time on."""
        return self._duplicates is not None and self._duplicates.has_in_memory(first)

    def can_number(self, count: int) -> bool:
        """Whether so many records can be `arrivals`: their numbers must ascend."""
        return self._base.last_number + count <= LAST_NUMBER

    def arrivals(
        self, keys: Sequence[bytes], starts: Sequence[int], datas: Sequence[bytes | None]
    ) -> Arrivals:
        """Values that are to be stored beside the others of their keys and times.

        Each is found by those that come behind it (see `Arrivals`), and all are stored at once
        (`keep`): 1.6 us each where `put_duplicate` takes 4 us. They are to be logged, too.

        Args:
            keys: the serialized keys.
            starts: the times, which are those of the values as well.
            datas: the serialized values; a null takes its number, and that is all.
        """
        store = self._duplicates
        assert store is not None, f"store {self.name} takes no batches"
        first = store.last_number + 1
        numbers = range(first, first + len(keys))
        store.last_number += len(keys)
        stored = list(window_keys(keys, starts, numbers))
        values = self._format.join_many(datas, starts)
        entries = [
            None if value is None else (start, key, value)
            for start, key, value in zip(starts, stored, values, strict=True)
        ]
        # Those of nulls are not remembered, as there is nothing under them.
        self._number = next(
            (
                number
                for number, value in zip(reversed(numbers), reversed(values), strict=True)
                if value is not None
            ),
            self._number,
        )
        return Arrivals(store, keys, starts, stored, entries)

    def keep(self, arrivals: Arrivals) -> None:
        """Store all that has come; it is not logged yet."""
        if self._duplicates is not None and arrivals.entries:
            self._duplicates.keep(arrivals)

    def decode_stored(self, stored: Sequence[bytes]) -> list[tuple[Any, int]]:
        """The value and the timestamp of each stored form: new objects.

        Raises:
            BatchSerializationError: one of them does not fit the value serde.
        """
        datas, timestamps = self._format.values_of(stored), self._format.timestamps(stored)
        return list(
            zip(self._value_serde.deserialize_many(self._topic, datas), timestamps, strict=True)
        )

    def log_duplicates(
        self,
        stored_keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None = None,
    ) -> None:
        """Log what `put_duplicate` has stored, in order: one call costs as much as one record."""
        logged_headers = headers if self._log_headers else None
        self._changelog.log_many(stored_keys, values, timestamps, logged_headers)

    # --- bytes, for the public store -------------------------------------------------------------

    def fetch_raw(self, key: bytes, start: int) -> bytes | None:
        """The stored form of the value of a window."""
        if not self.retain_duplicates:
            return self._layers.get(window_key(key, start))
        # Follows Kafka Streams: the last duplicate that was put is found if it was put there, and
        # in memory none is.
        return (
            self._base.get(window_key(key, start, self._number)) if self._base.persistent else None
        )

    def read_key(self, key: bytes, first: int, last: int) -> StoredPairs:
        """The stored keys and values of the windows of a key that start within some time."""
        return self._layers.read_key(key, first, last)

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
        """The stored keys and values of many keys; see `TimedStore.read_keys`."""
        return self._layers.read_keys(lowest, highest, first, last, reverse=reverse, begin=begin)

    def put_encoded(
        self,
        key: bytes,
        start: int,
        data: bytes | None,
        timestamp: int,
        headers: Headers = (),
    ) -> None:
        """Store a serialized value; with a cache as of the record being processed."""
        if self.retain_duplicates:
            stored = self.put_duplicate(key, start, data, timestamp)
            self.log_duplicates((stored,), (data,), (timestamp,), (headers,) if headers else None)
        else:
            self._layers.put(window_key(key, start), self._format.join(data, timestamp), timestamp)

    def split(self, raw: bytes) -> TimedValue:
        """The value and the timestamp of a stored form."""
        data, timestamp = self._format.split(raw)
        return self._value_serde.deserialize(self._topic, data), timestamp

"""The window store for the DSL's operators: keys as bytes, values as objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.record import UNKNOWN, Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.keyvalue.key_value_table import EncodedTable, TimedValue
from millstream.state.storage.timed_store import CommittableTimedStore, TimedStore
from millstream.state.storage.value_formats import ValueFormat
from millstream.state.windows.duplicate_windows import DuplicateBatch, DuplicateStore
from millstream.state.windows.window_cache import WindowCache
from millstream.state.windows.window_keys import (
    MAX_SEQNUM,
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

    Keys are serialized record keys (`encode_keys`), without their window; times are the start times
    of windows. Values have timestamps, which are -1 in a store without timestamps.

    **Per record**: `fetch`, `fetch_between`, `fetch_all`, `put`. With a cache, changes of `put` are
    forwarded when the cache is flushed (`cache.flush()`, and `cache.evict()` once per batch), if
    the operator has set `cache.forwards_changes`; the keys of such changes are `Windowed`. Without
    a cache, changes are written and logged immediately, and the operator forwards them itself.

    **Hot loops** create stored keys with `window_key(key, start)` and continue as with a key-value
    table: with `cache.entries` by the rules of `RecordCache`, or without a cache with
    `read_encoded_many` and `write_encoded_many`.

    **Aliasing.** As in `TimestampedTable`, values that were read are newly decoded or immutable.
    Values that were put belong to the cache until it is flushed, so do not pass on the same object
    unless `immutable` (see `private_copy`).

    Follows Kafka Streams for expired windows: they cannot be read, and a put is dropped (and
    counted), but still logged, cached and forwarded.

    Args:
        duplicates: the same object as `base` if it stores duplicates and supports batches.
        layers: the topmost layer: the cache, if there is one.
        changelog: used to log duplicates; the layers log all other changes.
        retain_duplicates: whether all values with the same key and time are kept, as joins require.
            Putting None then deletes nothing, but is logged.
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
        self._last_stored_seqnum = 0
        # Methods for bytes, for the public stores.
        self.read_key = layers.read_key
        self.read_keys = layers.read_keys

    # --- one record at a time --------------------------------------------------------------------

    @property
    def observed_time(self) -> int:
        """The latest window start written below the cache; -1 before the first write."""
        return self._base.observed_time

    def expired_keys(self, stored_keys: Sequence[bytes]) -> frozenset[bytes]:
        """Return the expired keys among `stored_keys`, which can no longer be read."""
        first, time_of = self._base.readable_from, WINDOWS.time_of
        size = WINDOWS.suffix_bytes
        # Only a few distinct windows are requested at a time.
        if first <= 0 or all(
            time_of(each) >= first for each in {key[-size:] for key in stored_keys}
        ):
            return frozenset()
        return frozenset(key for key in stored_keys if time_of(key) < first)

    def fetch(self, key: bytes, start: int) -> TimedValue | None:
        cache = self.cache
        if cache is not None and self.immutable:
            return cache.read(window_key(key, start))
        raw = self.fetch_raw(key, start)
        return None if raw is None else self.split(raw)

    def fetch_between(self, key: bytes, first: int, last: int) -> list[WindowValue]:
        """Return the windows of a key that start from time `first` to `last`, by start.

        Duplicates are in the order in which they were put.

        Args:
            first: the earliest start, in milliseconds; negative values count as 0.
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
        """Return all windows that start from time `first` to `last`, with timestamps.

        A time-ordered store returns them by start, then by key; other stores return them in their
        own order (see `TimedStore.read_keys`). The cost depends on the number of entries in the
        time range, or, in a RocksDB store that is not time-ordered, in all segments of the range.
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
            timestamp: the timestamp of the value; for deletions and in stores without timestamps,
                that of the record.
            place: the input partition. This and the following arguments are used by the cache.
            headers: also used in the changelog if the store has `log_headers`.
        """
        if self.cache is not None:
            self.cache.write(window_key(key, start), value, timestamp, place, offset, headers)
        else:
            self.put_encoded(key, start, self.encode(value), timestamp, headers)

    # --- batches ---------------------------------------------------------------------------------

    def read_encoded_many(self, stored_keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return the serialized value and the timestamp of each `window_key`, in order."""
        split = self._format.split
        return [None if raw is None else split(raw) for raw in self._layers.get_many(stored_keys)]

    def write_encoded_many(
        self,
        stored_keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
    ) -> None:
        """Put serialized values by `window_key`, in order. Not for duplicates."""
        stored = self._format.join_many(values, timestamps)
        self._layers.put_many(stored_keys, stored, timestamps)

    def put_duplicate(self, key: bytes, start: int, data: bytes | None, timestamp: int) -> bytes:
        """Store a serialized value as a duplicate; return its key for `log_duplicates`.

        Follows Kafka Streams: None deletes nothing, as it does not identify a duplicate. It still
        gets a sequence number and must be logged, and advances the stream time of in-memory stores.
        """
        base = self._base
        seqnum = base.last_seqnum = (base.last_seqnum + 1) & MAX_SEQNUM
        stored = window_key(key, start, seqnum)
        if data is not None:
            self._last_stored_seqnum = seqnum
            base.put_at(stored, self._format.join(data, timestamp), start)
        elif not base.persistent:
            base.put(stored, None, timestamp)
        return stored

    def has_in_memory(self, first: int) -> bool:
        """Return whether batches of `new_batch` find all readable data from a time on."""
        return self._duplicates is not None and self._duplicates.has_in_memory(first)

    def has_seqnums_left(self, count: int) -> bool:
        """Return whether enough ascending sequence numbers are left for a batch."""
        return self._base.last_seqnum + count <= MAX_SEQNUM

    def new_batch(
        self, keys: Sequence[bytes], starts: Sequence[int], datas: Sequence[bytes | None]
    ) -> DuplicateBatch:
        """Create a batch of duplicates that are about to be stored.

        The search for a record finds the preceding ones (see `DuplicateBatch`), and all are stored
        together (`write_batch`): 1.6 us each, compared to 4 us with `put_duplicate`. The caller
        must also log them.

        Args:
            starts: the window starts, which are also the timestamps of the values.
            datas: the serialized values; None only consumes a sequence number.
        """
        store = self._duplicates
        assert store is not None, f"store {self.name} does not support batches"
        first = store.last_seqnum + 1
        seqnums = range(first, first + len(keys))
        store.last_seqnum += len(keys)
        stored = list(window_keys(keys, starts, seqnums))
        values = self._format.join_many(datas, starts)
        entries = [
            None if value is None else (start, key, value)
            for start, key, value in zip(starts, stored, values, strict=True)
        ]
        # Skip the sequence numbers of None values, which are not stored.
        self._last_stored_seqnum = next(
            (
                seqnum
                for seqnum, value in zip(reversed(seqnums), reversed(values), strict=True)
                if value is not None
            ),
            self._last_stored_seqnum,
        )
        return DuplicateBatch(store, keys, starts, stored, entries)

    def write_batch(self, batch: DuplicateBatch) -> None:
        """Store a batch; the caller must log it."""
        if self._duplicates is not None and batch.entries:
            self._duplicates.write_batch(batch)

    def decode_stored(self, stored: Sequence[bytes]) -> list[tuple[Any, int]]:
        """Decode stored values into new objects; return each value and its timestamp.

        Raises:
            BatchSerializationError: the value serde rejected a value.
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
        """Log stored duplicates, in order. A call costs about as much as one record."""
        logged_headers = headers if self._log_headers else None
        self._changelog.log_many(stored_keys, values, timestamps, logged_headers)

    # --- bytes, for the public stores ------------------------------------------------------------

    def fetch_raw(self, key: bytes, start: int) -> bytes | None:
        if not self.retain_duplicates:
            return self._layers.get(window_key(key, start))
        # Follows Kafka Streams: this only finds the last duplicate put so far, if it belongs to
        # this window; in-memory stores find none.
        return (
            self._base.get(window_key(key, start, self._last_stored_seqnum))
            if self._base.persistent
            else None
        )

    def put_encoded(
        self,
        key: bytes,
        start: int,
        data: bytes | None,
        timestamp: int,
        headers: Headers = (),
    ) -> None:
        """Store a serialized value.

        A cache uses the context of the record being processed.
        """
        if self.retain_duplicates:
            stored = self.put_duplicate(key, start, data, timestamp)
            self.log_duplicates((stored,), (data,), (timestamp,), (headers,) if headers else None)
        else:
            self._layers.put(window_key(key, start), self._format.join(data, timestamp), timestamp)

    def split(self, raw: bytes) -> TimedValue:
        """Decode a stored value; return the value and its timestamp."""
        data, timestamp = self._format.split(raw)
        return self._value_serde.deserialize(self._topic, data), timestamp

"""A session store as the DSL's operators use it: keys in bytes, values as objects."""

from __future__ import annotations

from typing import Any

from millstream.record import UNKNOWN, Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.keyvalue.encoded_table import EncodedTable
from millstream.state.storage.bytes_store import ByteItems
from millstream.state.storage.timed_store import CommittableTimedStore, StoredPairs, TimedStore
from millstream.state.windows.window_cache import WindowCache
from millstream.state.windows.window_keys import SESSIONS, StoredKeySerde, session_key, session_of
from millstream.windowed import MAX_TIME_MS, Windowed

#: The start and the end of a session, and its value.
SessionValue = tuple[int, int, Any]


class SessionTable(EncodedTable):
    """The store behind a table of sessions.

    Keys are serialized record keys (`encode_keys`), without their session. Values have no
    timestamps: the end of a session is its time.

    With a cache, what `put` and `remove` change is forwarded when the cache is flushed
    (`cache.flush()`, and `cache.evict()` once a batch), if the operator has set
    `cache.forwards_changes`; the keys of such changes are `Windowed`, and their timestamps those
    of the records, where Kafka Streams forwards the end of the session. Without a cache, changes
    are written and logged at once, and the operator forwards them itself.

    **Aliasing.** What is read is a fresh decode or an immutable value. What is put belongs to the
    cache until it is flushed, so do not hand on the same object unless `immutable` (see `own`).

    Follows Kafka Streams where something is too old for the store: it cannot be read, and a put is
    dropped (and counted), but logged, cached and forwarded all the same.

    Args:
        name: the store's name.
        base: the lowest layer.
        layers: the topmost layer: the cache if there is one.
        cache: the record cache among the layers, None without caching.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        value_serde: for values.
        retention_ms: how long sessions are kept, counted from their end.
    """

    def __init__(
        self,
        name: str,
        base: CommittableTimedStore,
        *,
        layers: TimedStore,
        cache: WindowCache | None,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        retention_ms: int,
    ) -> None:
        super().__init__(name, topic=topic, key_serde=key_serde, value_serde=value_serde)
        self.cache = cache
        self.retention_ms = retention_ms
        self._base = base
        self._layers = layers
        self._stored_key_serde = StoredKeySerde(key_serde, SESSIONS)

    # --- one record at a time --------------------------------------------------------------------

    @property
    def observed_time(self) -> int:
        """The latest end that was written to the store below the cache; -1 if none was."""
        return self._base.observed_time

    def find(self, key: bytes, earliest_end: int, latest_start: int) -> list[SessionValue]:
        """The sessions of a key that touch some time, by end.

        Of those that end together the first to start comes first in RocksDB, the last in memory.

        Args:
            key: the serialized key.
            earliest_end: sessions that end before are left out; negative ones count as 0.
            latest_start: sessions that start after are left out.
        """
        decode, topic = self._value_serde.deserialize, self._topic
        found: list[SessionValue] = []
        if self.cache is None or not self.immutable:
            for stored, raw in self._layers.read_key(key, earliest_end, MAX_TIME_MS):
                start, end = session_of(stored)
                if start <= latest_start:
                    found.append((start, end, decode(topic, raw)))
            return found
        for stored, entry, raw in self.cache.windows_of(key, earliest_end, MAX_TIME_MS):
            start, end = session_of(stored)
            if start > latest_start:
                continue
            if entry is not None and entry.raw is None:
                found.append((start, end, entry.value))
            else:
                found.append((start, end, decode(topic, raw if entry is None else entry.raw)))
        return found

    def find_ended(self, first: int, last: int) -> list[tuple[Windowed[Any], Any]]:
        """The sessions of all keys that end within some time, with their values.

        By end; in RocksDB then by start and key if the store is time-ordered, in memory by key and
        start. Costs what `WindowTable.fetch_all` costs. What is cached is not seen.

        Args:
            first: the earliest end, in milliseconds.
            last: the latest end, included.
        """
        pairs = list(self._base.read_expired_too(first, last))
        topic = self._topic
        keys = self._stored_key_serde.deserialize_many(topic, [pair[0] for pair in pairs])
        values = self._value_serde.deserialize_many(topic, [pair[1] for pair in pairs])
        return list(zip(keys, values, strict=True))

    def fetch(self, key: bytes, start: int, end: int) -> Any:
        """The value of exactly this session, None if there is none."""
        cache = self.cache
        if cache is None or not self.immutable:
            return self.decode(self.fetch_raw(key, start, end))
        found = cache.read(session_key(key, start, end))
        return None if found is None else found[0]

    def put(
        self,
        key: bytes,
        start: int,
        end: int,
        value: Any,
        timestamp: int,
        place: TopicPartition | None = None,
        offset: int = UNKNOWN,
        headers: Headers = (),
        *,
        is_new: bool = False,
    ) -> None:
        """Store the value of a session; None removes it.

        Args:
            key: the serialized key.
            start: of the session, in milliseconds.
            end: of the session, in milliseconds.
            value: the value.
            timestamp: of the record, for the changelog.
            place: where the record was read; for the cache, like the rest.
            offset: its offset.
            headers: its headers.
            is_new: whether it is known that there is no such session.
        """
        stored = session_key(key, start, end)
        if self.cache is None:
            self._layers.put(stored, self.encode(value), timestamp)
        else:
            self.cache.write(stored, value, timestamp, place, offset, headers, is_absent=is_new)

    def remove(
        self,
        key: bytes,
        start: int,
        end: int,
        timestamp: int,
        place: TopicPartition | None = None,
        offset: int = UNKNOWN,
        headers: Headers = (),
    ) -> None:
        """Remove a session; see `put`."""
        if self.cache is None:
            self._layers.remove(session_key(key, start, end), timestamp)
        else:
            self.put(key, start, end, None, timestamp, place, offset, headers)

    def replace(
        self,
        key: bytes,
        old: tuple[int, int],
        start: int,
        end: int,
        value: Any,
        timestamp: int,
        place: TopicPartition | None = None,
        offset: int = UNKNOWN,
        headers: Headers = (),
    ) -> None:
        """Remove a session, and store the one that it grows to; see `put`.

        Args:
            key: the serialized key.
            old: start and end of the one that goes.
            start: of the one that comes, in milliseconds.
            end: of the one that comes, in milliseconds.
            value: of the one that comes.
            timestamp: of the record, for the changelog.
            place: where the record was read; for the cache, like the rest.
            offset: its offset.
            headers: its headers.
        """
        caused = (timestamp, place, offset, headers)
        if self.cache is None:
            self.remove(key, old[0], old[1], *caused)
            self.put(key, start, end, value, *caused)
        else:
            stored, new = session_key(key, *old), session_key(key, start, end)
            self.cache.replace(stored, new, value, *caused)

    # --- bytes, for the public store -------------------------------------------------------------

    def fetch_raw(self, key: bytes, start: int, end: int) -> bytes | None:
        """The stored form of the value of a session."""
        return self._layers.get(session_key(key, start, end))

    def read_key(self, key: bytes, earliest_end: int) -> StoredPairs:
        """The stored keys and values of the sessions of a key that end at some time or later."""
        return self._layers.read_key(key, earliest_end, MAX_TIME_MS)

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

    def put_encoded(self, stored_key: bytes, data: bytes | None, timestamp: int) -> None:
        """Store a serialized value; with a cache as of the record being processed."""
        self._layers.put(stored_key, data, timestamp)

    def remove_stored(self, stored_key: bytes, timestamp: int) -> None:
        """Remove a session; with a cache as of the record being processed."""
        self._layers.remove(stored_key, timestamp)

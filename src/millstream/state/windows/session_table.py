"""The session store for the DSL's operators: keys as bytes, values as objects."""

from __future__ import annotations

from typing import Any

from millstream.record import UNKNOWN, Headers, TopicPartition
from millstream.serdes import Serde
from millstream.state.keyvalue.key_value_table import EncodedTable
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

    With a cache, changes of `put` and `remove` are forwarded when the cache is flushed
    (`cache.flush()`, and `cache.evict()` once per batch), if the operator has set
    `cache.forwards_changes`. The keys of such changes are `Windowed`, and their timestamps are
    those of the records, whereas Kafka Streams forwards the end of the session. Without a cache,
    changes are written and logged immediately, and the operator forwards them itself.

    **Aliasing.** Values that were read are newly decoded or immutable. Values that were put belong
    to the cache until it is flushed, so do not pass on the same object unless `immutable` (see
    `private_copy`).

    Follows Kafka Streams for expired sessions: they cannot be read, and a put is dropped (and
    counted), but still logged, cached and forwarded.

    Args:
        layers: the topmost layer: the cache, if there is one.
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
        # Methods for bytes, for the public stores. A cache uses the context of the current record.
        self.read_keys = layers.read_keys
        self.put_encoded = layers.put
        self.remove_stored = layers.remove

    # --- one record at a time --------------------------------------------------------------------

    @property
    def observed_time(self) -> int:
        """The latest session end written below the cache; -1 before the first write."""
        return self._base.observed_time

    def find(self, key: bytes, earliest_end: int, latest_start: int) -> list[SessionValue]:
        """Return the sessions of a key that overlap a time range, sorted by end.

        Sessions with the same end are sorted by start: ascending in RocksDB, descending in memory.

        Args:
            earliest_end: the earliest end of a session; negative values count as 0.
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
        """Return all sessions that end from time `first` to `last`, with their values.

        They are sorted by end, and then by start and key in a time-ordered RocksDB store, or by key
        and start in memory. The cost is that of `WindowTable.fetch_all`. Cached changes are not
        included.
        """
        pairs = list(self._base.read_including_expired(first, last))
        topic = self._topic
        keys = self._stored_key_serde.deserialize_many(topic, [pair[0] for pair in pairs])
        values = self._value_serde.deserialize_many(topic, [pair[1] for pair in pairs])
        return list(zip(keys, values, strict=True))

    def fetch(self, key: bytes, start: int, end: int) -> Any:
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
            place: the input partition. This and the following arguments are used by the cache.
            is_new: whether the session is known not to exist.
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
        """Replace a session with an extended one; see `put`.

        `old` is the start and end of the session to remove.
        """
        caused = (timestamp, place, offset, headers)
        if self.cache is None:
            self.remove(key, old[0], old[1], *caused)
            self.put(key, start, end, value, *caused)
        else:
            stored, new = session_key(key, *old), session_key(key, start, end)
            self.cache.replace(stored, new, value, *caused)

    # --- bytes, for the public stores ------------------------------------------------------------

    def fetch_raw(self, key: bytes, start: int, end: int) -> bytes | None:
        return self._layers.get(session_key(key, start, end))

    def read_key(self, key: bytes, earliest_end: int) -> StoredPairs:
        """Return the stored pairs of a key's sessions that end at a time or later."""
        return self._layers.read_key(key, earliest_end, MAX_TIME_MS)

"""A timestamped key-value store as the DSL's operators use it: a batch of keys at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.serdes import Serde
from millstream.state.caches.eviction import GONE
from millstream.state.caches.record_cache import RecordCache
from millstream.state.keyvalue.encoded_table import EncodedTable
from millstream.state.storage.bytes_store import BytesStore
from millstream.state.storage.value_formats import TIMESTAMPED

#: A value and its timestamp: a plain tuple, as making a `ValueAndTimestamp` takes 0.15 us longer.
TimedValue = tuple[Any, int]


class TimestampedTable(EncodedTable):
    """The store behind a KTable.

    With a cache, operators that update work on `cache.entries` (see `RecordCache`). Without one
    they `read_many` the distinct keys of a batch, compute, and `write_many` every single update,
    since each of them goes to the changelog. Either way others read by `get` and `read_many`.

    **Aliasing.** What the read methods give is never shared: a fresh decode, or an immutable value.
    Where one key comes twice in an uncached batch and values are not `immutable`, each new value
    must be encoded before it is forwarded (`encode`, then `write_encoded_many`) and decoded again
    for the key's next record, as the user's function may change in place what it is given.

    Args:
        name: the store's name.
        layers: the topmost bytes layer: the cache if there is one.
        cache: the record cache, None without caching.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        value_serde: for values.
    """

    def __init__(
        self,
        name: str,
        layers: BytesStore,
        *,
        cache: RecordCache | None,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
    ) -> None:
        super().__init__(name, topic=topic, key_serde=key_serde, value_serde=value_serde)
        self.cache = cache
        self._layers = layers

    def get(self, key_bytes: bytes) -> TimedValue | None:
        """The value of a key, None if there is none."""
        # Joins of tables come here for each record: a third of the time of read_many.
        cache = self.cache
        if cache is not None and self.immutable:
            entry = cache.entries.get(key_bytes)
            if entry is not None:
                if entry.value is None:
                    return None
                if entry.used_seq != GONE:
                    cache.seq = entry.used_seq = cache.seq + 1
                return entry.value, entry.timestamp
        stored = self._layers.get(key_bytes)
        if stored is None:
            return None
        data, timestamp = TIMESTAMPED.split(stored)
        return self.decode(data), timestamp

    def read_many(self, keys: Sequence[bytes]) -> list[TimedValue | None]:
        """The value of each serialized key, in their order."""
        if self.cache is not None and self.immutable:
            return self._read_objects(self.cache, keys)
        return self._decoded(self._layers.get_many(keys))

    def read_encoded_many(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """The serialized value of each serialized key and its timestamp, in their order."""
        split = TIMESTAMPED.split
        return [None if raw is None else split(raw) for raw in self._layers.get_many(keys)]

    def write_many(
        self, keys: Sequence[bytes], values: Sequence[Any], timestamps: Sequence[int]
    ) -> None:
        """Put values, in order. None deletes; its timestamp is that of the deleting record."""
        self.write_encoded_many(
            keys, self._value_serde.serialize_many(self._topic, values), timestamps
        )

    def write_encoded_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        """Put values that are serialized already, in order."""
        self._layers.put_many(keys, TIMESTAMPED.join_many(values, timestamps), timestamps)

    def _read_objects(self, cache: RecordCache, keys: Sequence[bytes]) -> list[TimedValue | None]:
        # Held before others are read, as reading may push entries out.
        hits = list(map(cache.entries.get, keys))
        missed = [key for key, entry in zip(keys, hits, strict=True) if entry is None]
        found = iter(self._decoded(cache.get_many(missed)))
        values: list[TimedValue | None] = []
        for entry in hits:
            if entry is None:
                values.append(next(found))
            elif entry.value is None:
                values.append(None)
            else:
                if entry.used_seq != GONE:
                    cache.seq = entry.used_seq = cache.seq + 1
                values.append((entry.value, entry.timestamp))
        return values

    def _decoded(self, stored: Sequence[bytes | None]) -> list[TimedValue | None]:
        values = self._value_serde.deserialize_many(self._topic, TIMESTAMPED.values_of(stored))
        pairs = zip(values, TIMESTAMPED.timestamps(stored), strict=True)
        return [None if raw is None else pair for raw, pair in zip(stored, pairs, strict=True)]

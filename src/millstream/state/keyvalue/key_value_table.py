"""The DSL operators' stores: the base class and the timestamped key-value store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.serdes import Serde
from millstream.state.caches.cache_entries import GONE
from millstream.state.caches.record_cache import RecordCache
from millstream.state.storage.bytes_store import BytesStore
from millstream.state.storage.value_formats import TIMESTAMPED

#: A value and its timestamp. A plain tuple, as creating a `ValueAndTimestamp` costs 0.15 us more.
TimedValue = tuple[Any, int]


class EncodedTable:
    """The base class of store interfaces for operators.

    It converts between objects and bytes.
    """

    def __init__(
        self, name: str, *, topic: str, key_serde: Serde[Any], value_serde: Serde[Any]
    ) -> None:
        self.name = name
        #: Whether values are immutable and may therefore be shared.
        self.immutable = value_serde.immutable
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde

    def encode_keys(self, keys: Sequence[Any]) -> list[bytes]:
        """Serialize keys. None is not allowed: filter out records without a key first.

        Raises:
            BatchSerializationError: the key serde rejected a key.
        """
        encoded: list[Any] = self._key_serde.serialize_many(self._topic, keys)
        return encoded

    def encode(self, value: Any) -> bytes | None:
        return self._value_serde.serialize(self._topic, value)

    def encode_many(self, values: Sequence[Any]) -> list[bytes | None]:
        """Serialize values into a new list.

        Raises:
            BatchSerializationError: the value serde rejected a value.
        """
        return self._value_serde.serialize_many(self._topic, values)

    def decode(self, data: bytes | None) -> Any:
        """Deserialize a value into a new object."""
        return self._value_serde.deserialize(self._topic, data)

    def expired_keys(self, stored_keys: Sequence[bytes]) -> frozenset[bytes]:
        """Return the expired keys among `stored_keys`; always empty for key-value stores."""
        return frozenset()

    def private_copy(self, value: Any) -> Any:
        """Return an equal value that the caller may modify.

        This is a copy, unless values are immutable.
        """
        return value if self.immutable else self.decode(self.encode(value))


class TimestampedTable(EncodedTable):
    """The store behind a KTable.

    With a cache, updating operators work on `cache.entries` (see `RecordCache`). Without one, they
    read the distinct keys of a batch (`read_many`), compute, and write every update (`write_many`),
    since each update goes to the changelog. Other operators read with `get` and `read_many`.

    **Aliasing.** Values that were read are never shared: each is newly decoded or immutable. If a
    key occurs twice in an uncached batch and values are not `immutable`, encode each new value
    before it is forwarded (`encode`, then `write_encoded_many`) and decode it again for the key's
    next record, as the user's function may modify its argument in place.

    Args:
        layers: the topmost bytes layer: the cache, if there is one.
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
        # Table joins call this for each record, as it takes a third of the time of read_many.
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
        if self.cache is not None and self.immutable:
            return self._read_objects(self.cache, keys)
        return self._decoded(self._layers.get_many(keys))

    def read_encoded_many(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return the serialized value and the timestamp of each serialized key, in order."""
        split = TIMESTAMPED.split
        return [None if raw is None else split(raw) for raw in self._layers.get_many(keys)]

    def write_many(
        self, keys: Sequence[bytes], values: Sequence[Any], timestamps: Sequence[int]
    ) -> None:
        """Put values, in order.

        None deletes the key, with the timestamp of the deleting record.
        """
        self.write_encoded_many(
            keys, self._value_serde.serialize_many(self._topic, values), timestamps
        )

    def write_encoded_many(
        self, keys: Sequence[bytes], values: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> None:
        self._layers.put_many(keys, TIMESTAMPED.join_many(values, timestamps), timestamps)

    def _read_objects(self, cache: RecordCache, keys: Sequence[bytes]) -> list[TimedValue | None]:
        # Get the cached entries before reading the others, as reading may evict entries.
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

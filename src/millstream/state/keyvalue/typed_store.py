"""The base class of stores for processors and queries, and their input position."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Generic, TypeVar

from millstream.errors import InvalidStateStoreError, NullKeyError, StreamsError
from millstream.record import TopicPartition, ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.store_changelog import ProcessorRecordContext
from millstream.state.queries.requests.position import Position
from millstream.state.storage.iterators import KeyValueIterator

K = TypeVar("K")
L = TypeVar("L")
ItemK = TypeVar("ItemK")
ItemV = TypeVar("ItemV")


class StorePosition:
    """For each input partition, the offset of the last record that caused a write.

    Follows Kafka Streams' `StoreQueryUtils.updatePosition`: writes of punctuators do not count.
    Writes that are only in the record cache are tracked separately, as some queries skip
    the cache.
    """

    def __init__(self, *, cached: bool = False) -> None:
        self._cached = cached
        self._seen: dict[TopicPartition, int] = {}
        self._written: dict[TopicPartition, int] = {}

    def update(self, record: ProcessorRecordContext) -> None:
        place = record.place
        if place is not None and record.offset > self._seen.get(place, -1):
            self._seen[place] = record.offset

    def mark_flushed(self) -> None:
        """Mark the contents of the cache as written."""
        self._written.update(self._seen)

    def position(self, *, skip_cache: bool = False) -> Position:
        """Return the current position.

        With `skip_cache`, return the position of the layers below the cache.
        """
        below = self._written if skip_cache and self._cached else self._seen
        offsets: dict[str, dict[int, int]] = {}
        for place, offset in below.items():
            offsets.setdefault(place.topic, {})[place.partition] = offset
        return Position(offsets)


class TypedStore(Generic[K, L]):
    """A store of objects on top of a layer of type L."""

    def __init__(
        self,
        name: str,
        layer: L,
        *,
        topic: str,
        key_serde: Serde[Any],
        persistent: bool,
        cache: RecordCache | None = None,
    ) -> None:
        self.name = name
        #: Whether the state survives the process.
        self.persistent = persistent
        self._layer = layer
        self._topic = topic
        self._key_serde = key_serde
        self._cache = cache
        self._is_open = True
        #: The input position, updated by each put.
        self.position: StorePosition = StorePosition(cached=cache is not None)
        if cache is not None:
            cache.on_flush = self.position.mark_flushed

    @property
    def is_open(self) -> bool:
        """Whether the store can be used."""
        return self._is_open

    def close(self) -> None:
        """Reject all further calls. The task calls this when it closes its stores.

        Example:
            >>> visits.close()
            >>> visits.is_open
            False
        """
        self._is_open = False

    def _open(self) -> L:
        if not self._is_open:
            raise InvalidStateStoreError(
                f"Store {self.name} is currently closed. Its task has probably moved or ended; "
                "get the store again."
            )
        return self._layer

    def _key(self, key: K) -> bytes:
        key_bytes = self._key_serde.serialize(self._topic, key)
        if key_bytes is None:
            raise self._null_key_error("a key")
        return key_bytes

    def _null_key_error(self, what: str) -> NullKeyError:
        return NullKeyError(
            f"Store {self.name} needs {what}, but got None. Filter out records without a key first."
        )

    def _prefix(self, prefix: Any, serde: Serde[Any]) -> bytes:
        """Serialize a key prefix."""
        data = prefix_bytes(self.name, self._topic, prefix, serde)
        if data is None:
            raise self._null_key_error("a prefix")
        return data

    def _split_timestamp(self, value: Any, timestamp: int) -> tuple[Any, int]:
        """Return the value and timestamp to store.

        Args:
            timestamp: the record's timestamp, used for a deletion.
        """
        if value is None:
            return None, timestamp
        if not isinstance(value, ValueAndTimestamp):
            raise StreamsError(
                f"Store {self.name} stores timestamps, but got {type(value).__name__} without "
                "one. Put ValueAndTimestamp(value, timestamp)."
            )
        return value.value, timestamp if value.value is None else value.timestamp

    def _iterator(
        self, items: Generator[tuple[ItemK, ItemV], None, None]
    ) -> KeyValueIterator[ItemK, ItemV]:
        return KeyValueIterator(self.name, items, lambda: self._is_open)

    def _after_put(self, record: ProcessorRecordContext) -> None:
        """Update the position and evict from the cache after a put."""
        cache = self._cache
        self.position.update(record)
        # If an operator forwards the changes, that operator evicts entries.
        if cache is not None and not cache.forwards_changes:
            cache.evict()


def prefix_bytes(store: str, topic: str, prefix: Any, serde: Serde[Any]) -> bytes | None:
    """Serialize a key prefix; return None if the serde does.

    Raises:
        TypeError: `serde` is not a Serde.
    """
    if not isinstance(serde, Serde):
        raise TypeError(
            f"prefix_scan() of store {store} needs a Serde as its prefix_serde, but got {serde!r}. "
            "Use one from millstream.serdes that encodes prefixes in the same way as the keys."
        )
    return serde.serialize(topic, prefix)

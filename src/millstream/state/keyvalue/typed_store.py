"""What the stores that processors and queries see have in common: open or not, keys, eviction."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from millstream.errors import InvalidStateStoreError, NullKeyError, StreamsError
from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.queries.store_position import StorePosition

K = TypeVar("K")
L = TypeVar("L")


class TypedStore(Generic[K, L]):
    """A store that takes and gives objects, above a layer of type L.

    Args:
        name: the store's name.
        layer: what lies below.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        persistent: whether the state survives the process.
        cache: the record cache below, if there is one.
    """

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
        #: How far it is, by what was put here.
        self.position = StorePosition(cached=cache is not None)
        if cache is not None:
            cache.on_flush = self.position.flushed

    @property
    def is_open(self) -> bool:
        """Whether the store can be used."""
        return self._is_open

    def close(self) -> None:
        """Refuse all calls from now on. Called by the task when it closes its stores.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.close()
            >>> visits.is_open
            False
        """
        self._is_open = False

    def _open(self) -> L:
        if not self._is_open:
            raise InvalidStateStoreError(
                f"Store {self.name} is currently closed. Probably its task has moved or ended; "
                "get the store anew."
            )
        return self._layer

    def _key(self, key: K) -> bytes:
        key_bytes = self._key_serde.serialize(self._topic, key)
        if key_bytes is None:
            raise self._no_key("a key")
        return key_bytes

    def _no_key(self, what: str) -> NullKeyError:
        return NullKeyError(
            f"Store {self.name} needs {what}, but got None. Leave out records without key before."
        )

    def _prefix(self, prefix: Any, serde: Serde[Any]) -> bytes:
        """A serialized prefix of keys."""
        data = prefix_bytes(self.name, self._topic, prefix, serde)
        if data is None:
            raise self._no_key("a prefix")
        return data

    def _untimed(self, value: Any, timestamp: int) -> tuple[Any, int]:
        """What a store with timestamps is given, as value and timestamp.

        Args:
            value: a `ValueAndTimestamp`; None deletes.
            timestamp: of the record, for a deletion.
        """
        if value is None:
            return None, timestamp
        if not isinstance(value, ValueAndTimestamp):
            raise StreamsError(
                f"Store {self.name} keeps timestamps, but was given {type(value).__name__} "
                "without one. Put ValueAndTimestamp(value, timestamp)."
            )
        return value.value, timestamp if value.value is None else value.timestamp

    def _put_for(self, record: RecordAtHand) -> None:
        """Something was put for this record."""
        cache = self._cache
        self.position.note(record)
        # Where changes are forwarded, the operator that forwards them evicts.
        if cache is not None and not cache.forwards_changes:
            cache.evict()


def prefix_bytes(store: str, topic: str, prefix: Any, serde: Serde[Any]) -> bytes | None:
    """A serialized prefix of keys; None if the serde has nothing for it.

    Args:
        store: the store's name.
        topic: for which keys are serialized.
        prefix: the prefix.
        serde: of the prefix.

    Raises:
        TypeError: the serde is none.
    """
    if not isinstance(serde, Serde):
        raise TypeError(
            f"prefix_scan() of store {store} needs a Serde as its prefix_serde, but got {serde!r}. "
            "Take one from millstream.serdes that writes prefixes as the keys are written."
        )
    return serde.serialize(topic, prefix)

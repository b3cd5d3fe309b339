"""Key-value stores for processors and queries."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.logged_stores import LoggedLRUStore
from millstream.state.changelogs.store_changelog import ProcessorRecordContext
from millstream.state.keyvalue.typed_store import TypedStore
from millstream.state.storage.bytes_store import (
    ByteItems,
    BytesStore,
    end_including,
    end_of_prefix,
    iterate,
)
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.storage.value_formats import ValueFormat

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


class KeyValueStore(TypedStore[K, BytesStore], Generic[K, V]):
    """A store of one value per key (Kafka Streams' `KeyValueStore`).

    In a timestamped store, values are `ValueAndTimestamp`. Iteration follows the order of the
    serialized keys: negative numbers come after positive ones.

    Values that were read may be kept and modified: they are not shared with the store. Values are
    serialized when they are put, so later changes do not affect the store.

    The examples of the methods start with an empty store `visits` of strings and integers.

    Example:
        >>> class Count(Processor[str, str, str, int]):
        ...     def init(self, context: ProcessorContext[str, int]) -> None:
        ...         super().init(context)
        ...         self.visits: KeyValueStore[str, int] = context.get_state_store("visits")
        ...     def process(self, record: Record[str, str]) -> None:
        ...         self.visits.put(record.key, (self.visits.get(record.key) or 0) + 1)
        >>> visits = Stores.key_value_builder(Stores.persistent_key_value("visits"), STRING, LONG)
        >>> builder = StreamsBuilder().add_state_store(visits)
        >>> pages = builder.stream("pages", key=STRING, value=STRING)
        >>> _ = pages.process(Count, stores=["visits"])
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     topic = driver.create_input_topic("pages", key=STRING, value=STRING)
        ...     topic.pipe_key_values([("ann", "/"), ("bob", "/"), ("ann", "/cart")])
        ...     dict(driver.get_state_store("visits").all())
        {'ann': 2, 'bob': 1}
    """

    def __init__(
        self,
        name: str,
        layers: BytesStore,
        value_format: ValueFormat,
        *,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        persistent: bool,
        context: ProcessorRecordContext,
        cache: RecordCache | None = None,
    ) -> None:
        super().__init__(
            name, layers, topic=topic, key_serde=key_serde, persistent=persistent, cache=cache
        )
        self._format = value_format
        self._value_serde = value_serde
        self._context = context
        # Hot path: choose the function once. Its result is Any, as the builder determines V.
        self._value: Callable[[bytes], Any] = (
            self._timed_value if value_format.timestamped else self._plain_value
        )
        self._put_all = layers.put_all if isinstance(layers, LoggedLRUStore) else layers.put_many
        self._warned_empty_range = False

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None.

        Raises:
            InvalidStateStoreError: the store is closed. All methods raise this.
            NullKeyError: the key is None. All methods that take a key raise this.

        Example:
            >>> visits.put("ann", 3)
            >>> visits.get("ann"), visits.get("bob")
            (3, None)
        """
        stored = self._open().get(self._key(key))
        return None if stored is None else self._value(stored)

    def put(self, key: K, value: V | None) -> None:
        """Store a value; None deletes the key.

        Example:
            >>> visits.put("ann", 3)
            >>> visits.put("ann", None)
            >>> visits.get("ann")
        """
        key_bytes = self._key(key)
        stored, timestamp = self._stored(value)
        self._open().put(key_bytes, stored, timestamp)
        self._after_put(self._context)

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Store a value unless the key has one; return the previous value, or None.

        Example:
            >>> visits.put_if_absent("ann", 1)
            >>> visits.put_if_absent("ann", 2)
            1
            >>> visits.get("ann")
            1
        """
        old = self.get(key)
        if old is None:
            self.put(key, value)
        return old

    def put_all(self, items: Iterable[tuple[K, V | None]]) -> None:
        """Store several values, in order.

        Example:
            >>> visits.put_all([("ann", 3), ("bob", 1)])
            >>> dict(visits.all())
            {'ann': 3, 'bob': 1}
        """
        keys: list[bytes] = []
        values: list[bytes | None] = []
        timestamps: list[int] = []
        for key, value in items:
            keys.append(self._key(key))
            stored, timestamp = self._stored(value)
            values.append(stored)
            timestamps.append(timestamp)
        self._open()
        self._put_all(keys, values, timestamps)
        self._after_put(self._context)

    def delete(self, key: K) -> V | None:
        """Delete a key; return its previous value, or None.

        Example:
            >>> visits.put("ann", 3)
            >>> visits.delete("ann")
            3
        """
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, lo: K | None = None, hi: K | None = None) -> KeyValueIterator[K, V]:
        """Iterate over the pairs from key `lo` to `hi`, inclusive, in ascending order.

        Args:
            lo: the first key; None for no lower bound.
            hi: the last key; None for no upper bound.

        Example:
            >>> visits.put_all([("ann", 3), ("bob", 1), ("eve", 2)])
            >>> with visits.range("b", "d") as items:
            ...     list(items)
            [('bob', 1)]
        """
        return self._between(lo, hi, reverse=False)

    def reverse_range(self, lo: K | None = None, hi: K | None = None) -> KeyValueIterator[K, V]:
        """Iterate over the pairs of `range` in descending order.

        Example:
            >>> visits.put_all([("ann", 3), ("bob", 1), ("eve", 2)])
            >>> list(visits.reverse_range(None, "bob"))
            [('bob', 1), ('ann', 3)]
        """
        return self._between(lo, hi, reverse=True)

    def all(self) -> KeyValueIterator[K, V]:
        """Iterate over all pairs in ascending order.

        Example:
            >>> visits.put_all([("bob", 1), ("ann", 3)])
            >>> list(visits.all())
            [('ann', 3), ('bob', 1)]
        """
        return self._between(None, None, reverse=False)

    def reverse_all(self) -> KeyValueIterator[K, V]:
        """Iterate over all pairs in descending order.

        Example:
            >>> visits.put_all([("ann", 3), ("bob", 1)])
            >>> list(visits.reverse_all())
            [('bob', 1), ('ann', 3)]
        """
        return self._between(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serde: Serde[Any]) -> KeyValueIterator[K, V]:
        """Iterate over the pairs whose serialized key has a prefix, in ascending order.

        Args:
            prefix: the prefix, serialized with `prefix_serde`.

        Example:
            >>> visits.put_all([("ann", 3), ("anton", 1), ("bob", 2)])
            >>> list(visits.prefix_scan("an", STRING))
            [('ann', 3), ('anton', 1)]
        """
        start = self._prefix(prefix, prefix_serde)
        return self._iterate(self._open().scan(start, end_of_prefix(start)))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys.

        The number is exact for in-memory stores without a cache.

        Example:
            >>> visits.put_all([("ann", 3), ("bob", 1)])
            >>> visits.approximate_num_entries()
            2
        """
        return self._open().approximate_num_entries()

    def _stored(self, value: V | None) -> tuple[bytes | None, int]:
        inner: Any = value
        timestamp = self._context.timestamp
        if self._format.timestamped:
            inner, timestamp = self._split_timestamp(value, timestamp)
        data = self._value_serde.serialize(self._topic, inner)
        return self._format.join(data, timestamp), timestamp

    def _plain_value(self, stored: bytes) -> Any:
        return self._value_serde.deserialize(self._topic, stored)

    def _timed_value(self, stored: bytes) -> Any:
        data, timestamp = self._format.split(stored)
        return ValueAndTimestamp(self._value_serde.deserialize(self._topic, data), timestamp)

    def _between(self, lo: K | None, hi: K | None, *, reverse: bool) -> KeyValueIterator[K, V]:
        layers = self._open()
        start = None if lo is None else self._key(lo)
        last = None if hi is None else self._key(hi)
        if start is not None and last is not None and start > last:
            self._warn_empty_range()
            return self._iterate(iterate())
        return self._iterate(layers.scan(start, end_including(last), reverse=reverse))

    def _iterate(self, items: ByteItems) -> KeyValueIterator[K, V]:
        return self._iterator(self._decoded(items))

    def _decoded(self, items: ByteItems) -> Generator[tuple[K, V], None, None]:
        topic, value = self._topic, self._value
        decode: Callable[[str, bytes], Any] = self._key_serde.deserialize
        try:
            for key_bytes, stored in items:
                yield decode(topic, key_bytes), value(stored)
        finally:
            items.close()

    def _warn_empty_range(self) -> None:
        if self._warned_empty_range:
            return
        self._warned_empty_range = True
        logger.warning(
            "Store %s: the first key of a range comes after its last key in the order of "
            "serialized keys, so the range is empty. Numbers are ordered only if none of them is "
            "negative. This warning is logged once.",
            self.name,
        )

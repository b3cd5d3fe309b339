"""Key-value stores as processors and queries see them: objects in, objects out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.logged_lru import LoggedLRUStore
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.keyvalue.typed_store import TypedStore
from millstream.state.storage.bytes_store import (
    ByteItems,
    BytesStore,
    end_including,
    end_of_prefix,
)
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.storage.value_formats import ValueFormat

logger = logging.getLogger(__name__)

K = TypeVar("K")
V = TypeVar("V")


class KeyValueStore(TypedStore[K, BytesStore], Generic[K, V]):
    """A value per key (Kafka Streams' `KeyValueStore`, metered and serialized).

    In a timestamped store a value is a `ValueAndTimestamp`. Iteration follows the order of the
    serialized keys: for numbers, negative ones come after the others.

    What is read may be kept and changed: it is not shared with the store. What is put is serialized
    at once, so changing it later does not change the store.

    Args:
        name: the store's name.
        layers: the topmost bytes layer.
        value_format: whether values carry timestamps.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        value_serde: for values.
        persistent: whether the state survives the process.
        context: the record being processed; its timestamp goes to the changelog.
        cache: the record cache among the layers, if there is one.

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
        context: RecordAtHand,
        cache: RecordCache | None = None,
    ) -> None:
        super().__init__(
            name, layers, topic=topic, key_serde=key_serde, persistent=persistent, cache=cache
        )
        self._format = value_format
        self._value_serde = value_serde
        self._context = context
        # Hot: which of the two is decided once. What it gives, V, only the builder knows.
        self._value: Callable[[bytes], Any] = (
            self._timed_value if value_format.timestamped else self._plain_value
        )
        self._put_all = layers.put_all if isinstance(layers, LoggedLRUStore) else layers.put_many
        self._warned_of_order = False

    def get(self, key: K) -> V | None:
        """The value of a key, None if there is none.

        Raises:
            InvalidStateStoreError: the store is closed. All methods raise this.
            NullKeyError: the key is None. So do all methods that take a key.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put("ann", 3)
            >>> visits.get("ann"), visits.get("bob")
            (3, None)
        """
        stored = self._open().get(self._key(key))
        return None if stored is None else self._value(stored)

    def put(self, key: K, value: V | None) -> None:
        """Store a value; None deletes the key.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put("ann", 3)
            >>> visits.put("ann", None)
            >>> visits.get("ann")
        """
        key_bytes = self._key(key)
        stored, timestamp = self._stored(value)
        self._open().put(key_bytes, stored, timestamp)
        self._put_for(self._context)

    def put_if_absent(self, key: K, value: V | None) -> V | None:
        """Store a value unless the key has one; the value that was there before, or None.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
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
        """Store many values, in order.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
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
        self._put_for(self._context)

    def delete(self, key: K) -> V | None:
        """Delete a key; the value it had, or None.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put("ann", 3)
            >>> visits.delete("ann")
            3
        """
        old = self.get(key)
        self.put(key, None)
        return old

    def range(self, lo: K | None = None, hi: K | None = None) -> KeyValueIterator[K, V]:
        """The pairs from key `lo` to key `hi`, both included, in ascending order.

        Args:
            lo: the first key; None begins with the first one there is.
            hi: the last key; None ends with the last one there is.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put_all([("ann", 3), ("bob", 1), ("eve", 2)])
            >>> with visits.range("b", "d") as items:
            ...     list(items)
            [('bob', 1)]
        """
        return self._between(lo, hi, reverse=False)

    def reverse_range(self, lo: K | None = None, hi: K | None = None) -> KeyValueIterator[K, V]:
        """The pairs of `range` in descending order.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put_all([("ann", 3), ("bob", 1), ("eve", 2)])
            >>> list(visits.reverse_range(None, "bob"))
            [('bob', 1), ('ann', 3)]
        """
        return self._between(lo, hi, reverse=True)

    def all(self) -> KeyValueIterator[K, V]:
        """All pairs in ascending order.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put_all([("bob", 1), ("ann", 3)])
            >>> list(visits.all())
            [('ann', 3), ('bob', 1)]
        """
        return self._between(None, None, reverse=False)

    def reverse_all(self) -> KeyValueIterator[K, V]:
        """All pairs in descending order.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put_all([("ann", 3), ("bob", 1)])
            >>> list(visits.reverse_all())
            [('bob', 1), ('ann', 3)]
        """
        return self._between(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serde: Serde[Any]) -> KeyValueIterator[K, V]:
        """The pairs whose serialized key begins with a serialized prefix, in ascending order.

        Args:
            prefix: the prefix.
            prefix_serde: turns it into bytes.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put_all([("ann", 3), ("anton", 1), ("bob", 2)])
            >>> list(visits.prefix_scan("an", STRING))
            [('ann', 3), ('anton', 1)]
        """
        start = self._prefix(prefix, prefix_serde)
        return self._iterate(self._open().scan(start, end_of_prefix(start)))

    def approximate_num_entries(self) -> int:
        """About how many keys there are. Exact for in-memory stores without cache.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = MockProcessorContext().add_state_store(
            ...     Stores.key_value_builder(in_memory, STRING, LONG)
            ... )
            >>> visits.put_all([("ann", 3), ("bob", 1)])
            >>> visits.approximate_num_entries()
            2
        """
        return self._open().approximate_num_entries()

    def _stored(self, value: V | None) -> tuple[bytes | None, int]:
        inner: Any = value
        timestamp = self._context.timestamp
        if self._format.timestamped:
            inner, timestamp = self._untimed(value, timestamp)
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
            self._warn_of_order()
            return self._iterate(_nothing())
        return self._iterate(layers.scan(start, end_including(last), reverse=reverse))

    def _iterate(self, items: ByteItems) -> KeyValueIterator[K, V]:
        return KeyValueIterator(self.name, self._decoded(items), lambda: self._is_open)

    def _decoded(self, items: ByteItems) -> Generator[tuple[K, V], None, None]:
        topic, value = self._topic, self._value
        decode: Callable[[str, bytes], Any] = self._key_serde.deserialize
        try:
            for key_bytes, stored in items:
                yield decode(topic, key_bytes), value(stored)
        finally:
            items.close()

    def _warn_of_order(self) -> None:
        if self._warned_of_order:
            return
        self._warned_of_order = True
        logger.warning(
            "Store %s: a range was asked for whose first key comes after its last one in the order "
            "of serialized keys, so it is empty. Numbers are in order only while none of them is "
            "negative. This is said once.",
            self.name,
        )


def _nothing() -> ByteItems:
    yield from ()

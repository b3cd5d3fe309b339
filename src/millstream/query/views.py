"""Read-only views of stores across all partitions.

The views correspond to Kafka Streams' `ReadOnlyKeyValueStore`, `ReadOnlyWindowStore` and
`ReadOnlySessionStore`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

from millstream.query.page_iterator import StoreIterator
from millstream.serdes import Serde
from millstream.state.keyvalue.typed_store import prefix_bytes
from millstream.state.queries.codec import Pairs, StoreCodec, count_of
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.windowed import MAX_TIME_MS, Windowed

K = TypeVar("K")
V = TypeVar("V")


class ViewReader(Protocol):
    def first(self, read: ReadRequest, finish: Callable[[Pairs], Any]) -> Any:
        """Return the first value found in any partition; None if no partition has one.

        Raises:
            InvalidStateStoreError: the store cannot be read. The type of the error shows whether a
                retry may help.
        """
        ...

    def iterate(self, read: ReadRequest, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        """Iterate over all partitions, one after the other. Raises the errors of `first`."""
        ...


class ReadOnlyStore(Generic[K, V]):
    def __init__(self, codec: StoreCodec, reading: ViewReader, *, timestamped: bool) -> None:
        self._codec = codec
        self._reading = reading
        self._value: Callable[[bytes], Any] = codec.timed_value if timestamped else codec.value

    @property
    def name(self) -> str:
        """The store's name."""
        return self._codec.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _one(self, read: ReadRequest) -> V | None:
        value = self._value
        found: V | None = self._reading.first(
            read, lambda pairs: next((value(stored) for _, stored in pairs), None)
        )
        return found


class ReadOnlyKeyValueStore(ReadOnlyStore[K, V]):
    """A view of all partitions of a key-value store.

    Corresponds to Kafka Streams' `ReadOnlyKeyValueStore`. Returned by `KafkaStreams.store`. Each
    call reads current data, including caches, and locates the partitions again, so a view may be
    reused.

    Iterators return one partition after another, each in the order of the serialized keys.

    Example:
        >>> counts.get("ann"), counts.get("eve")
        (3, None)
    """

    def get(self, key: K) -> V | None:
        """Return the value of a key; None if the key does not exist.

        Raises:
            InvalidStateStoreError: the store cannot be read. The type of the error shows whether a
                retry may help. All methods raise this error.
            NullKeyError: the key is None.

        Example:
            >>> counts.get("bob")
            1
        """
        return self._one(ReadRequest(ReadKind.GET, self._codec.key(key)))

    def range(self, lo: K | None = None, hi: K | None = None) -> StoreIterator[tuple[K, V]]:
        """Return the pairs from key `lo` to key `hi`, inclusive. None means unbounded.

        Example:
            >>> with counts.range("b", "f") as found:
            ...     list(found)
            [('bob', 1)]
        """
        return self._between(lo, hi, reverse=False)

    def reverse_range(self, lo: K | None = None, hi: K | None = None) -> StoreIterator[tuple[K, V]]:
        """Return the pairs of `range` in descending order.

        Example:
            >>> list(counts.reverse_range("a", "f"))
            [('bob', 1), ('ann', 3)]
        """
        return self._between(lo, hi, reverse=True)

    def all(self) -> StoreIterator[tuple[K, V]]:
        """Return all pairs.

        Example:
            >>> dict(counts.all())
            {'ann': 3, 'bob': 1}
        """
        return self._between(None, None, reverse=False)

    def reverse_all(self) -> StoreIterator[tuple[K, V]]:
        """Return all pairs in descending order.

        Example:
            >>> list(counts.reverse_all())
            [('bob', 1), ('ann', 3)]
        """
        return self._between(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serde: Serde[Any]) -> StoreIterator[tuple[K, V]]:
        """Return the pairs whose serialized key starts with a serialized prefix.

        Example:
            >>> list(counts.prefix_scan("a", STRING))
            [('ann', 3)]
        """
        data = prefix_bytes(self.name, self._codec.topic, prefix, prefix_serde) or b""
        return self._items(ReadRequest(ReadKind.PREFIX, data))

    def approximate_num_entries(self) -> int:
        """Return the approximate number of keys in all partitions.

        Example:
            >>> counts.approximate_num_entries()
            2
        """
        counted = self._reading.iterate(
            ReadRequest(ReadKind.COUNT), lambda pairs: iter([count_of(pairs)])
        )
        return int(next(counted))

    def _between(self, lo: K | None, hi: K | None, *, reverse: bool) -> StoreIterator[tuple[K, V]]:
        first, last = self._codec.key_or_none(lo), self._codec.key_or_none(hi)
        return self._items(ReadRequest(ReadKind.RANGE, first, last, reverse=reverse))

    def _items(self, read: ReadRequest) -> StoreIterator[tuple[K, V]]:
        return self._reading.iterate(read, partial(self._codec.items, value=self._value))


class _ReadOnlyTimedStore(ReadOnlyStore[K, V]):
    _many_keys: ClassVar[ReadKind]

    def _windows(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        # If `lo` is None, the smallest key does not restrict the result, but makes this a range
        # read, whose order may differ from that of a read of all keys.
        lowest, highest = self._codec.key_or_none(lo) or b"", self._codec.key_or_none(hi)
        read = ReadRequest(self._many_keys, lowest, highest, first_ms, last_ms, reverse)
        return self._reading.iterate(read, partial(self._codec.windows, value=self._value))


class ReadOnlyWindowStore(_ReadOnlyTimedStore[K, V]):
    """A view of all partitions of a window store.

    Corresponds to Kafka Streams' `ReadOnlyWindowStore`. Returned by `KafkaStreams.store`. Each call
    reads current data, including caches; see `ReadOnlyKeyValueStore`. Times are window starts in
    milliseconds since the epoch.

    Example:
        >>> clicks.fetch("ann", 60_000)
        3
    """

    _many_keys = ReadKind.WINDOW_RANGE

    @overload
    def fetch(self, key: K, first_ms: int) -> V | None: ...

    @overload
    def fetch(self, key: K, first_ms: int, last_ms: int) -> StoreIterator[tuple[int, V]]: ...

    def fetch(
        self, key: K, first_ms: int, last_ms: int | None = None
    ) -> V | StoreIterator[tuple[int, V]] | None:
        """Return the value of one window, or of all windows that start in an interval.

        Args:
            first_ms: the start of the window, or the earliest start.
            last_ms: the latest start, inclusive; None for one window.

        Returns:
            With `last_ms`, an iterator of starts and values in ascending order. Otherwise, the
            value, or None if the window does not exist.

        Example:
            >>> list(clicks.fetch("ann", 0, 120_000))
            [(0, 2), (60000, 3)]
        """
        if last_ms is not None:
            return self._starts(key, first_ms, last_ms, reverse=False)
        return self._one(ReadRequest(ReadKind.WINDOW, self._codec.key(key), first=first_ms))

    def backward_fetch(self, key: K, first_ms: int, last_ms: int) -> StoreIterator[tuple[int, V]]:
        """Return the windows of `fetch` in descending order.

        Example:
            >>> list(clicks.backward_fetch("ann", 0, 120_000))
            [(60000, 3), (0, 2)]
        """
        return self._starts(key, first_ms, last_ms, reverse=True)

    def fetch_range(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the windows of the keys from `lo` to `hi` that start within an interval.

        Args:
            lo: the first key, in the order of serialized keys; None means unbounded.
            hi: the last key, inclusive; None means unbounded.
            first_ms: the earliest start.
            last_ms: the latest start, inclusive.

        Example:
            >>> [(str(window), value) for window, value in clicks.fetch_range("b", "c", 0, 60_000)]
            [('[bob@60000/120000]', 1)]
        """
        return self._windows(lo, hi, first_ms, last_ms, reverse=False)

    def backward_fetch_range(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the windows of `fetch_range` in reverse order.

        Example:
            >>> [value for _, value in clicks.backward_fetch_range("a", "b", 0, 60_000)]
            [3, 2]
        """
        return self._windows(lo, hi, first_ms, last_ms, reverse=True)

    def fetch_all(self, first_ms: int, last_ms: int) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the windows of all keys that start within an interval.

        Example:
            >>> [value for _, value in clicks.fetch_all(0, 0)]
            [2]
        """
        return self._every(first_ms, last_ms, reverse=False)

    def backward_fetch_all(
        self, first_ms: int, last_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the windows of `fetch_all` in reverse order.

        Example:
            >>> [window.key for window, _ in clicks.backward_fetch_all(60_000, 60_000)]
            ['bob', 'ann']
        """
        return self._every(first_ms, last_ms, reverse=True)

    def all(self) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return all windows of all keys.

        Example:
            >>> len(list(clicks.all()))
            3
        """
        return self._every(0, MAX_TIME_MS, reverse=False)

    def backward_all(self) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the windows of `all` in reverse order.

        Example:
            >>> [value for _, value in clicks.backward_all()]
            [1, 3, 2]
        """
        return self._every(0, MAX_TIME_MS, reverse=True)

    def _every(
        self, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        read = ReadRequest(self._many_keys, first=first_ms, last=last_ms, reverse=reverse)
        return self._reading.iterate(read, partial(self._codec.windows, value=self._value))

    def _starts(
        self, key: K, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[int, V]]:
        read = ReadRequest(
            ReadKind.WINDOWS, self._codec.key(key), first=first_ms, last=last_ms, reverse=reverse
        )
        return self._reading.iterate(read, partial(self._codec.starts, value=self._value))


class ReadOnlySessionStore(_ReadOnlyTimedStore[K, V]):
    """A view of all partitions of a session store.

    Corresponds to Kafka Streams' `ReadOnlySessionStore`. Returned by `KafkaStreams.store`. Each
    call reads current data, including caches; see `ReadOnlyKeyValueStore`. Times are in
    milliseconds since the epoch.

    Example:
        >>> [(str(session), value) for session, value in visits.fetch("ann")]
        [('[ann@0/1000]', 2)]
    """

    _many_keys = ReadKind.SESSION_RANGE

    def fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return all sessions of a key in the order of their ends.

        Example:
            >>> [value for _, value in visits.fetch("bob")]
            [5]
        """
        return self._of_key(key, 0, MAX_TIME_MS, reverse=False)

    def backward_fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of `fetch` in reverse order.

        Example:
            >>> [value for _, value in visits.backward_fetch("bob")]
            [5]
        """
        return self._of_key(key, 0, MAX_TIME_MS, reverse=True)

    def fetch_range(self, lo: K | None, hi: K | None) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return all sessions of the keys from `lo` to `hi`.

        Example:
            >>> [session.key for session, _ in visits.fetch_range("a", "c")]
            ['ann', 'bob']
        """
        return self._windows(lo, hi, 0, MAX_TIME_MS, reverse=False)

    def backward_fetch_range(
        self, lo: K | None, hi: K | None
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of `fetch_range` in reverse order.

        Example:
            >>> [session.key for session, _ in visits.backward_fetch_range(None, None)]
            ['bob', 'ann']
        """
        return self._windows(lo, hi, 0, MAX_TIME_MS, reverse=True)

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Return the value of the session with exactly these bounds.

        Returns None if the session does not exist.

        Example:
            >>> visits.fetch_session("ann", 0, 1_000), visits.fetch_session("ann", 0, 2_000)
            (2, None)
        """
        key_bytes = self._codec.key(key)
        return self._one(ReadRequest(ReadKind.SESSION, key_bytes, first=start_ms, last=end_ms))

    def find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of a key that overlap an interval.

        The sessions are in the order of their ends.

        Args:
            earliest_end_ms: sessions that end earlier are excluded.
            latest_start_ms: sessions that start later are excluded.

        Example:
            >>> [value for _, value in visits.find_sessions("ann", 500, 500)]
            [2]
        """
        return self._of_key(key, earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of `find_sessions` in reverse order.

        Example:
            >>> list(visits.backward_find_sessions("ann", 5_000, 9_000))
            []
        """
        return self._of_key(key, earliest_end_ms, latest_start_ms, reverse=True)

    def find_sessions_range(
        self, lo: K | None, hi: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of the keys from `lo` to `hi` that overlap an interval.

        Example:
            >>> [value for _, value in visits.find_sessions_range("a", "c", 5_000, 90_000)]
            [5]
        """
        return self._windows(lo, hi, earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions_range(
        self, lo: K | None, hi: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """Return the sessions of `find_sessions_range` in reverse order.

        Example:
            >>> [value for _, value in visits.backward_find_sessions_range(None, None, 0, 90_000)]
            [5, 2]
        """
        return self._windows(lo, hi, earliest_end_ms, latest_start_ms, reverse=True)

    def _of_key(
        self, key: K, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        read = ReadRequest(
            ReadKind.SESSIONS, self._codec.key(key), first=first_ms, last=last_ms, reverse=reverse
        )
        return self._reading.iterate(read, partial(self._codec.windows, value=self._value))


S = TypeVar("S", bound="ReadOnlyStore[Any, Any]")


@dataclass(frozen=True)
class QueryableStoreType(Generic[S]):
    """A type of store view. Created by `QueryableStoreTypes`.

    Args:
        shape: the shape of stores that support this type.
        timestamped: whether values are `ValueAndTimestamp`.

    Example:
        >>> QueryableStoreTypes.key_value().shape
        'key-value'
    """

    name: str
    view: type[S]
    shape: str
    timestamped: bool

    def accepts(self, codec: StoreCodec | None) -> bool:
        """Return whether a store supports this type.

        Args:
            codec: the codec of the store; None if the store does not support queries.

        Example:
            >>> QueryableStoreTypes.key_value().accepts(None)
            False
        """
        return (
            codec is not None
            and codec.shape == self.shape
            and (codec.timestamped or not self.timestamped)
        )


class QueryableStoreTypes:
    """The types of views that `KafkaStreams.store` returns.

    Corresponds to Kafka Streams' `QueryableStoreTypes`. A store with timestamps supports types with
    and without timestamps; a store without timestamps only supports types without. Versioned stores
    only support `KafkaStreams.query`.

    Example:
        >>> QueryableStoreTypes.timestamped_key_value().name
        'timestamped key-value store'
    """

    @staticmethod
    def key_value() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]:
        """A key-value store, whose values are returned without timestamps.

        Example:
            >>> QueryableStoreTypes.key_value().timestamped
            False
        """
        return QueryableStoreType("key-value store", ReadOnlyKeyValueStore, "key-value", False)

    @staticmethod
    def timestamped_key_value() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]:
        """A key-value store with timestamps.

        Values are returned as `ValueAndTimestamp`.

        Example:
            >>> QueryableStoreTypes.timestamped_key_value().timestamped
            True
        """
        name = "timestamped key-value store"
        return QueryableStoreType(name, ReadOnlyKeyValueStore, "key-value", True)

    @staticmethod
    def window() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]:
        """A window store, whose values are returned without timestamps.

        Example:
            >>> QueryableStoreTypes.window().name
            'window store'
        """
        return QueryableStoreType("window store", ReadOnlyWindowStore, "window", False)

    @staticmethod
    def timestamped_window() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]:
        """A window store with timestamps.

        Values are returned as `ValueAndTimestamp`.

        Example:
            >>> QueryableStoreTypes.timestamped_window().timestamped
            True
        """
        return QueryableStoreType("timestamped window store", ReadOnlyWindowStore, "window", True)

    @staticmethod
    def session() -> QueryableStoreType[ReadOnlySessionStore[Any, Any]]:
        """A session store.

        Example:
            >>> QueryableStoreTypes.session().name
            'session store'
        """
        return QueryableStoreType("session store", ReadOnlySessionStore, "session", False)

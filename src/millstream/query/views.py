"""Views of stores over all their partitions, to be read: Kafka Streams' `ReadOnlyKeyValueStore`,
`ReadOnlyWindowStore` and `ReadOnlySessionStore`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, Protocol, TypeVar, overload

from millstream.query.pages import StoreIterator
from millstream.serdes import Serde
from millstream.state.keyvalue.typed_store import prefix_bytes
from millstream.state.queries.codec import Pairs, StoreCodec, count_of
from millstream.state.queries.reads import Read, ReadKind
from millstream.windowed import MAX_TIME_MS, Windowed

K = TypeVar("K")
V = TypeVar("V")


class Reading(Protocol):
    """Reads the partitions that a view is of."""

    def first(self, read: Read, finish: Callable[[Pairs], Any]) -> Any:
        """The one value that a partition has; None if none has.

        Raises:
            InvalidStateStoreError: it cannot be told now; its kind says whether to ask again.
        """
        ...

    def every(self, read: Read, finish: Callable[[Pairs], Any]) -> StoreIterator[Any]:
        """What all partitions have, one partition after the other.

        Raises:
            InvalidStateStoreError: see `first`.
        """
        ...


class ReadOnlyStore(Generic[K, V]):
    """What views have in common.

    Args:
        codec: the serdes of the store.
        reading: reads it.
        timestamped: whether values come with their timestamps.
    """

    def __init__(self, codec: StoreCodec, reading: Reading, *, timestamped: bool) -> None:
        self._codec = codec
        self._reading = reading
        self._value: Callable[[bytes], Any] = codec.timed_value if timestamped else codec.value

    @property
    def name(self) -> str:
        """The store's name."""
        return self._codec.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def _one(self, read: Read) -> Any:
        value = self._value
        return self._reading.first(
            read, lambda pairs: next((value(stored) for _, stored in pairs), None)
        )


class ReadOnlyKeyValueStore(ReadOnlyStore[K, V]):
    """A key-value store over all its partitions, as it is at each call, caches included.

    Got by `KafkaStreams.store`. Every call asks anew, wherever the partitions are by then, so a
    view may be kept. Kafka Streams' `ReadOnlyKeyValueStore`.

    Iteration goes through one partition after the other, each in the order of the serialized keys.

    Example:
        >>> counts.get("ann"), counts.get("eve")
        (3, None)
    """

    def get(self, key: K) -> V | None:
        """The value of a key, None if there is none.

        Raises:
            InvalidStateStoreError: it cannot be told now; its kind says whether to ask again. All
                methods raise this.
            NullKeyError: the key is None.

        Example:
            >>> counts.get("bob")
            1
        """
        value: V | None = self._one(Read(ReadKind.GET, self._codec.key(key)))
        return value

    def range(self, lo: K | None = None, hi: K | None = None) -> StoreIterator[tuple[K, V]]:
        """The pairs from key `lo` to key `hi`, both included; None leaves that side open.

        Example:
            >>> with counts.range("b", "f") as found:
            ...     list(found)
            [('bob', 1)]
        """
        return self._between(lo, hi, reverse=False)

    def reverse_range(self, lo: K | None = None, hi: K | None = None) -> StoreIterator[tuple[K, V]]:
        """The pairs of `range` in descending order.

        Example:
            >>> list(counts.reverse_range("a", "f"))
            [('bob', 1), ('ann', 3)]
        """
        return self._between(lo, hi, reverse=True)

    def all(self) -> StoreIterator[tuple[K, V]]:
        """All pairs.

        Example:
            >>> dict(counts.all())
            {'ann': 3, 'bob': 1}
        """
        return self._between(None, None, reverse=False)

    def reverse_all(self) -> StoreIterator[tuple[K, V]]:
        """All pairs in descending order.

        Example:
            >>> list(counts.reverse_all())
            [('bob', 1), ('ann', 3)]
        """
        return self._between(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serde: Serde[Any]) -> StoreIterator[tuple[K, V]]:
        """The pairs whose serialized key begins with a serialized prefix.

        Args:
            prefix: the prefix, not None.
            prefix_serde: turns it into bytes.

        Example:
            >>> list(counts.prefix_scan("a", STRING))
            [('ann', 3)]
        """
        data = prefix_bytes(self.name, self._codec.topic, prefix, prefix_serde) or b""
        return self._items(Read(ReadKind.PREFIX, data))

    def approximate_num_entries(self) -> int:
        """About how many keys there are, in all partitions.

        Example:
            >>> counts.approximate_num_entries()
            2
        """
        counted = self._reading.every(Read(ReadKind.COUNT), lambda pairs: iter([count_of(pairs)]))
        return int(next(counted))

    def _between(self, lo: K | None, hi: K | None, *, reverse: bool) -> StoreIterator[tuple[K, V]]:
        first, last = self._codec.key_or_none(lo), self._codec.key_or_none(hi)
        return self._items(Read(ReadKind.RANGE, first, last, reverse=reverse))

    def _items(self, read: Read) -> StoreIterator[tuple[K, V]]:
        return self._reading.every(read, partial(self._codec.items, value=self._value))


class _ReadOnlyTimedStore(ReadOnlyStore[K, V]):
    """What views of windows and of sessions have in common.

    Attributes:
        _many_keys: what is read of many keys.
    """

    _many_keys: ClassVar[ReadKind]

    def _windows(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        # The least key bounds nothing, but makes this a range: its order may be another one.
        lowest = self._codec.key_or_none(lo) or b""
        read = Read(
            self._many_keys,
            lowest,
            self._codec.key_or_none(hi),
            first_ms,
            last_ms,
            reverse,
        )
        return self._reading.every(read, partial(self._codec.windows, value=self._value))


class ReadOnlyWindowStore(_ReadOnlyTimedStore[K, V]):
    """A window store over all its partitions, as it is at each call, caches included.

    Got by `KafkaStreams.store`; see `ReadOnlyKeyValueStore`. Times are those at which windows
    start, in milliseconds since the epoch. Kafka Streams' `ReadOnlyWindowStore`.

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
        """The value of one window, or those of all windows that start within some time.

        Args:
            key: the key.
            first_ms: when the window starts, or the earliest one.
            last_ms: when the latest one starts, included; None for one window.

        Returns:
            With `last_ms` an iterator of starts and values, ascending; else a value or None.

        Example:
            >>> list(clicks.fetch("ann", 0, 120_000))
            [(0, 2), (60000, 3)]
        """
        if last_ms is not None:
            return self._starts(key, first_ms, last_ms, reverse=False)
        value: V | None = self._one(Read(ReadKind.WINDOW, self._codec.key(key), first=first_ms))
        return value

    def backward_fetch(self, key: K, first_ms: int, last_ms: int) -> StoreIterator[tuple[int, V]]:
        """The windows of `fetch` in descending order.

        Example:
            >>> list(clicks.backward_fetch("ann", 0, 120_000))
            [(60000, 3), (0, 2)]
        """
        return self._starts(key, first_ms, last_ms, reverse=True)

    def fetch_range(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The windows of the keys from `lo` to `hi` that start within some time.

        Args:
            lo: the first key in the order of serialized keys; None for the first there is.
            hi: the last key, included; None for the last there is.
            first_ms: when the earliest window starts.
            last_ms: when the latest one starts, included.

        Example:
            >>> [(str(window), value) for window, value in clicks.fetch_range("b", "c", 0, 60_000)]
            [('[bob@60000/120000]', 1)]
        """
        return self._windows(lo, hi, first_ms, last_ms, reverse=False)

    def backward_fetch_range(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The windows of `fetch_range` in the opposite order.

        Example:
            >>> [value for _, value in clicks.backward_fetch_range("a", "b", 0, 60_000)]
            [3, 2]
        """
        return self._windows(lo, hi, first_ms, last_ms, reverse=True)

    def fetch_all(self, first_ms: int, last_ms: int) -> StoreIterator[tuple[Windowed[K], V]]:
        """The windows of all keys that start within some time.

        Example:
            >>> [value for _, value in clicks.fetch_all(0, 0)]
            [2]
        """
        return self._every(first_ms, last_ms, reverse=False)

    def backward_fetch_all(
        self, first_ms: int, last_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The windows of `fetch_all` in the opposite order.

        Example:
            >>> [window.key for window, _ in clicks.backward_fetch_all(60_000, 60_000)]
            ['bob', 'ann']
        """
        return self._every(first_ms, last_ms, reverse=True)

    def all(self) -> StoreIterator[tuple[Windowed[K], V]]:
        """All windows of all keys.

        Example:
            >>> len(list(clicks.all()))
            3
        """
        return self._every(0, MAX_TIME_MS, reverse=False)

    def backward_all(self) -> StoreIterator[tuple[Windowed[K], V]]:
        """The windows of `all` in the opposite order.

        Example:
            >>> [value for _, value in clicks.backward_all()]
            [1, 3, 2]
        """
        return self._every(0, MAX_TIME_MS, reverse=True)

    def _every(
        self, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        read = Read(self._many_keys, first=first_ms, last=last_ms, reverse=reverse)
        return self._reading.every(read, partial(self._codec.windows, value=self._value))

    def _starts(
        self, key: K, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[int, V]]:
        read = Read(
            ReadKind.WINDOWS, self._codec.key(key), first=first_ms, last=last_ms, reverse=reverse
        )
        return self._reading.every(read, partial(self._codec.starts, value=self._value))


class ReadOnlySessionStore(_ReadOnlyTimedStore[K, V]):
    """A session store over all its partitions, as it is at each call, caches included.

    Got by `KafkaStreams.store`; see `ReadOnlyKeyValueStore`. Times are in milliseconds since the
    epoch. Kafka Streams' `ReadOnlySessionStore`.

    Example:
        >>> [(str(session), value) for session, value in visits.fetch("ann")]
        [('[ann@0/1000]', 2)]
    """

    _many_keys = ReadKind.SESSION_RANGE

    def fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """All sessions of a key, by end.

        Example:
            >>> [value for _, value in visits.fetch("bob")]
            [5]
        """
        return self._of_key(key, 0, MAX_TIME_MS, reverse=False)

    def backward_fetch(self, key: K) -> StoreIterator[tuple[Windowed[K], V]]:
        """The sessions of `fetch` in the opposite order.

        Example:
            >>> [value for _, value in visits.backward_fetch("bob")]
            [5]
        """
        return self._of_key(key, 0, MAX_TIME_MS, reverse=True)

    def fetch_range(self, lo: K | None, hi: K | None) -> StoreIterator[tuple[Windowed[K], V]]:
        """All sessions of the keys from `lo` to `hi`.

        Example:
            >>> [session.key for session, _ in visits.fetch_range("a", "c")]
            ['ann', 'bob']
        """
        return self._windows(lo, hi, 0, MAX_TIME_MS, reverse=False)

    def backward_fetch_range(
        self, lo: K | None, hi: K | None
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The sessions of `fetch_range` in the opposite order.

        Example:
            >>> [session.key for session, _ in visits.backward_fetch_range(None, None)]
            ['bob', 'ann']
        """
        return self._windows(lo, hi, 0, MAX_TIME_MS, reverse=True)

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """The value of exactly this session, None if there is none.

        Example:
            >>> visits.fetch_session("ann", 0, 1_000), visits.fetch_session("ann", 0, 2_000)
            (2, None)
        """
        key_bytes = self._codec.key(key)
        value: V | None = self._one(Read(ReadKind.SESSION, key_bytes, first=start_ms, last=end_ms))
        return value

    def find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The sessions of a key that touch some time, by end.

        Args:
            key: the key.
            earliest_end_ms: sessions that end before are left out.
            latest_start_ms: sessions that start after are left out.

        Example:
            >>> [value for _, value in visits.find_sessions("ann", 500, 500)]
            [2]
        """
        return self._of_key(key, earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The sessions of `find_sessions` in the opposite order.

        Example:
            >>> list(visits.backward_find_sessions("ann", 5_000, 9_000))
            []
        """
        return self._of_key(key, earliest_end_ms, latest_start_ms, reverse=True)

    def find_sessions_range(
        self, lo: K | None, hi: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The sessions of the keys from `lo` to `hi` that touch some time.

        Example:
            >>> [value for _, value in visits.find_sessions_range("a", "c", 5_000, 90_000)]
            [5]
        """
        return self._windows(lo, hi, earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions_range(
        self, lo: K | None, hi: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        """The sessions of `find_sessions_range` in the opposite order.

        Example:
            >>> [value for _, value in visits.backward_find_sessions_range(None, None, 0, 90_000)]
            [5, 2]
        """
        return self._windows(lo, hi, earliest_end_ms, latest_start_ms, reverse=True)

    def _of_key(
        self, key: K, first_ms: int, last_ms: int, *, reverse: bool
    ) -> StoreIterator[tuple[Windowed[K], V]]:
        read = Read(
            ReadKind.SESSIONS, self._codec.key(key), first=first_ms, last=last_ms, reverse=reverse
        )
        return self._reading.every(read, partial(self._codec.windows, value=self._value))

"""Window stores for processors and queries."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Generic, TypeVar, overload

from millstream.record import ValueAndTimestamp
from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import ProcessorRecordContext
from millstream.state.keyvalue.typed_store import TypedStore
from millstream.state.storage.bytes_store import ByteItems
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.windows.window_keys import WINDOWS
from millstream.state.windows.window_table import WindowTable
from millstream.windowed import MAX_TIME_MS, Windowed, fixed_window_end, unchecked_windowed

K = TypeVar("K")
V = TypeVar("V")


class WindowStore(TypedStore[K, WindowTable], Generic[K, V]):
    """A store of one value per key and window (Kafka Streams' `WindowStore`).

    A window is identified by its start. In a timestamped store, values are `ValueAndTimestamp`. If
    the store retains duplicates, each put adds a value, and None deletes nothing.

    Windows whose start is at least the retention before the latest start have expired: they are not
    found, and puts of them are dropped and counted (in RocksDB, where segments of at least a minute
    expire as a whole, some expired windows are still accepted).

    Times are milliseconds since the epoch. Values that were read may be kept and modified: they are
    not shared with the store. Values are serialized when they are put.

    The examples of the methods start with an empty store `clicks` of strings and integers, with
    one-minute windows.

    Example:
        >>> hour, minute = timedelta(hours=1), timedelta(minutes=1)
        >>> minutes = Stores.in_memory_window("clicks", hour, minute)
        >>> class Count(Processor[str, str, str, int]):
        ...     def init(self, context: ProcessorContext[str, int]) -> None:
        ...         super().init(context)
        ...         self.clicks: WindowStore[str, int] = context.get_state_store("clicks")
        ...     def process(self, record: Record[str, str]) -> None:
        ...         minute_ms = record.timestamp // 60_000 * 60_000
        ...         so_far = self.clicks.fetch(record.key, minute_ms) or 0
        ...         self.clicks.put(record.key, so_far + 1, minute_ms)
        >>> builder = StreamsBuilder()
        >>> _ = builder.add_state_store(Stores.window_builder(minutes, STRING, LONG))
        >>> pages = builder.stream("pages", key=STRING, value=STRING)
        >>> _ = pages.process(Count, stores=["clicks"])
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     topic = driver.create_input_topic("pages", key=STRING, value=STRING)
        ...     for timestamp in (1_000, 2_000, 61_000):
        ...         topic.pipe_input("ann", "/", timestamp)
        ...     list(driver.get_state_store("clicks").fetch("ann", 0, 60_000))
        [(0, 2), (60000, 1)]
    """

    def __init__(
        self,
        table: WindowTable,
        *,
        topic: str,
        key_serde: Serde[Any],
        persistent: bool,
        context: ProcessorRecordContext,
    ) -> None:
        super().__init__(
            table.name,
            table,
            topic=topic,
            key_serde=key_serde,
            persistent=persistent,
            cache=table.cache,
        )
        self._context = context

    def put(self, key: K, value: V | None, window_start_ms: int) -> None:
        """Store the value of a window; None deletes it.

        Raises:
            InvalidStateStoreError: the store is closed. All methods raise this.
            NullKeyError: the key is None. All methods that need a key raise this.
            ValueError: the start is negative.

        Example:
            >>> clicks.put("ann", 3, 60_000)
            >>> clicks.fetch("ann", 60_000)
            3
        """
        table, key_bytes = self._open(), self._key(key)
        if window_start_ms < 0:
            raise ValueError(
                f"Store {self.name} cannot store a window that starts at {window_start_ms}. "
                "Pass a time in milliseconds that is not negative."
            )
        data, timestamp = self._encoded(value)
        table.put_encoded(key_bytes, window_start_ms, data, timestamp)
        self._after_put(self._context)

    @overload
    def fetch(self, key: K, first_ms: int) -> V | None: ...

    @overload
    def fetch(self, key: K, first_ms: int, last_ms: int) -> KeyValueIterator[int, V]: ...

    def fetch(
        self, key: K, first_ms: int, last_ms: int | None = None
    ) -> V | KeyValueIterator[int, V] | None:
        """Return one window's value, or the values of windows that start in a time range.

        Args:
            first_ms: the start of the window, or the earliest start.
            last_ms: the latest start, inclusive; None for one window.

        Returns:
            With `last_ms`, an iterator over starts and values, ascending; without it, a value or
            None.

        Example:
            >>> for start_ms in (0, 60_000, 120_000):
            ...     clicks.put("ann", start_ms // 1000, start_ms)
            >>> clicks.fetch("ann", 60_000)
            60
            >>> with clicks.fetch("ann", 0, 60_000) as windows:
            ...     list(windows)
            [(0, 0), (60000, 60)]
        """
        if last_ms is not None:
            return self._starts(key, first_ms, last_ms, reverse=False)
        table, key_bytes = self._open(), self._key(key)
        raw = None if first_ms < 0 else table.fetch_raw(key_bytes, first_ms)
        return None if raw is None else self._value(raw)

    def backward_fetch(self, key: K, first_ms: int, last_ms: int) -> KeyValueIterator[int, V]:
        """Iterate over the windows of `fetch` in descending order.

        Example:
            >>> for start_ms in (0, 60_000, 120_000):
            ...     clicks.put("ann", start_ms // 1000, start_ms)
            >>> list(clicks.backward_fetch("ann", 0, 60_000))
            [(60000, 60), (0, 0)]
        """
        return self._starts(key, first_ms, last_ms, reverse=True)

    def fetch_range(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the windows of keys from `lo` to `hi` that start in a time range.

        The order is by start and key in memory, and by time segment, key and start in RocksDB.

        Args:
            lo: the first key in the order of serialized keys; None for no lower bound.
            hi: the last key, inclusive; None for no upper bound.
            first_ms: the earliest start.
            last_ms: the latest start, inclusive.

        Example:
            >>> clicks.put("ann", 3, 0)
            >>> clicks.put("bob", 1, 60_000)
            >>> [(str(window), value) for window, value in clicks.fetch_range("a", "c", 0, 60_000)]
            [('[ann@0/60000]', 3), ('[bob@60000/120000]', 1)]
        """
        return self._windows(lo, hi, first_ms, last_ms, reverse=False)

    def backward_fetch_range(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the windows of `fetch_range` in reverse order.

        Example:
            >>> clicks.put("ann", 3, 0)
            >>> clicks.put("bob", 1, 60_000)
            >>> [window.key for window, _ in clicks.backward_fetch_range("a", "c", 0, 60_000)]
            ['bob', 'ann']
        """
        return self._windows(lo, hi, first_ms, last_ms, reverse=True)

    def fetch_all(self, first_ms: int, last_ms: int) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the windows of all keys that start in a time range.

        The bounds and the order are those of `fetch_range`, with one exception: a RocksDB store
        whose windows are emitted when they close is read by start, then by key.

        Example:
            >>> for start_ms in (0, 60_000, 120_000):
            ...     clicks.put("ann", start_ms // 1000, start_ms)
            >>> [value for _, value in clicks.fetch_all(60_000, 120_000)]
            [60, 120]
        """
        return self._every(first_ms, last_ms, reverse=False)

    def backward_fetch_all(self, first_ms: int, last_ms: int) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the windows of `fetch_all` in reverse order.

        Example:
            >>> for start_ms in (0, 60_000, 120_000):
            ...     clicks.put("ann", start_ms // 1000, start_ms)
            >>> [value for _, value in clicks.backward_fetch_all(60_000, 120_000)]
            [120, 60]
        """
        return self._every(first_ms, last_ms, reverse=True)

    def all(self) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over all windows of all keys, in the order of `fetch_all`.

        Example:
            >>> for start_ms in (0, 60_000, 120_000):
            ...     clicks.put("ann", start_ms // 1000, start_ms)
            >>> [window.window.start_ms for window, _ in clicks.all()]
            [0, 60000, 120000]
        """
        return self._every(0, MAX_TIME_MS, reverse=False)

    def backward_all(self) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the windows of `all` in reverse order.

        Example:
            >>> for start_ms in (0, 60_000, 120_000):
            ...     clicks.put("ann", start_ms // 1000, start_ms)
            >>> [window.window.start_ms for window, _ in clicks.backward_all()]
            [120000, 60000, 0]
        """
        return self._every(0, MAX_TIME_MS, reverse=True)

    def _encoded(self, value: V | None) -> tuple[bytes | None, int]:
        inner: Any = value
        timestamp = self._context.timestamp
        if self._layer.timestamped:
            inner, timestamp = self._split_timestamp(value, timestamp)
        return self._layer.encode(inner), timestamp

    def _value(self, raw: bytes) -> Any:
        value, timestamp = self._layer.split(raw)
        return ValueAndTimestamp(value, timestamp) if self._layer.timestamped else value

    def _starts(
        self, key: K, first_ms: int, last_ms: int, *, reverse: bool
    ) -> KeyValueIterator[int, V]:
        table, key_bytes = self._open(), self._key(key)
        pairs = table.read_key(key_bytes, first_ms, last_ms)
        return self._iterator(self._decoded_starts(reversed(pairs) if reverse else pairs))

    def _decoded_starts(
        self, pairs: Iterable[tuple[bytes, bytes]]
    ) -> Generator[tuple[int, V], None, None]:
        time_of, value = WINDOWS.time_of, self._value
        for stored, raw in pairs:
            yield time_of(stored), value(raw)

    def _windows(
        self, lo: K | None, hi: K | None, first_ms: int, last_ms: int, *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        table = self._open()
        # An empty lower bound excludes nothing, but makes this a range read, which may be ordered
        # differently.
        lowest = b"" if lo is None else self._key(lo)
        highest = None if hi is None else self._key(hi)
        pairs = table.read_keys(lowest, highest, first_ms, last_ms, reverse=reverse)
        return self._iterator(self._decoded(pairs))

    def _every(
        self, first_ms: int, last_ms: int, *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        pairs = self._open().read_keys(None, None, first_ms, last_ms, reverse=reverse)
        return self._iterator(self._decoded(pairs))

    def _decoded(self, pairs: ByteItems) -> Generator[tuple[Windowed[K], V], None, None]:
        size_ms, topic = self._layer.window_size_ms, self._topic
        key_of, time_of = WINDOWS.key_of, WINDOWS.time_of
        decode, value = self._key_serde.deserialize, self._value
        try:
            for stored, raw in pairs:
                start = time_of(stored)
                key = decode(topic, key_of(stored))
                yield unchecked_windowed(key, start, fixed_window_end(start, size_ms)), value(raw)
        finally:
            pairs.close()

"""`Stores`: state stores for the Processor API."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from millstream.errors import ConfigError
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.state.builders.store_builder import (
    KeyValueStoreBuilder,
    StoreKind,
    check_store_name,
)
from millstream.state.builders.versioned_builders import (
    VersionedStoreBuilder,
    VersionedStoreSupplier,
)
from millstream.state.builders.window_builders import (
    SessionStoreBuilder,
    SessionStoreSupplier,
    WindowStoreBuilder,
    WindowStoreSupplier,
)


@dataclass(frozen=True)
class KeyValueStoreSupplier:
    """The name and storage of a key-value store.

    Kafka Streams' `KeyValueBytesStoreSupplier`.

    Raises:
        ConfigError: the name is not valid for a directory or topic.
    """

    name: str
    kind: StoreKind
    max_entries: int | None = None

    def __post_init__(self) -> None:
        check_store_name(self.name)


class Stores:
    """Factory for store suppliers and store builders.

    A supplier defines the storage of a store; a builder adds its serdes and options. Builders use
    the config's default serdes unless others are passed.

    Example:
        >>> class Count(Processor[str, str, str, int]):
        ...     def process(self, record: Record[str, str]) -> None:
        ...         visits = self.context.get_state_store("visits")
        ...         visits.put(record.key, (visits.get(record.key) or 0) + 1)
        >>> supplier = Stores.persistent_key_value("visits")
        >>> visits = Stores.key_value_builder(supplier, STRING, LONG)
        >>> topology = Topology().add_source("read", "pages", key=STRING, value=STRING)
        >>> _ = topology.add_processor("count", Count, "read")
        >>> topology.add_state_store(visits.with_logging({"segment.bytes": "1048576"}), "count")
        Topology(2 nodes, 1 stores)
    """

    @staticmethod
    def persistent_key_value(name: str) -> KeyValueStoreSupplier:
        """Create a supplier for a RocksDB store in the task's directory.

        Example:
            >>> supplier = Stores.persistent_key_value("visits")
            >>> visits = Stores.key_value_builder(supplier, STRING, LONG)
            >>> visits.name, visits.persistent
            ('visits', True)
        """
        return KeyValueStoreSupplier(name, "rocksdb")

    @staticmethod
    def in_memory_key_value(name: str) -> KeyValueStoreSupplier:
        """Create a supplier for an in-memory store; a restart reads the whole changelog.

        Example:
            >>> supplier = Stores.in_memory_key_value("visits")
            >>> visits = Stores.key_value_builder(supplier, STRING, LONG)
            >>> visits.name, visits.persistent
            ('visits', False)
        """
        return KeyValueStoreSupplier(name, "in_memory")

    @staticmethod
    def lru_map(name: str, max_entries: int) -> KeyValueStoreSupplier:
        """Create a supplier for an in-memory LRU store of up to `max_entries` keys.

        Reading or writing a key counts as use; iterating does not. Evicted keys are also deleted
        from the changelog, unless the store is timestamped, as the DSL's stores are (Kafka
        Streams' `MemoryNavigableLRUCache`).

        Args:
            max_entries: at least 1.

        Raises:
            ConfigError: `max_entries` is less than 1.

        Example:
            >>> answers = Stores.key_value_builder(Stores.lru_map("answers", 2), STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(answers)
            >>> store.put_all([("a", 1), ("b", 2), ("c", 3)])
            >>> store.get("a"), store.get("c")
            (None, 3)
        """
        if not isinstance(max_entries, int) or max_entries < 1:
            raise ConfigError(
                f"Store {name} cannot hold {max_entries!r} entries. Set max_entries to at least 1."
            )
        return KeyValueStoreSupplier(name, "lru", max_entries)

    @staticmethod
    def persistent_versioned(
        name: str, history_retention: timedelta, segment_interval: timedelta | None = None
    ) -> VersionedStoreSupplier:
        """Create a supplier for a versioned RocksDB store (KIP-889).

        Pass it to `versioned_builder`.

        Args:
            history_retention: how far back versions can be read, and how late they may arrive.
            segment_interval: the length of the intervals in which old versions expire together;
                None to derive it from the retention. Do not change it for a store that exists on
                disk.

        Raises:
            ConfigError: a duration is out of range.

        Example:
            >>> history = Stores.persistent_versioned("prices", history_retention=timedelta(days=7))
            >>> prices = StreamsBuilder().table("prices", key=STRING, value=LONG, store=history)
        """
        return VersionedStoreSupplier(name, history_retention, segment_interval)

    @staticmethod
    def persistent_window(
        name: str, retention: timedelta, window_size: timedelta, retain_duplicates: bool = False
    ) -> WindowStoreSupplier:
        """Create a supplier for a RocksDB window store in the task's directory.

        Args:
            retention: how long a window is kept, counted from its start. Older windows are deleted
                in segments of half the retention, but at least a minute.
            retain_duplicates: whether to keep all values with the same key and time. If so, putting
                None deletes nothing, and the store is never cached.

        Raises:
            ConfigError: a duration is negative, or the retention is shorter than the windows.

        Example:
            >>> kept = Stores.persistent_window(
            ...     "clicks", retention=timedelta(days=1), window_size=timedelta(hours=1)
            ... )
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING).group_by_key()
            >>> hourly = clicks.windowed_by(TimeWindows(timedelta(hours=1))).count(store=kept)
        """
        return WindowStoreSupplier(name, "rocksdb", retention, window_size, retain_duplicates)

    @staticmethod
    def in_memory_window(
        name: str, retention: timedelta, window_size: timedelta, retain_duplicates: bool = False
    ) -> WindowStoreSupplier:
        """Create a supplier for an in-memory window store.

        A restart reads the whole changelog.

        Args:
            retention: how long a window is kept, counted from its start.
            retain_duplicates: whether to keep all values with the same key and time. If so, putting
                None deletes nothing, and the store is never cached.

        Raises:
            ConfigError: a duration is negative, or the retention is shorter than the windows.

        Example:
            >>> kept = Stores.in_memory_window(
            ...     "clicks", retention=timedelta(hours=1), window_size=timedelta(minutes=1)
            ... )
            >>> clicks = Stores.window_builder(kept, STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(clicks)
            >>> store.put("ann", 3, 60_000)
            >>> store.fetch("ann", 60_000)
            3
        """
        return WindowStoreSupplier(name, "in_memory", retention, window_size, retain_duplicates)

    @staticmethod
    def persistent_session(name: str, retention: timedelta) -> SessionStoreSupplier:
        """Create a supplier for a RocksDB session store in the task's directory.

        Args:
            retention: how long a session is kept, counted from its end. Older sessions are deleted
                in segments of half the retention, but at least a minute.

        Raises:
            ConfigError: the retention is negative.

        Example:
            >>> kept = Stores.persistent_session("visits", retention=timedelta(days=1))
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING).group_by_key()
            >>> visits = clicks.windowed_by(SessionWindows(timedelta(minutes=30))).count(store=kept)
        """
        return SessionStoreSupplier(name, "rocksdb", retention)

    @staticmethod
    def in_memory_session(name: str, retention: timedelta) -> SessionStoreSupplier:
        """Create a supplier for an in-memory session store.

        A restart reads the whole changelog.

        Args:
            retention: how long a session is kept, counted from its end.

        Raises:
            ConfigError: the retention is negative.

        Example:
            >>> kept = Stores.in_memory_session("visits", retention=timedelta(days=1))
            >>> visits = Stores.session_builder(kept, STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(visits)
            >>> store.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> store.fetch_session("ann", 0, 1_000)
            2
        """
        return SessionStoreSupplier(name, "in_memory", retention)

    @staticmethod
    def key_value_builder(
        supplier: KeyValueStoreSupplier,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KeyValueStoreBuilder[K, V]:
        """Create a builder for a store of plain values: logged, not cached.

        Example:
            >>> supplier = Stores.in_memory_key_value("visits")
            >>> visits = Stores.key_value_builder(supplier, STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(visits.with_caching(True))
            >>> store.put("ann", 3)
            >>> store.get("ann")
            3
        """
        _check_supplier("key_value_builder", supplier, KeyValueStoreSupplier)
        return KeyValueStoreBuilder(
            supplier.name, supplier.kind, key, value, max_entries=supplier.max_entries
        )

    @staticmethod
    def timestamped_key_value_builder(
        supplier: KeyValueStoreSupplier,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> KeyValueStoreBuilder[K, V]:
        """Create a builder for a store of `ValueAndTimestamp`: logged, not cached.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = Stores.timestamped_key_value_builder(in_memory, STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(visits)
            >>> store.put("ann", ValueAndTimestamp(3, 1_000))
            >>> store.get("ann")
            ValueAndTimestamp(value=3, timestamp=1000)
        """
        _check_supplier("timestamped_key_value_builder", supplier, KeyValueStoreSupplier)
        return KeyValueStoreBuilder(
            supplier.name,
            supplier.kind,
            key,
            value,
            timestamped=True,
            max_entries=supplier.max_entries,
        )

    @staticmethod
    def versioned_builder(
        supplier: VersionedStoreSupplier,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> VersionedStoreBuilder[K, V]:
        """Create a builder for a store of the versions of each key: logged, never cached.

        Processors get a `VersionedKeyValueStore`.

        Example:
            >>> history = Stores.persistent_versioned("prices", timedelta(days=7))
            >>> prices = Stores.versioned_builder(history, STRING, LONG)
            >>> with MockProcessorContext() as context:
            ...     store = context.add_state_store(prices)
            ...     valid_to = store.put("tea", 3, 1_000)
            ...     store.get("tea").value
            3
        """
        _check_supplier("versioned_builder", supplier, VersionedStoreSupplier)
        return VersionedStoreBuilder(
            supplier.name, supplier.history_ms, supplier.segment_ms, key, value
        )

    @staticmethod
    def window_builder(
        supplier: WindowStoreSupplier,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> WindowStoreBuilder[K, V]:
        """Create a builder for a store of one plain value per key and window.

        The store is logged, but not cached. Processors get a `WindowStore`.

        Example:
            >>> hour, minute = timedelta(hours=1), timedelta(minutes=1)
            >>> minutes = Stores.in_memory_window("clicks", hour, minute)
            >>> clicks = Stores.window_builder(minutes, STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(clicks)
            >>> store.put("ann", 3, 60_000)
            >>> list(store.fetch("ann", 0, 120_000))
            [(60000, 3)]
        """
        return _window_builder(supplier, key, value, timestamped=False)

    @staticmethod
    def timestamped_window_builder(
        supplier: WindowStoreSupplier,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> WindowStoreBuilder[K, V]:
        """Create a builder for a store of one `ValueAndTimestamp` per key and window.

        The store is logged, but not cached. Processors get a `WindowStore`.

        Example:
            >>> hour, minute = timedelta(hours=1), timedelta(minutes=1)
            >>> minutes = Stores.in_memory_window("clicks", hour, minute)
            >>> clicks = Stores.timestamped_window_builder(minutes, STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(clicks)
            >>> store.put("ann", ValueAndTimestamp(3, 61_000), 60_000)
            >>> store.fetch("ann", 60_000).timestamp
            61000
        """
        return _window_builder(supplier, key, value, timestamped=True)

    @staticmethod
    def session_builder(
        supplier: SessionStoreSupplier,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
    ) -> SessionStoreBuilder[K, V]:
        """Create a builder for a store of one value per key and session.

        The store is logged, but not cached. Processors get a `SessionStore`.

        Example:
            >>> kept = Stores.in_memory_session("visits", timedelta(days=1))
            >>> visits = Stores.session_builder(kept, STRING, LONG)
            >>> store = MockProcessorContext().add_state_store(visits)
            >>> store.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> [(str(session), pages) for session, pages in store.fetch("ann")]
            [('[ann@0/1000]', 2)]
        """
        _check_supplier("session_builder", supplier, SessionStoreSupplier)
        return SessionStoreBuilder(
            supplier.name, supplier.kind, key, value, retention_ms=supplier.retention_ms
        )


def _window_builder(
    supplier: WindowStoreSupplier,
    key: Serde[K] | None,
    value: Serde[V] | None,
    *,
    timestamped: bool,
) -> WindowStoreBuilder[K, V]:
    method = "timestamped_window_builder" if timestamped else "window_builder"
    _check_supplier(method, supplier, WindowStoreSupplier)
    return WindowStoreBuilder(
        supplier.name,
        supplier.kind,
        key,
        value,
        retention_ms=supplier.retention_ms,
        window_size_ms=supplier.window_size_ms,
        retain_duplicates=supplier.retain_duplicates,
        timestamped=timestamped,
    )


def _check_supplier(method: str, supplier: object, expected: type) -> None:
    if not isinstance(supplier, expected):
        raise ConfigError(
            f"Stores.{method}() takes a {expected.__name__}, as returned by other methods of "
            f"Stores, but got {supplier!r}."
        )

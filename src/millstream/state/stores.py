"""`Stores`: state stores for the Processor API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.serdes import Serde
from millstream.state.builders import KeyValueStoreBuilder, StoreKind


@dataclass(frozen=True)
class KeyValueStoreSupplier:
    """Where a key-value store keeps its data (Kafka Streams' `KeyValueBytesStoreSupplier`).

    Args:
        name: the store's name.
        kind: `rocksdb` or `in_memory`.
    """

    name: str
    kind: StoreKind


class Stores:
    """Makes suppliers (where data is kept) and builders (with which serdes and options).

    Example:
        store = Stores.key_value_builder(Stores.persistent_key_value("visits"), STRING, LONG)
        topology.add_state_store(store.with_logging({"retention.ms": "-1"}), "counter")
    """

    @staticmethod
    def persistent_key_value(name: str) -> KeyValueStoreSupplier:
        """Keeps its data in RocksDB, in the task's directory."""
        return KeyValueStoreSupplier(name, "rocksdb")

    @staticmethod
    def in_memory_key_value(name: str) -> KeyValueStoreSupplier:
        """Keeps its data in memory; a restarted task reads its whole changelog."""
        return KeyValueStoreSupplier(name, "in_memory")

    @staticmethod
    def key_value_builder(
        supplier: KeyValueStoreSupplier,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
    ) -> KeyValueStoreBuilder:
        """A store of plain values: logged, not cached.

        Args:
            supplier: where the data is kept.
            key: for keys; None for the config's default.
            value: for values; None for the config's default.
        """
        return KeyValueStoreBuilder(supplier.name, supplier.kind, key, value)

    @staticmethod
    def timestamped_key_value_builder(
        supplier: KeyValueStoreSupplier,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
    ) -> KeyValueStoreBuilder:
        """A store of values with timestamps (`ValueAndTimestamp`): logged, not cached.

        Args:
            supplier: where the data is kept.
            key: for keys; None for the config's default.
            value: for values; None for the config's default.
        """
        return KeyValueStoreBuilder(supplier.name, supplier.kind, key, value, timestamped=True)

"""Key-value stores to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from millstream.errors import ConfigError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import (
    SerdedBuilder,
    StoreDefaults,
    StoredK,
    StoredV,
    StoreKind,
)

_KINDS: Final[tuple[StoreKind, ...]] = ("rocksdb", "in_memory", "lru")


@dataclass(frozen=True)
class KeyValueStoreBuilder(SerdedBuilder[StoredK, StoredV]):
    """A key-value store to be (Kafka Streams' `KeyValueStoreBuilder`). Immutable.

    Args:
        name: the store's name, also of its changelog and directory.
        kind: where the data is kept; None for the config's `default_dsl_store`.
        key_serde: for keys; None for the config's default.
        value_serde: for values; None for the config's default.
        timestamped: whether each value is kept with its timestamp.
        caching: whether the record cache lies above; it is left out when the config gives no bytes
            to it.
        logging: whether changes go to a changelog, from which the store can be restored.
        topic_config: of the changelog, by Kafka's own names, over the defaults.
        max_entries: how many keys a store of kind `lru` holds.

    Raises:
        ConfigError: a name that no directory or topic can have, an unknown kind, or `max_entries`
            that do not fit it.
    """

    name: str
    kind: StoreKind | None = None
    key_serde: Serde[StoredK] | None = None
    value_serde: Serde[StoredV] | None = None
    timestamped: bool = False
    caching: bool = False
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)
    max_entries: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind is not None and self.kind not in _KINDS:
            raise ConfigError(
                f"Store {self.name} cannot be of kind {self.kind!r}; known are {', '.join(_KINDS)}."
            )
        if (self.kind == "lru") != (self.max_entries is not None) or self.max_entries == 0:
            raise ConfigError(
                f"Store {self.name} is of kind {self.kind!r} with {self.max_entries} entries at "
                "most. Make a store that holds a number of keys with Stores.lru_map(name, "
                "max_entries)."
            )

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process. Decided only once the kind is resolved."""
        return self.kind not in ("in_memory", "lru")

    def with_caching(self, enabled: bool) -> Self:
        """The same with or without the record cache."""
        return replace(self, caching=enabled)

    def resolved(self, config: StoreDefaults) -> Self:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        return replace(super().resolved(config), kind=self.kind or config.default_dsl_store)

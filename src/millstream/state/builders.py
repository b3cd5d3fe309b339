"""State stores as a topology describes them: names, kinds, serdes, options; nothing opened yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from millstream.errors import ConfigError
from millstream.serdes import Serde

if TYPE_CHECKING:
    from millstream.state.open_store import OpenStore, StoreEnvironment

#: Where a store keeps its data.
StoreKind = Literal["rocksdb", "in_memory"]

_KINDS: tuple[StoreKind, ...] = ("rocksdb", "in_memory")


class StoreDefaults(Protocol):
    """What a store takes from the application's config where its builder leaves it open."""

    @property
    def default_key_serde(self) -> Serde[Any] | None: ...

    @property
    def default_value_serde(self) -> Serde[Any] | None: ...

    @property
    def default_dsl_store(self) -> StoreKind: ...


class StoreBuilder(Protocol):
    """A state store to be: what the engine needs to know before it opens one."""

    @property
    def name(self) -> str:
        """The store's name."""
        ...

    @property
    def logging(self) -> bool:
        """Whether the store writes its changes to a changelog of its own."""
        ...

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process."""
        ...

    def open(self, environment: StoreEnvironment) -> OpenStore:
        """Open the store in a task."""
        ...


@dataclass(frozen=True)
class KeyValueStoreBuilder:
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

    Raises:
        ConfigError: a name that no directory or topic can have, or an unknown kind.
    """

    name: str
    kind: StoreKind | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    timestamped: bool = False
    caching: bool = False
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name or self.name.startswith("."):
            raise ConfigError(
                f"{self.name!r} cannot be the name of a store, since its directory and changelog "
                "are named after it. Use letters, digits, '.', '_' and '-', not beginning with '.'."
            )
        if self.kind is not None and self.kind not in _KINDS:
            raise ConfigError(
                f"Store {self.name} cannot be of kind {self.kind!r}; known are {', '.join(_KINDS)}."
            )

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process. Decided only once the kind is resolved."""
        return self.kind != "in_memory"

    def with_caching(self, enabled: bool) -> KeyValueStoreBuilder:
        """The same with or without the record cache."""
        return replace(self, caching=enabled)

    def with_logging(self, logging: bool | Mapping[str, str]) -> KeyValueStoreBuilder:
        """The same with or without a changelog.

        Args:
            logging: whether, or the config of the changelog topic by Kafka's own names.
        """
        if isinstance(logging, Mapping):
            return replace(self, logging=True, topic_config=dict(logging))
        return replace(self, logging=logging, topic_config={})

    def resolved(self, config: StoreDefaults) -> KeyValueStoreBuilder:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        return replace(
            self,
            kind=self.kind or config.default_dsl_store,
            key_serde=self._serde("key", self.key_serde or config.default_key_serde),
            value_serde=self._serde("value", self.value_serde or config.default_value_serde),
        )

    def changelog_config(self) -> dict[str, str]:
        """The defaults of the changelog topic, under `topic.*` settings and `topic_config`."""
        return {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}

    def open(self, environment: StoreEnvironment) -> OpenStore:
        """Open the store in a task. Everything must be resolved.

        Raises:
            TaskCorruptedError: what is on disk cannot be read.
        """
        # Loads RocksDB, which whoever only describes a topology does not need.
        from millstream.state.open_store import open_key_value_store

        return open_key_value_store(self, environment)

    def _serde(self, what: str, serde: Serde[Any] | None) -> Serde[Any]:
        if serde is None:
            raise ConfigError(
                f"Store {self.name} has no serde for its {what}s. Give one where the store is "
                f"made, or set default_{what}_serde."
            )
        return serde

"""The protocol and base class of store builders, and the key-value builder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, replace
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    Generic,
    Literal,
    Protocol,
    Self,
    runtime_checkable,
)

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.serdes import Serde

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Without a serde, the type of the keys or values is `Any`.
    StoredK = TypeVar("StoredK", default=Any)
    StoredV = TypeVar("StoredV", default=Any)
else:
    from typing import TypeVar

    StoredK = TypeVar("StoredK")
    StoredV = TypeVar("StoredV")

#: The storage types of key-value stores.
StoreKind = Literal["rocksdb", "in_memory", "lru"]
_KINDS: Final[tuple[StoreKind, ...]] = ("rocksdb", "in_memory", "lru")

#: The config of a changelog that only needs the latest record of each key.
COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "CreateTime",
}


@runtime_checkable
class StoreBuilder(Protocol):
    """The description of a state store, with everything that is needed to open it."""

    @property
    def name(self) -> str: ...

    @property
    def logging(self) -> bool:
        """Whether the store has its own changelog, to which it writes its changes."""
        ...

    @property
    def topic_config(self) -> Mapping[str, str]:
        """The user's Kafka settings for the changelog topic."""
        ...

    @property
    def persistent(self) -> bool: ...

    def resolved(self, config: StreamsConfig) -> StoreBuilder:
        """Return a copy whose unset options are taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        ...

    def changelog_config(self) -> dict[str, str]:
        """Return the default config of the changelog.

        `topic.*` and `topic_config` override it.
        """
        ...


class StoreBuilderBase(Generic[StoredK, StoredV]):
    """The base class of store builders with serdes.

    Subclasses are frozen dataclasses.

    The options, where a builder supports them:

    - `name`: the store's name, also used for its changelog and directory.
    - `kind`: where the data is stored; None for the config's `default_dsl_store`.
    - `key_serde`, `value_serde`: None for the config's defaults.
    - `timestamped`: whether each value is stored with its timestamp.
    - `caching`: whether the store has a record cache; ignored if the configured size is 0.
    - `logging`: whether changes go to a changelog, from which the store can be restored.
    - `topic_config`: Kafka settings of the changelog topic that override the defaults.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

        @property
        def name(self) -> str: ...
        @property
        def key_serde(self) -> Serde[StoredK] | None: ...
        @property
        def value_serde(self) -> Serde[StoredV] | None: ...

    def __post_init__(self) -> None:
        check_store_name(self.name)
        for what, serde in (("keys", self.key_serde), ("values", self.value_serde)):
            if serde is not None and not isinstance(serde, Serde):
                raise ConfigError(
                    f"Store {self.name} needs a Serde for its {what}, but got {serde!r}. Use one "
                    "from millstream.serdes, for example STRING."
                )

    def with_logging(self, logging: bool | Mapping[str, str]) -> Self:
        """Return a copy with or without a changelog. A mapping enables and configures it."""
        if isinstance(logging, Mapping):
            return replace(self, logging=True, topic_config=dict(logging))
        return replace(self, logging=logging, topic_config={})

    def resolved(self, config: StreamsConfig) -> Self:
        key_serde = self.key_serde or config.default_key_serde
        value_serde = self.value_serde or config.default_value_serde
        return replace(
            self,
            key_serde=checked_serde(self.name, "key", key_serde),
            value_serde=checked_serde(self.name, "value", value_serde),
        )

    def serdes(self) -> tuple[Serde[StoredK], Serde[StoredV]]:
        """Return the serdes of keys and values, which must have been resolved."""
        key_serde, value_serde = self.key_serde, self.value_serde
        assert key_serde is not None, f"the key serde of store {self.name} is not resolved"
        assert value_serde is not None, f"the value serde of store {self.name} is not resolved"
        return key_serde, value_serde

    def changelog_config(self) -> dict[str, str]:
        return dict(COMPACTED)


def check_store_name(name: str) -> None:
    """Raise a ConfigError unless a name is valid for a directory and a topic."""
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise ConfigError(
            f"{name!r} is not a valid store name: the store's directory and changelog are named "
            "after it. Use letters, digits, '.', '_' and '-', and do not start with '.'."
        )


def checked_serde(store: str, what: str, serde: Serde[Any] | None) -> Serde[Any]:
    """Return the serde; raise a ConfigError if it is None."""
    if serde is None:
        raise ConfigError(
            f"Store {store} has no serde for its {what}s. Pass one where the store is created or "
            f"the records are grouped ({what}=...), or set default_{what}_serde."
        )
    return serde


@dataclass(frozen=True)
class KeyValueStoreBuilder(StoreBuilderBase[StoredK, StoredV]):
    """The builder of a key-value store. Immutable.

    Kafka Streams' `KeyValueStoreBuilder`.

    Args:
        max_entries: the maximum number of keys of a store of kind `lru`.

    Raises:
        ConfigError: the name is not valid for a directory or topic, the kind is unknown, or
            `max_entries` does not match the kind.
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
                f"Store {self.name} has the unknown kind {self.kind!r}. "
                f"Use one of {', '.join(_KINDS)}."
            )
        if (self.kind == "lru") != (self.max_entries is not None) or self.max_entries == 0:
            raise ConfigError(
                f"Store {self.name} has kind={self.kind!r} and max_entries={self.max_entries}, but "
                "max_entries must be at least 1 for the kind 'lru', and None for other kinds. "
                "Create a bounded store with Stores.lru_map(name, max_entries)."
            )

    @property
    def persistent(self) -> bool:
        """Whether the data survives the process. Only valid after `resolved()`."""
        return self.kind not in ("in_memory", "lru")

    def with_caching(self, enabled: bool) -> Self:
        return replace(self, caching=enabled)

    def resolved(self, config: StreamsConfig) -> Self:
        return replace(super().resolved(config), kind=self.kind or config.default_dsl_store)

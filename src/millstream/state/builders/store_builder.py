"""What all stores to be have in common: names, serdes, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, Self, runtime_checkable

from millstream.errors import ConfigError
from millstream.serdes import Serde

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    # Where no serde is given a store may hold anything.
    StoredK = TypeVar("StoredK", default=Any)
    StoredV = TypeVar("StoredV", default=Any)
else:
    from typing import TypeVar

    StoredK = TypeVar("StoredK")
    StoredV = TypeVar("StoredV")

#: Where a store keeps its data.
StoreKind = Literal["rocksdb", "in_memory", "lru"]

#: The config of a changelog whose latest record of a key is all that a store needs.
COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "message.timestamp.type": "CreateTime",
}


class StoreDefaults(Protocol):
    """What a store takes from the application's config where its builder leaves it open."""

    @property
    def default_key_serde(self) -> Serde[Any] | None: ...

    @property
    def default_value_serde(self) -> Serde[Any] | None: ...

    @property
    def default_dsl_store(self) -> StoreKind: ...


@runtime_checkable
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
    def topic_config(self) -> Mapping[str, str]:
        """What the user wants of the changelog topic, by Kafka's own names."""
        ...

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process."""
        ...

    def resolved(self, config: StoreDefaults) -> StoreBuilder:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        ...

    def changelog_config(self) -> dict[str, str]:
        """The defaults of the changelog topic, under `topic.*` settings and `topic_config`."""
        ...


class SerdedBuilder(Generic[StoredK, StoredV]):
    """What builders of stores with serdes have in common. They are frozen dataclasses."""

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
                    f"Store {self.name} needs a Serde for its {what}, but got {serde!r}. Take one "
                    "from millstream.serdes, for example STRING."
                )

    def with_logging(self, logging: bool | Mapping[str, str]) -> Self:
        """The same with or without a changelog.

        Args:
            logging: whether, or the config of the changelog topic by Kafka's own names.
        """
        if isinstance(logging, Mapping):
            return replace(self, logging=True, topic_config=dict(logging))
        return replace(self, logging=logging, topic_config={})

    def resolved(self, config: StoreDefaults) -> Self:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        return replace(
            self,
            key_serde=key_serde_of(self, config),
            value_serde=value_serde_of(self, config),
        )

    def serdes(self) -> tuple[Serde[StoredK], Serde[StoredV]]:
        """The serdes of keys and values, which must be resolved."""
        key_serde, value_serde = self.key_serde, self.value_serde
        assert key_serde is not None, f"the key serde of store {self.name} is not resolved"
        assert value_serde is not None, f"the value serde of store {self.name} is not resolved"
        return key_serde, value_serde

    def changelog_config(self) -> dict[str, str]:
        """The defaults of the changelog topic, under `topic.*` settings and `topic_config`."""
        return dict(COMPACTED)


def key_serde_of(builder: SerdedBuilder, config: StoreDefaults) -> Serde[Any]:
    """The serde of a store's keys: its own, or the configured default.

    Raises:
        ConfigError: there is neither.
    """
    return _serde(builder.name, "key", builder.key_serde or config.default_key_serde)


def value_serde_of(builder: SerdedBuilder, config: StoreDefaults) -> Serde[Any]:
    """The serde of a store's values: its own, or the configured default.

    Raises:
        ConfigError: there is neither.
    """
    return _serde(builder.name, "value", builder.value_serde or config.default_value_serde)


def check_store_name(name: str) -> None:
    """Refuse a name that no directory or topic can have.

    Raises:
        ConfigError: it is such a name.
    """
    if not isinstance(name, str) or not name or "/" in name or name.startswith("."):
        raise ConfigError(
            f"{name!r} cannot be the name of a store, since its directory and changelog "
            "are named after it. Use letters, digits, '.', '_' and '-', not beginning with '.'."
        )


def _serde(store: str, what: str, serde: Serde[Any] | None) -> Serde[Any]:
    if serde is None:
        raise ConfigError(
            f"Store {store} has no serde for its {what}s. Give one where the store is made or the "
            f"records are grouped ({what}=...), or set default_{what}_serde."
        )
    return serde

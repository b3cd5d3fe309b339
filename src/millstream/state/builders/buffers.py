"""Stores to be of the DSL's own: the buffers of suppress and of joins with grace, unjoined records.

Users never see these stores, so their builders have only what the DSL needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from millstream.serdes import Serde
from millstream.state.builders.key_value import KeyValueStoreBuilder
from millstream.state.builders.store_builder import (
    SerdedBuilder,
    StoreDefaults,
    StoreKind,
    value_serde_of,
)


@dataclass(frozen=True)
class SuppressBufferBuilder(SerdedBuilder):
    """The buffer of a `suppress`: operators get a `TimeOrderedBuffer`. Immutable.

    Args:
        name: the store's name, also of its changelog.
        key_serde: for keys; None for the config's default.
        value_serde: for values; None for the config's default.
        logging: whether changes go to a changelog.
        topic_config: of the changelog, by Kafka's own names, over the defaults.
    """

    name: str
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def persistent(self) -> bool:
        """It is in memory."""
        return False


@dataclass(frozen=True)
class GraceBufferBuilder(SerdedBuilder):
    """The buffer of a stream-table join with grace: operators get a `GraceBuffer`. Immutable.

    Args:
        name: the store's name, also of its changelog and directory.
        grace_ms: how long records wait, in milliseconds of stream time.
        key_serde: for keys; None for the config's default.
        value_serde: for values of the stream; None for the config's default.
        logging: whether changes go to a changelog.
        topic_config: of the changelog, by Kafka's own names, over the defaults.
    """

    name: str
    grace_ms: int
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def persistent(self) -> bool:
        """It is on disk, whatever the config's default is: follows Kafka Streams."""
        return True


@dataclass(frozen=True)
class OuterJoinStoreBuilder(SerdedBuilder):
    """What a left or outer join of streams remembers: operators get an `OuterJoinStore`. Immutable.

    Args:
        name: the store's name, also of its changelog and directory.
        kind: where the data is kept; None for the config's `default_dsl_store`.
        key_serde: for keys; None for the config's default.
        value_serde: for values of the left stream; None for the config's default.
        right_serde: for values of the right stream; None for the config's default.
        logging: whether changes go to a changelog.
        topic_config: of the changelog, by Kafka's own names, over the defaults.
    """

    name: str
    kind: StoreKind | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    right_serde: Serde[Any] | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process. Decided only once the kind is resolved."""
        return self.kind != "in_memory"

    def resolved(self, config: StoreDefaults) -> Self:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        right = replace(self, value_serde=self.right_serde)
        return replace(
            super().resolved(config),
            kind=self.kind or config.default_dsl_store,
            right_serde=value_serde_of(right, config),
        )


@dataclass(frozen=True)
class SubscriptionStoreBuilder(KeyValueStoreBuilder):
    """The subscriptions of a foreign-key join: operators get a `SubscriptionTable`. Not cached."""

    timestamped: bool = True

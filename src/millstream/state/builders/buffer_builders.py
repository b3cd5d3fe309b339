"""Builders of the DSL's internal stores: buffers and join stores.

These are the suppress and grace buffers, and the stores of unmatched records and of foreign-key
subscriptions. Users never see these stores, so their builders have only the options that the DSL
needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from millstream.config.streams_config import StreamsConfig
from millstream.serdes import Serde
from millstream.state.builders.store_builder import (
    KeyValueStoreBuilder,
    StoreBuilderBase,
    StoreKind,
    checked_serde,
)


@dataclass(frozen=True)
class SuppressBufferBuilder(StoreBuilderBase):
    """The builder of a `suppress` buffer. Immutable.

    Operators get a `TimeOrderedBuffer`.
    """

    name: str
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def persistent(self) -> bool:
        return False


@dataclass(frozen=True)
class GraceBufferBuilder(StoreBuilderBase):
    """The builder of a buffer for a stream-table join with grace. Immutable.

    Operators get a `GraceBuffer`.

    Args:
        grace_ms: how long records wait, in milliseconds of stream time.
    """

    name: str
    grace_ms: int
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def persistent(self) -> bool:
        """Always True, as in Kafka Streams, regardless of the config's default."""
        return True


@dataclass(frozen=True)
class OuterJoinStoreBuilder(StoreBuilderBase):
    """The builder of a left or outer join's store. Immutable.

    The store contains the unmatched records. Operators get an `OuterJoinStore`.

    Args:
        value_serde: the serde of the left stream's values; None for the config's default.
        right_serde: the serde of the right stream's values; None for the config's default.
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
        """Whether the data survives the process. Only valid after `resolved()`."""
        return self.kind != "in_memory"

    def resolved(self, config: StreamsConfig) -> Self:
        right_serde = self.right_serde or config.default_value_serde
        return replace(
            super().resolved(config),
            kind=self.kind or config.default_dsl_store,
            right_serde=checked_serde(self.name, "value", right_serde),
        )


@dataclass(frozen=True)
class SubscriptionStoreBuilder(KeyValueStoreBuilder):
    """The builder of a store for the subscriptions of a foreign-key join. Not cached.

    Operators get a `SubscriptionTable`.
    """

    timestamped: bool = True

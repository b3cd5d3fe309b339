"""Versioned stores to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Self

from millstream.durations import milliseconds
from millstream.errors import IllegalStateError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import (
    COMPACTED,
    SerdedBuilder,
    StoredK,
    StoredV,
    check_store_name,
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
#: Compaction may not take versions away that a restoring task still needs, so it comes later than
#: the history ends, by this much.
_COMPACTION_LAG_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True)
class VersionedStoreSupplier:
    """Where a versioned store keeps its data, and for how long. Made by `Stores`.

    Args:
        name: the store's name.
        history_retention: how far back versions can be read, and how late they may come.
        segment_interval: old versions expire together by intervals of this length; None for one
            that suits the retention. Not to be changed while the store exists on disk.

    Raises:
        ConfigError: a duration is out of range.
    """

    name: str
    history_retention: timedelta
    segment_interval: timedelta | None = None
    #: The history retention, and the length of segments, in milliseconds.
    history_ms: int = field(init=False, repr=False, compare=False)
    segment_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_store_name(self.name)
        store = f"Store {self.name}"
        history_ms = milliseconds(store, "history_retention", self.history_retention)
        if self.segment_interval is None:
            segment_ms = default_segment_ms(history_ms)
        else:
            segment_ms = milliseconds(store, "segment_interval", self.segment_interval, least_ms=1)
        object.__setattr__(self, "history_ms", history_ms)
        object.__setattr__(self, "segment_ms", segment_ms)


def default_segment_ms(history_ms: int) -> int:
    """The length of segments that Kafka Streams chooses for a history retention."""
    if history_ms <= _MINUTE_MS:
        return max(history_ms // 3, 2_000)
    if history_ms <= 5 * _MINUTE_MS:
        return max(history_ms // 5, 20_000)
    if history_ms <= _HOUR_MS:
        return max(history_ms // 12, _MINUTE_MS)
    return max(history_ms // 24, 5 * _MINUTE_MS)


@dataclass(frozen=True)
class VersionedStoreBuilder(SerdedBuilder[StoredK, StoredV]):
    """A versioned store to be (Kafka Streams' `VersionedKeyValueStoreBuilder`). Immutable.

    Operators get a `VersionedTable`, processors a `VersionedKeyValueStore`.

    Args:
        name: the store's name, also of its changelog and directory.
        history_ms: how far back versions can be read, in milliseconds.
        segment_ms: the length of the intervals by which old versions expire, in milliseconds.
        key_serde: for keys; None for the config's default.
        value_serde: for values; None for the config's default.
        logging: whether changes go to a changelog, from which the store can be restored.
        topic_config: of the changelog, by Kafka's own names, over the defaults.
    """

    name: str
    history_ms: int
    segment_ms: int
    key_serde: Serde[StoredK] | None = None
    value_serde: Serde[StoredV] | None = None
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def persistent(self) -> bool:
        """Versioned stores are on disk."""
        return True

    @property
    def caching(self) -> bool:
        """Versioned stores are never cached."""
        return False

    def with_caching(self, enabled: bool) -> Self:
        """The same, which is never cached.

        Raises:
            IllegalStateError: caching is wanted.
        """
        if enabled:
            raise IllegalStateError(
                f"Store {self.name} is versioned, and versioned stores cannot be cached, since "
                "every version counts. Leave out caching."
            )
        return self

    def changelog_config(self) -> dict[str, str]:
        """The defaults of the changelog topic, under `topic.*` settings and `topic_config`."""
        lag_ms = self.history_ms + _COMPACTION_LAG_MS
        return {**COMPACTED, "min.compaction.lag.ms": str(lag_ms)}

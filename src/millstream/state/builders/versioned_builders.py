"""Builders of versioned stores."""

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
    StoreBuilderBase,
    StoredK,
    StoredV,
    check_store_name,
)

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
#: The minimum compaction lag of the changelog in addition to the history retention, so that
#: compaction does not remove versions that a restoring task still needs.
_COMPACTION_LAG_MS: Final = 24 * _HOUR_MS


@dataclass(frozen=True)
class VersionedStoreSupplier:
    """The name and retention of a versioned store.

    Created and documented by `Stores`.

    Raises:
        ConfigError: a duration is out of range.
    """

    name: str
    history_retention: timedelta
    segment_interval: timedelta | None = None
    #: The history retention and the segment length, in milliseconds.
    history_ms: int = field(init=False, repr=False, compare=False)
    segment_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_store_name(self.name)
        store = f"Store {self.name}"
        history_ms = milliseconds(store, "history_retention", self.history_retention)
        if self.segment_interval is None:
            segment_ms = default_segment_ms(history_ms)
        else:
            segment_ms = milliseconds(store, "segment_interval", self.segment_interval, min_ms=1)
        object.__setattr__(self, "history_ms", history_ms)
        object.__setattr__(self, "segment_ms", segment_ms)


def default_segment_ms(history_ms: int) -> int:
    """Return the segment length that Kafka Streams chooses for a history retention."""
    if history_ms <= _MINUTE_MS:
        return max(history_ms // 3, 2_000)
    if history_ms <= 5 * _MINUTE_MS:
        return max(history_ms // 5, 20_000)
    if history_ms <= _HOUR_MS:
        return max(history_ms // 12, _MINUTE_MS)
    return max(history_ms // 24, 5 * _MINUTE_MS)


@dataclass(frozen=True)
class VersionedStoreBuilder(StoreBuilderBase[StoredK, StoredV]):
    """The builder of a versioned store (`VersionedKeyValueStoreBuilder`). Immutable.

    Operators get a `VersionedTable`, processors a `VersionedKeyValueStore`.

    Args:
        history_ms: how far back versions can be read.
        segment_ms: the length of the intervals in which old versions expire together.
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
        return True

    @property
    def caching(self) -> bool:
        return False

    def with_caching(self, enabled: bool) -> Self:
        """Return the builder itself, as versioned stores are never cached.

        Raises:
            IllegalStateError: `enabled` is true.
        """
        if enabled:
            raise IllegalStateError(
                f"Store {self.name} is versioned. Versioned stores cannot be cached, because a "
                "cache would drop intermediate versions. Disable caching."
            )
        return self

    def changelog_config(self) -> dict[str, str]:
        lag_ms = self.history_ms + _COMPACTION_LAG_MS
        return {**COMPACTED, "min.compaction.lag.ms": str(lag_ms)}

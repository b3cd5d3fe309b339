"""Builders of window and session stores."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, Self

from millstream.config.streams_config import StreamsConfig
from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import (
    COMPACTED,
    StoreBuilder,
    StoreBuilderBase,
    StoredK,
    StoredV,
    check_store_name,
)
from millstream.windowed import MAX_TIME_MS

logger = logging.getLogger(__name__)

#: The storage types of window and session stores.
WindowStoreKind = Literal["rocksdb", "in_memory"]

_KINDS: Final = ("rocksdb", "in_memory")
#: The default of `windowstore.changelog.additional.retention.ms`: changelogs are kept a day longer
#: than their stores, because the clocks of brokers and applications may differ.
_ADDITIONAL_RETENTION_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class WindowStoreSupplier:
    """The name, storage and retention of a window store.

    Created and documented by `Stores`.

    Raises:
        ConfigError: a duration is negative, or the retention is shorter than the windows.
    """

    name: str
    kind: WindowStoreKind
    retention: timedelta
    window_size: timedelta
    retain_duplicates: bool = False
    #: The durations in milliseconds.
    retention_ms: int = field(init=False, repr=False, compare=False)
    window_size_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_store_name(self.name)
        retention_ms = milliseconds(f"Store {self.name}", "retention", self.retention)
        size_ms = milliseconds(f"Store {self.name}", "window_size", self.window_size)
        object.__setattr__(self, "retention_ms", retention_ms)
        object.__setattr__(self, "window_size_ms", size_ms)
        if size_ms > retention_ms:
            raise ConfigError(
                f"Window store {self.name} has a retention of {self.retention}, which is shorter "
                f"than its windows ({self.window_size}). Set the retention to at least the window "
                "size."
            )


@dataclass(frozen=True)
class SessionStoreSupplier:
    """The name, storage and retention of a session store.

    Created and documented by `Stores`.

    Raises:
        ConfigError: the retention is negative.
    """

    name: str
    kind: WindowStoreKind
    retention: timedelta
    #: The retention in milliseconds.
    retention_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_store_name(self.name)
        retention_ms = milliseconds(f"Store {self.name}", "retention", self.retention)
        object.__setattr__(self, "retention_ms", retention_ms)


class _TimedStoreBuilder(StoreBuilderBase[StoredK, StoredV]):
    """The base class of the builders of window and session stores."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> WindowStoreKind | None: ...
        @property
        def retention_ms(self) -> int: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind is not None and self.kind not in _KINDS:
            raise ConfigError(
                f"Store {self.name} has the unknown kind {self.kind!r}. Window and session stores "
                f"support {' and '.join(_KINDS)}."
            )
        if self.retention_ms < 0:
            raise ConfigError(
                f"Store {self.name} has a negative retention, {self.retention_ms} ms. Set the "
                "retention to 0 or more."
            )

    @property
    def persistent(self) -> bool:
        """Whether the data survives the process. Only valid after `resolved()`."""
        return self.kind != "in_memory"

    def with_caching(self, enabled: bool) -> Self:
        """Return a copy with or without a record cache.

        Stores with duplicates are never cached.
        """
        return replace(self, caching=enabled)

    def resolved(self, config: StreamsConfig) -> Self:
        default = "in_memory" if config.default_dsl_store == "in_memory" else "rocksdb"
        return replace(super().resolved(config), kind=self.kind or default)

    def changelog_config(self) -> dict[str, str]:
        kept = min(self.retention_ms + _ADDITIONAL_RETENTION_MS, MAX_TIME_MS)
        return {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": str(kept)}


@dataclass(frozen=True)
class WindowStoreBuilder(_TimedStoreBuilder[StoredK, StoredV]):
    """The builder of a window store (Kafka Streams' `WindowStoreBuilder`). Immutable.

    Operators get a `WindowTable`, processors a `WindowStore`.

    Args:
        retention_ms: how long a window is kept, counted from its start.
        retain_duplicates: whether all values with the same key and time are kept. If so, the store
            is not cached, and its changelog is not compacted unless the store is timestamped.
        time_ordered: whether reads of many keys are ordered by time first, as needed to emit closed
            windows.
        log_headers: whether changelog records include the headers of the records, as for
            stream-stream joins.
        retention_inclusive: whether a record that is exactly `retention_ms` old is still kept and
            found, as joins require. Kafka Streams' stores only keep newer records.

    Raises:
        ConfigError: the name is not valid for a directory or topic, the kind is unknown, or a
            duration is out of range.
    """

    name: str
    kind: WindowStoreKind | None = None
    key_serde: Serde[StoredK] | None = None
    value_serde: Serde[StoredV] | None = None
    retention_ms: int = 0
    window_size_ms: int = 0
    retain_duplicates: bool = False
    timestamped: bool = False
    caching: bool = False
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)
    time_ordered: bool = False
    log_headers: bool = False
    retention_inclusive: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retain_duplicates:
            if not self.timestamped:
                # Each put has its own key, so there is nothing to compact. As in Kafka Streams,
                # this does not apply to timestamped stores.
                config = {"cleanup.policy": "delete", **self.topic_config}
                object.__setattr__(self, "topic_config", config)
            if self.caching:
                logger.warning(
                    "Window store %s retains duplicates, so it is not cached.", self.name
                )
                object.__setattr__(self, "caching", False)


@dataclass(frozen=True)
class SessionStoreBuilder(_TimedStoreBuilder[StoredK, StoredV]):
    """The builder of a session store. Immutable.

    Operators get a `SessionTable`, processors a `SessionStore`. Kafka Streams'
    `SessionStoreBuilder`.

    Args:
        retention_ms: how long a session is kept, counted from its end.
        time_ordered: whether reads of many keys are ordered by time first, as needed to emit closed
            sessions.

    Raises:
        ConfigError: the name is not valid for a directory or topic, the kind is unknown, or the
            retention is negative.
    """

    name: str
    kind: WindowStoreKind | None = None
    key_serde: Serde[StoredK] | None = None
    value_serde: Serde[StoredV] | None = None
    retention_ms: int = 0
    caching: bool = False
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)
    time_ordered: bool = False


def changelog_retention(builder: StoreBuilder, additional_ms: int) -> dict[str, str]:
    """Return the `retention.ms` of a window or session store's changelog.

    The result is empty for other stores. As in Kafka Streams, the retention overrides the
    application's `topic.*` settings, and only the store's own `topic_config` overrides the
    retention.

    Args:
        additional_ms: `windowstore.changelog.additional.retention.ms`.
    """
    if not isinstance(builder, (WindowStoreBuilder, SessionStoreBuilder)):
        return {}
    return {"retention.ms": str(min(builder.retention_ms + additional_ms, MAX_TIME_MS))}

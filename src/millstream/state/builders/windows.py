"""Window and session stores to be: names, kinds, serdes, retentions; nothing opened yet."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, Self

from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import (
    COMPACTED,
    SerdedBuilder,
    StoreBuilder,
    StoreDefaults,
    StoredK,
    StoredV,
    check_store_name,
)
from millstream.windowed import MAX_TIME_MS

logger = logging.getLogger(__name__)

#: Where a window or session store keeps its data.
WindowStoreKind = Literal["rocksdb", "in_memory"]

_KINDS: Final = ("rocksdb", "in_memory")
#: What `windowstore.changelog.additional.retention.ms` is by default: changelogs outlive their
#: stores by a day, as brokers and applications may not agree what time it is.
_ADDITIONAL_RETENTION_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class WindowStoreSupplier:
    """Where a window store keeps its data, and for how long. Made by `Stores`.

    Args:
        name: the store's name.
        kind: `rocksdb` or `in_memory`.
        retention: how long a window is kept, counted from its start.
        window_size: how long windows are.
        retain_duplicates: whether several values of one key at one time are kept beside each other.

    Raises:
        ConfigError: a duration is negative, or windows are longer than they are kept.
    """

    name: str
    kind: WindowStoreKind
    retention: timedelta
    window_size: timedelta
    retain_duplicates: bool = False
    #: The same in milliseconds.
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
                f"Window store {self.name} keeps windows for {self.retention}, which is shorter "
                f"than they are ({self.window_size}). Give a retention of at least the window size."
            )


@dataclass(frozen=True)
class SessionStoreSupplier:
    """Where a session store keeps its data, and for how long. Made by `Stores`.

    Args:
        name: the store's name.
        kind: `rocksdb` or `in_memory`.
        retention: how long a session is kept, counted from its end.

    Raises:
        ConfigError: the retention is negative.
    """

    name: str
    kind: WindowStoreKind
    retention: timedelta
    #: The same in milliseconds.
    retention_ms: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_store_name(self.name)
        retention_ms = milliseconds(f"Store {self.name}", "retention", self.retention)
        object.__setattr__(self, "retention_ms", retention_ms)


class _TimedStoreBuilder(SerdedBuilder[StoredK, StoredV]):
    """What the builders of window and session stores have in common."""

    if TYPE_CHECKING:

        @property
        def kind(self) -> WindowStoreKind | None: ...
        @property
        def retention_ms(self) -> int: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kind is not None and self.kind not in _KINDS:
            raise ConfigError(
                f"Store {self.name} cannot be of kind {self.kind!r}. For windows and sessions "
                f"there are {' and '.join(_KINDS)}."
            )
        if self.retention_ms < 0:
            raise ConfigError(
                f"Store {self.name} has a retention of {self.retention_ms} ms. Give one that is "
                "not negative."
            )

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process. Decided only once the kind is resolved."""
        return self.kind != "in_memory"

    def with_caching(self, enabled: bool) -> Self:
        """The same with or without the record cache. Duplicates are never cached."""
        return replace(self, caching=enabled)

    def resolved(self, config: StoreDefaults) -> Self:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        default = "in_memory" if config.default_dsl_store == "in_memory" else "rocksdb"
        return replace(super().resolved(config), kind=self.kind or default)

    def changelog_config(self) -> dict[str, str]:
        """The defaults of the changelog topic, under `topic.*` settings and `topic_config`."""
        kept = min(self.retention_ms + _ADDITIONAL_RETENTION_MS, MAX_TIME_MS)
        return {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": str(kept)}


@dataclass(frozen=True)
class WindowStoreBuilder(_TimedStoreBuilder[StoredK, StoredV]):
    """A window store to be (Kafka Streams' `WindowStoreBuilder`). Immutable.

    Operators get a `WindowTable`, processors a `WindowStore`.

    Args:
        name: the store's name, also of its changelog and directory.
        kind: where the data is kept; None for the config's `default_dsl_store`.
        key_serde: for keys; None for the config's default.
        value_serde: for values; None for the config's default.
        retention_ms: how long a window is kept, counted from its start, in milliseconds.
        window_size_ms: how long windows are, in milliseconds.
        retain_duplicates: whether several values of one key at one time are kept beside each
            other. Such a store is not cached, and its changelog not compacted.
        timestamped: whether each value is kept with its timestamp.
        caching: whether the record cache lies above; it is left out when the config gives no bytes
            to it.
        logging: whether changes go to a changelog, from which the store can be restored.
        topic_config: of the changelog, by Kafka's own names, over the defaults.
        time_ordered: whether many keys are read by time first, as emitting closed windows needs it.
        log_headers: whether changelog records have the headers of the records, as those of
            stream-stream joins do.
        keeps_edge: whether a record that is exactly `retention_ms` old is still kept and found, as
            joins need it; Kafka Streams' stores keep what is younger.

    Raises:
        ConfigError: a name that no directory or topic can have, an unknown kind, or a duration out
            of range.
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
    keeps_edge: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.retain_duplicates:
            if not self.timestamped:
                # Each put has a key of its own, so there is nothing to compact. Follows Kafka
                # Streams, which forgets about timestamped stores.
                config = {"cleanup.policy": "delete", **self.topic_config}
                object.__setattr__(self, "topic_config", config)
            if self.caching:
                logger.warning(
                    "Window store %s retains duplicates, so it is not cached.", self.name
                )
                object.__setattr__(self, "caching", False)


@dataclass(frozen=True)
class SessionStoreBuilder(_TimedStoreBuilder[StoredK, StoredV]):
    """A session store to be (Kafka Streams' `SessionStoreBuilder`). Immutable.

    Operators get a `SessionTable`, processors a `SessionStore`.

    Args:
        name: the store's name, also of its changelog and directory.
        kind: where the data is kept; None for the config's `default_dsl_store`.
        key_serde: for keys; None for the config's default.
        value_serde: for values; None for the config's default.
        retention_ms: how long a session is kept, counted from its end, in milliseconds.
        caching: whether the record cache lies above; it is left out when the config gives no bytes
            to it.
        logging: whether changes go to a changelog, from which the store can be restored.
        topic_config: of the changelog, by Kafka's own names, over the defaults.
        time_ordered: whether many keys are read by time first, as emitting closed sessions needs
            it.

    Raises:
        ConfigError: a name that no directory or topic can have, an unknown kind, or a negative
            retention.
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
    """How long the changelog of a window or session store is kept; empty for other stores.

    Follows Kafka Streams: this goes over the application's `topic.*` settings, and only what the
    user asked for the store itself goes over this.

    Args:
        builder: of the store.
        additional_ms: `windowstore.changelog.additional.retention.ms`.
    """
    if not isinstance(builder, (WindowStoreBuilder, SessionStoreBuilder)):
        return {}
    return {"retention.ms": str(min(builder.retention_ms + additional_ms, MAX_TIME_MS))}

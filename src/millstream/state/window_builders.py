"""Window and session stores to be: names, kinds, serdes, retentions; nothing opened yet."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

from millstream.errors import ConfigError
from millstream.serdes import Serde
from millstream.state.builders import (
    COMPACTED,
    StoreBuilder,
    StoreDefaults,
    check_store_name,
    key_serde_of,
    value_serde_of,
)
from millstream.windowed import MAX_TIME_MS

if TYPE_CHECKING:
    from millstream.state.open_store import OpenStore, StoreEnvironment

logger = logging.getLogger(__name__)

#: Where a window or session store keeps its data.
WindowStoreKind = Literal["rocksdb", "in_memory"]

_MILLISECOND: Final = timedelta(milliseconds=1)
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

    def __post_init__(self) -> None:
        check_store_name(self.name)
        _check_not_negative(self.name, "retention", self.retention)
        _check_not_negative(self.name, "window size", self.window_size)
        if self.window_size > self.retention:
            raise ConfigError(
                f"Window store {self.name} keeps windows for {self.retention}, which is shorter "
                f"than they are ({self.window_size}). Give a retention of at least the window size."
            )

    @property
    def retention_ms(self) -> int:
        """The retention in milliseconds."""
        return self.retention // _MILLISECOND

    @property
    def window_size_ms(self) -> int:
        """The window size in milliseconds."""
        return self.window_size // _MILLISECOND


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

    def __post_init__(self) -> None:
        check_store_name(self.name)
        _check_not_negative(self.name, "retention", self.retention)

    @property
    def retention_ms(self) -> int:
        """The retention in milliseconds."""
        return self.retention // _MILLISECOND


@dataclass(frozen=True)
class WindowStoreBuilder:
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

    Raises:
        ConfigError: a name that no directory or topic can have, an unknown kind, or a duration out
            of range.
    """

    name: str
    kind: WindowStoreKind | None = None
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    retention_ms: int = 0
    window_size_ms: int = 0
    retain_duplicates: bool = False
    timestamped: bool = False
    caching: bool = False
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)
    time_ordered: bool = False
    log_headers: bool = False

    def __post_init__(self) -> None:
        check_store_name(self.name)
        _check_kind(self.name, self.kind)
        _check_retention(self.name, self.retention_ms)
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

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process. Decided only once the kind is resolved."""
        return self.kind != "in_memory"

    def with_caching(self, enabled: bool) -> WindowStoreBuilder:
        """The same with or without the record cache. Duplicates cannot be cached."""
        return replace(self, caching=enabled)

    def with_logging(self, logging: bool | Mapping[str, str]) -> WindowStoreBuilder:
        """The same with or without a changelog.

        Args:
            logging: whether, or the config of the changelog topic by Kafka's own names.
        """
        return replace(self, logging=logging is not False, topic_config=_topic_config(logging))

    def resolved(self, config: StoreDefaults) -> WindowStoreBuilder:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        return replace(
            self,
            kind=self.kind or _default_kind(config),
            key_serde=key_serde_of(self, config),
            value_serde=value_serde_of(self, config),
        )

    def changelog_config(self) -> dict[str, str]:
        """The defaults of the changelog topic, under `topic.*` settings and `topic_config`."""
        return _changelog_config(self.retention_ms)

    def open(self, environment: StoreEnvironment) -> OpenStore:
        """Open the store in a task. Everything must be resolved.

        Raises:
            TaskCorruptedError: what is on disk cannot be read.
        """
        # Loads RocksDB, which whoever only describes a topology does not need.
        from millstream.state.open_windows import open_window_store

        return open_window_store(self, environment)


@dataclass(frozen=True)
class SessionStoreBuilder:
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
    key_serde: Serde[Any] | None = None
    value_serde: Serde[Any] | None = None
    retention_ms: int = 0
    caching: bool = False
    logging: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict)
    time_ordered: bool = False

    def __post_init__(self) -> None:
        check_store_name(self.name)
        _check_kind(self.name, self.kind)
        _check_retention(self.name, self.retention_ms)

    @property
    def persistent(self) -> bool:
        """Whether the data survives its process. Decided only once the kind is resolved."""
        return self.kind != "in_memory"

    def with_caching(self, enabled: bool) -> SessionStoreBuilder:
        """The same with or without the record cache."""
        return replace(self, caching=enabled)

    def with_logging(self, logging: bool | Mapping[str, str]) -> SessionStoreBuilder:
        """The same with or without a changelog.

        Args:
            logging: whether, or the config of the changelog topic by Kafka's own names.
        """
        return replace(self, logging=logging is not False, topic_config=_topic_config(logging))

    def resolved(self, config: StoreDefaults) -> SessionStoreBuilder:
        """The same with everything left open taken from the config.

        Raises:
            ConfigError: neither the builder nor the config has a serde.
        """
        return replace(
            self,
            kind=self.kind or _default_kind(config),
            key_serde=key_serde_of(self, config),
            value_serde=value_serde_of(self, config),
        )

    def changelog_config(self) -> dict[str, str]:
        """The defaults of the changelog topic, under `topic.*` settings and `topic_config`."""
        return _changelog_config(self.retention_ms)

    def open(self, environment: StoreEnvironment) -> OpenStore:
        """Open the store in a task. Everything must be resolved.

        Raises:
            TaskCorruptedError: what is on disk cannot be read.
        """
        from millstream.state.open_windows import open_session_store

        return open_session_store(self, environment)


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


def _changelog_config(retention_ms: int) -> dict[str, str]:
    kept = min(retention_ms + _ADDITIONAL_RETENTION_MS, MAX_TIME_MS)
    return {**COMPACTED, "cleanup.policy": "compact,delete", "retention.ms": str(kept)}


def _topic_config(logging: bool | Mapping[str, str]) -> dict[str, str]:
    return dict(logging) if isinstance(logging, Mapping) else {}


def _default_kind(config: StoreDefaults) -> WindowStoreKind:
    return "in_memory" if config.default_dsl_store == "in_memory" else "rocksdb"


def _check_kind(name: str, kind: str | None) -> None:
    if kind is not None and kind not in _KINDS:
        raise ConfigError(
            f"Store {name} cannot be of kind {kind!r}. For windows and sessions there are "
            f"{' and '.join(_KINDS)}."
        )


def _check_retention(name: str, retention_ms: int) -> None:
    if retention_ms < 0:
        raise ConfigError(
            f"Store {name} has a retention of {retention_ms} ms. Give one that is not negative."
        )


def _check_not_negative(name: str, what: str, duration: timedelta) -> None:
    if duration < timedelta(0):
        raise ConfigError(
            f"Store {name} has a {what} of {duration}. Give one that is not negative."
        )

"""Opening a window or session store: putting its layers above each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from millstream.state.caches.window_cache import WindowCache
from millstream.state.changelogs.timed_changelog import LoggedWindows
from millstream.state.keyvalue.opening import OpenStore, StoreEnvironment, open_base
from millstream.state.storage.bytes_store import CommittableStore
from millstream.state.storage.overlay import OverlayStore
from millstream.state.storage.value_formats import PLAIN, ValueFormat, format_of
from millstream.state.windows.builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.windows.memory_windows import MemoryWindows
from millstream.state.windows.segmented_windows import SegmentedWindows, segment_length_ms
from millstream.state.windows.session_store import SessionStore
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.time_index import TimeIndexedOverlay, TimeOrderedWindows
from millstream.state.windows.timed_store import CommittableTimedStore
from millstream.state.windows.window_keys import SESSIONS, WINDOWS, KeyLayout, StoredKeySerde
from millstream.state.windows.window_store import WindowStore
from millstream.state.windows.window_table import WindowTable

_TOO_LATE: Final = "they come too late for a window that is kept no more"


def open_window_store(builder: WindowStoreBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open a window store whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    value_format = format_of(builder.timestamped)
    key_serde, value_serde = builder.serdes()
    base, logged, cache = _open_layers(builder, environment, WINDOWS, value_format)
    table = WindowTable(
        builder.name,
        base,
        logged=logged,
        cache=cache,
        value_format=value_format,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        window_size_ms=builder.window_size_ms,
        retention_ms=builder.retention_ms,
        retain_duplicates=builder.retain_duplicates,
        log_headers=builder.log_headers,
    )
    store: WindowStore[Any, Any] = WindowStore(
        table,
        topic=environment.topic,
        key_serde=key_serde,
        persistent=base.persistent,
        context=environment.context,
    )
    committed = cast(CommittableStore, base)  # Nobody scans a base but the layers above it.
    return OpenStore(store, table, cache, committed, value_format, base.persistent)


def open_session_store(builder: SessionStoreBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open a session store whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, value_serde = builder.serdes()
    base, logged, cache = _open_layers(builder, environment, SESSIONS, PLAIN)
    table = SessionTable(
        builder.name,
        base,
        logged=logged,
        cache=cache,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        retention_ms=builder.retention_ms,
    )
    store: SessionStore[Any, Any] = SessionStore(
        table,
        topic=environment.topic,
        key_serde=key_serde,
        persistent=base.persistent,
        context=environment.context,
    )
    committed = cast(CommittableStore, base)
    return OpenStore(store, table, cache, committed, PLAIN, base.persistent)


def _open_layers(
    builder: WindowStoreBuilder | SessionStoreBuilder,
    environment: StoreEnvironment,
    layout: KeyLayout,
    value_format: ValueFormat,
) -> tuple[CommittableTimedStore, LoggedWindows | None, WindowCache | None]:
    name = builder.name
    key_serde, value_serde = builder.serdes()
    base = _open_base(builder, environment, layout, _counting(environment, name))
    logged = None
    if builder.logging:
        logged = LoggedWindows(name, base, value_format, environment.writer)
    cache = None
    if builder.caching and environment.budget.max_bytes > 0:
        size_ms = builder.window_size_ms if isinstance(builder, WindowStoreBuilder) else 0
        cache = WindowCache(
            name,
            logged or base,
            value_format,
            layout,
            topic=environment.topic,
            key_serde=StoredKeySerde(key_serde, layout, size_ms),
            value_serde=value_serde,
            budget=environment.budget,
            context=environment.context,
        )
    return base, logged, cache


def _open_base(
    builder: WindowStoreBuilder | SessionStoreBuilder,
    environment: StoreEnvironment,
    layout: KeyLayout,
    expired: Callable[[], None],
) -> CommittableTimedStore:
    if not builder.persistent:
        return MemoryWindows(layout, builder.retention_ms, expired)
    if builder.time_ordered:
        segment_ms = segment_length_ms(builder.retention_ms)
        indexed = partial(TimeIndexedOverlay, layout=layout, segment_ms=segment_ms)
        base = open_base(builder.name, True, environment, indexed)
        assert isinstance(base, TimeIndexedOverlay)
        return TimeOrderedWindows(
            layout,
            base,
            retention_ms=builder.retention_ms,
            recent_bytes=environment.uncommitted_max_bytes,
            expired=expired,
        )
    base = open_base(builder.name, True, environment)
    assert isinstance(base, OverlayStore)
    return SegmentedWindows(
        layout,
        base,
        retention_ms=builder.retention_ms,
        recent_bytes=environment.uncommitted_max_bytes,
        time_ordered=False,
        retain_duplicates=isinstance(builder, WindowStoreBuilder) and builder.retain_duplicates,
        expired=expired,
    )


def _counting(environment: StoreEnvironment, name: str) -> Callable[[], None]:
    dropped = environment.dropped

    def expired() -> None:
        dropped(1, _TOO_LATE, name)

    return expired

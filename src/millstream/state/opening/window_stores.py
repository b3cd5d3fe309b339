"""Opening window and session stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.state.builders.windows import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.changelogs.logged_windows import LoggedWindows
from millstream.state.changelogs.restore import apply_latest
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.lowest_layer import open_overlay, open_storage
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.readers import SessionReader, WindowReader
from millstream.state.storage.timed_store import CommittableTimedStore, TimedStore
from millstream.state.storage.value_formats import PLAIN, ValueFormat, format_of
from millstream.state.windows.duplicate_windows import (
    DuplicateStore,
    MemoryDuplicates,
    SegmentedDuplicates,
)
from millstream.state.windows.memory_windows import MemoryWindows
from millstream.state.windows.segmented_windows import SegmentedWindows
from millstream.state.windows.segments import segment_length_ms
from millstream.state.windows.session_store import SessionStore
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.time_index import TimeIndexedOverlay, TimeOrderedWindows
from millstream.state.windows.window_cache import WindowCache
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
    changelog = environment.changelog_of(builder, value_format)
    # What is ordered by time is sent when it is final: nobody joins that.
    is_joined = builder.retain_duplicates and not builder.time_ordered
    duplicates = _open_duplicates(builder, environment) if is_joined else None
    base = _open_base(builder, environment, WINDOWS) if duplicates is None else duplicates
    layers, cache = _open_layers(base, builder, environment, WINDOWS, value_format, changelog)
    table = WindowTable(
        builder.name,
        base,
        duplicates=duplicates,
        layers=layers,
        changelog=changelog,
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
    return OpenStore(
        store,
        table,
        base,
        apply_latest(base, value_format),
        cache,
        reader=WindowReader(table, base),
        position=store.position,
    )


def open_session_store(builder: SessionStoreBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open a session store whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    key_serde, value_serde = builder.serdes()
    changelog = environment.changelog_of(builder)
    base = _open_base(builder, environment, SESSIONS)
    layers, cache = _open_layers(base, builder, environment, SESSIONS, PLAIN, changelog)
    table = SessionTable(
        builder.name,
        base,
        layers=layers,
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
    return OpenStore(
        store,
        table,
        base,
        apply_latest(base, PLAIN),
        cache,
        reader=SessionReader(table, base),
        position=store.position,
    )


def _open_layers(
    base: CommittableTimedStore,
    builder: WindowStoreBuilder | SessionStoreBuilder,
    environment: StoreEnvironment,
    layout: KeyLayout,
    value_format: ValueFormat,
    changelog: StoreChangelog,
) -> tuple[TimedStore, WindowCache | None]:
    """The topmost layer, and the cache among them."""
    name = builder.name
    key_serde, value_serde = builder.serdes()
    layers: TimedStore = LoggedWindows(base, changelog) if changelog.enabled else base
    cache = None
    if builder.caching and environment.budget.max_bytes > 0:
        size_ms = builder.window_size_ms if isinstance(builder, WindowStoreBuilder) else 0
        cache = layers = WindowCache(
            name,
            layers,
            value_format,
            layout,
            topic=environment.topic,
            key_serde=StoredKeySerde(key_serde, layout, size_ms),
            value_serde=value_serde,
            budget=environment.budget,
            context=environment.context,
        )
    return layers, cache


def _open_base(
    builder: WindowStoreBuilder | SessionStoreBuilder,
    environment: StoreEnvironment,
    layout: KeyLayout,
) -> CommittableTimedStore:
    expired = _counting(environment, builder.name)
    if not builder.persistent:
        return MemoryWindows(layout, builder.retention_ms, expired)
    if builder.time_ordered:
        indexed = TimeIndexedOverlay(
            open_storage(builder.name, environment),
            layout,
            segment_length_ms(builder.retention_ms),
            environment.write_check,
        )
        return TimeOrderedWindows(
            layout,
            indexed,
            retention_ms=builder.retention_ms,
            recent_bytes=environment.recent_max_bytes,
            expired=expired,
        )
    return SegmentedWindows(
        layout,
        open_overlay(builder.name, environment),
        retention_ms=builder.retention_ms,
        recent_bytes=environment.recent_max_bytes,
        time_ordered=False,
        expired=expired,
    )


def _open_duplicates(builder: WindowStoreBuilder, environment: StoreEnvironment) -> DuplicateStore:
    expired = _counting(environment, builder.name)
    if not builder.persistent:
        return MemoryDuplicates(builder.retention_ms + builder.keeps_edge, expired)
    return SegmentedDuplicates(
        open_overlay(builder.name, environment),
        retention_ms=builder.retention_ms,
        keeps_edge=builder.keeps_edge,
        recent_bytes=environment.recent_max_bytes,
        expired=expired,
    )


def _counting(environment: StoreEnvironment, name: str) -> Callable[[], None]:
    dropped = environment.dropped

    def expired() -> None:
        dropped(1, _TOO_LATE, name)

    return expired

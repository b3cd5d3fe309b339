"""Opens stores of each kind: assembles the layers that a builder describes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, singledispatch
from typing import Any, Final

from millstream.errors import StreamsError
from millstream.state.buffers.grace_buffer import GraceBuffer
from millstream.state.buffers.join_stores import OuterJoinStore, SubscriptionTable
from millstream.state.buffers.time_ordered_buffer import TimeOrderedBuffer
from millstream.state.builders.buffer_builders import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SubscriptionStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.builders.store_builder import KeyValueStoreBuilder, StoreBuilder
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.logged_stores import LoggedLRUStore, LoggedStore, LoggedWindows
from millstream.state.changelogs.restore import apply_each, apply_latest
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.keyvalue.key_value_store import KeyValueStore
from millstream.state.keyvalue.key_value_table import TimestampedTable
from millstream.state.opening.open_store import (
    OpenStore,
    StoreEnvironment,
    open_base,
    open_overlay,
    open_storage,
)
from millstream.state.queries.readers import (
    read_key_values,
    read_sessions,
    read_versions,
    read_windows,
)
from millstream.state.storage.bytes_store import BytesStore, ChangelogOffset
from millstream.state.storage.lru import LRUStore
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.timed_store import CommittableTimedStore, TimedStore
from millstream.state.storage.value_formats import PLAIN, TIMESTAMPED, ValueFormat, format_of
from millstream.state.versioned.versioned_store import VersionedKeyValueStore
from millstream.state.versioned.versioned_table import VersionedTable
from millstream.state.versioned.versions import VersionedBytes
from millstream.state.windows.duplicate_windows import (
    DuplicateStore,
    MemoryDuplicates,
    SegmentedDuplicates,
)
from millstream.state.windows.memory_windows import MemoryWindows
from millstream.state.windows.segmented_windows import SegmentedWindows, segment_length_ms
from millstream.state.windows.session_store import SessionStore
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.time_index import TimeIndexedOverlay, TimeOrderedWindows
from millstream.state.windows.window_cache import WindowCache
from millstream.state.windows.window_keys import SESSIONS, WINDOWS, KeyLayout, StoredKeySerde
from millstream.state.windows.window_store import WindowStore
from millstream.state.windows.window_table import WindowTable

_TOO_LATE: Final = "they arrived after their window had expired"


@singledispatch
def open_store(builder: StoreBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open the store that a resolved builder describes.

    Raises:
        TaskCorruptedError: the data on disk cannot be read.
        LockError: another owner has the store open.
        StreamsError: the disk failed, or the kind of builder is unknown.
    """
    raise StreamsError(
        f"Store {builder.name} cannot be opened: {type(builder).__name__} is not a known kind of "
        "store builder. Create builders with Stores.",
        task_id=environment.task_id,
    )


@open_store.register
def _open_key_value_store(
    builder: KeyValueStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    name, topic, context = builder.name, environment.topic, environment.context
    key_serde, value_serde = builder.serdes()
    value_format = format_of(builder.timestamped)
    changelog = environment.changelog_of(builder, value_format)
    lru = None if builder.max_entries is None else LRUStore(builder.max_entries)
    base = lru or open_base(name, builder.persistent, environment)
    layers: BytesStore = base
    if lru is not None and changelog.enabled and not builder.timestamped:
        # Follows Kafka Streams, which does not log the evictions of timestamped LRU stores.
        layers = LoggedLRUStore(lru, changelog, context)
    elif changelog.enabled:
        layers = LoggedStore(layers, changelog)
    cache = None
    if builder.caching and environment.budget.max_bytes > 0:
        cache = layers = RecordCache(
            name,
            layers,
            value_format,
            topic=topic,
            key_serde=key_serde,
            value_serde=value_serde,
            budget=environment.budget,
            context=context,
        )
        cache.may_outlive_store = lru is not None
    store: KeyValueStore[Any, Any] = KeyValueStore(
        name,
        layers,
        value_format,
        topic=topic,
        key_serde=key_serde,
        value_serde=value_serde,
        persistent=base.persistent,
        context=context,
        cache=cache,
    )
    table = None
    if builder.timestamped:
        table = TimestampedTable(
            name,
            layers,
            cache=cache,
            topic=topic,
            key_serde=key_serde,
            value_serde=value_serde,
        )
    if lru is None:
        apply = apply_latest(base, value_format)
    else:
        # The order of the records determines which keys were used last.
        apply = apply_each(lru.put, lru.commit, value_format)
    read = partial(read_key_values, layers, base, cache)
    return OpenStore(store, table, base, apply, cache, read=read, position=store.position)


@open_store.register
def _open_versioned_store(
    builder: VersionedStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    key_serde, value_serde = builder.serdes()
    base = open_base(builder.name, builder.persistent, environment)
    versions = VersionedBytes(
        builder.name, base, history_ms=builder.history_ms, segment_ms=builder.segment_ms
    )
    table = VersionedTable(
        builder.name,
        versions,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        changelog=environment.changelog_of(builder),
        dropped=environment.dropped,
    )
    store: VersionedKeyValueStore[Any, Any] = VersionedKeyValueStore(
        table,
        topic=environment.topic,
        key_serde=key_serde,
        persistent=base.persistent,
        context=environment.context,
    )

    def finish(offset: ChangelogOffset) -> None:
        versions.save_stream_time()
        base.commit_restored(offset)

    return OpenStore(
        store,
        table,
        base,
        apply_each(versions.put, finish),
        before_commit=versions.save_stream_time,
        read=partial(read_versions, versions),
        position=store.position,
    )


@open_store.register
def _open_window_store(builder: WindowStoreBuilder, environment: StoreEnvironment) -> OpenStore:
    value_format = format_of(builder.timestamped)
    key_serde, value_serde = builder.serdes()
    changelog = environment.changelog_of(builder, value_format)
    # Time-ordered windows are emitted when they are final, so they are never joined.
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
        read=partial(read_windows, table, base),
        position=store.position,
    )


@open_store.register
def _open_session_store(builder: SessionStoreBuilder, environment: StoreEnvironment) -> OpenStore:
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
        read=partial(read_sessions, table, base),
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
    """Add changelog layer and cache; return the topmost layer and the cache, if any."""
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
    expired = _expiry_counter(environment, builder.name)
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
    expired = _expiry_counter(environment, builder.name)
    if not builder.persistent:
        return MemoryDuplicates(builder.retention_ms + builder.retention_inclusive, expired)
    return SegmentedDuplicates(
        open_overlay(builder.name, environment),
        retention_ms=builder.retention_ms,
        retention_inclusive=builder.retention_inclusive,
        recent_bytes=environment.recent_max_bytes,
        expired=expired,
    )


def _expiry_counter(environment: StoreEnvironment, name: str) -> Callable[[], None]:
    dropped = environment.dropped

    def expired() -> None:
        dropped(1, _TOO_LATE, name)

    return expired


@open_store.register
def _open_suppress_buffer(
    builder: SuppressBufferBuilder, environment: StoreEnvironment
) -> OpenStore:
    key_serde, value_serde = builder.serdes()
    buffer = TimeOrderedBuffer(
        builder.name,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        changelog=environment.changelog_of(builder),
    )
    # The base stores only the changelog offset; the buffer stores the data.
    base = MemoryStore()
    return OpenStore(
        buffer,
        buffer,
        base,
        apply_each(buffer.restore, base.commit),
        before_commit=buffer.log_changes,
    )


@open_store.register
def _open_grace_buffer(builder: GraceBufferBuilder, environment: StoreEnvironment) -> OpenStore:
    key_serde, value_serde = builder.serdes()
    base = open_base(builder.name, builder.persistent, environment)
    buffer = GraceBuffer(
        builder.name,
        base,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        grace_ms=builder.grace_ms,
        changelog=environment.changelog_of(builder),
    )
    return OpenStore(
        buffer, buffer, base, apply_latest(base, PLAIN), on_recycle=buffer.reset_derived_state
    )


@open_store.register
def _open_outer_join_store(
    builder: OuterJoinStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    key_serde, left_serde = builder.serdes()
    assert builder.right_serde is not None, "the right serde is not resolved"
    base = open_base(builder.name, builder.persistent, environment)
    store = OuterJoinStore(
        builder.name,
        base,
        topic=environment.topic,
        key_serde=key_serde,
        left_serde=left_serde,
        right_serde=builder.right_serde,
        persistent=base.persistent,
        changelog=environment.changelog_of(builder),
    )
    return OpenStore(store, store, base, apply_latest(base, PLAIN))


@open_store.register
def _open_subscription_store(
    builder: SubscriptionStoreBuilder, environment: StoreEnvironment
) -> OpenStore:
    key_serde, value_serde = builder.serdes()
    changelog = environment.changelog_of(builder, TIMESTAMPED)
    base = open_base(builder.name, builder.persistent, environment)
    # The interface for reads outside of the join, for example by test drivers.
    store: KeyValueStore[Any, Any] = KeyValueStore(
        builder.name,
        LoggedStore(base, changelog),
        TIMESTAMPED,
        topic=environment.topic,
        key_serde=key_serde,
        value_serde=value_serde,
        persistent=base.persistent,
        context=environment.context,
    )
    table = SubscriptionTable(builder.name, base, changelog)
    return OpenStore(store, table, base, apply_latest(base, TIMESTAMPED))

"""Opening a store: putting the layers that its builder asks for above each other."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millstream.record import TaskId, TopicPartition
from millstream.state.caches.cache import RecordCache
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.changelog import ChangelogWriter, LoggedStore, RecordContext
from millstream.state.changelogs.restore import ApplyRecords
from millstream.state.keyvalue.builders import KeyValueStoreBuilder
from millstream.state.keyvalue.store import KeyValueStore
from millstream.state.keyvalue.table import TimestampedTable
from millstream.state.storage.bytes_store import BytesStore, CommittableStore, Storage
from millstream.state.storage.lru import LoggedLRUStore, LRUStore
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.overlay import OverlayStore
from millstream.state.storage.storages import Storages
from millstream.state.storage.value_formats import ValueFormat, format_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreEnvironment:
    """What a store finds in the task that opens it.

    Args:
        task_id: the task.
        directory: of the task; persistent stores live in it.
        topic: handed to serdes: the name of the changelog, whether there is one or not.
        changelog: the partition from which the store is restored; None if from none.
        writer: where changes are logged, if the builder wants logging.
        context: the record being processed.
        budget: of the record caches of the thread.
        exactly_once: whether state must never be ahead of what is committed.
        uncommitted_max_bytes: bytes of writes of the store that may wait for a commit.
        storages: opens what keeps the data of persistent stores.
        dropped: counts records that a store does not take because they come too late; it is told
            how many, why, and the store's name.
    """

    task_id: TaskId
    directory: Path
    topic: str
    changelog: TopicPartition | None
    writer: ChangelogWriter
    context: RecordContext
    budget: CacheBudget
    exactly_once: bool
    uncommitted_max_bytes: int
    storages: Storages
    dropped: Callable[[int, str, str], None]


@dataclass(slots=True)
class OpenStore:
    """One store of a task, with those of its layers that somebody asks for by name.

    Args:
        store: what processors get.
        table: what the DSL's operators get, for example a `TimestampedTable`; None for stores which
            only processors use.
        cache: the record cache, None without caching.
        base: the lowest writable layer: commits, restoration, closing.
        value_format: how values lie in `base`.
        persistent: whether the data survives its process.
        keeps_offset: whether `base` keeps the changelog offset with its data. For a persistent
            store which does not, the task keeps it in its checkpoint file.
        apply: writes changelog records to the store, where the last one of a key does not say all.
        log_changes: sends what the store logs only at commits.
    """

    store: Any
    table: Any
    cache: RecordCache | None
    base: CommittableStore
    value_format: ValueFormat
    persistent: bool
    keeps_offset: bool = True
    apply: ApplyRecords | None = None
    log_changes: Callable[[], None] | None = None

    def close(self) -> None:
        """Release everything; what is not committed is dropped."""
        self.store.close()
        if self.cache is not None:
            self.cache.close()
        self.base.close()


def open_key_value_store(builder: KeyValueStoreBuilder, environment: StoreEnvironment) -> OpenStore:
    """Open a key-value store whose builder is resolved.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    name, topic, context = builder.name, environment.topic, environment.context
    key_serde, value_serde = builder.serdes()
    value_format = format_of(builder.timestamped)
    lru = None if builder.max_entries is None else LRUStore(builder.max_entries)
    base = lru or open_base(builder.name, builder.persistent, environment)
    layers: BytesStore = base
    if lru is not None and builder.logging and not builder.timestamped:
        # Follows Kafka Streams, where the timestamps hide from the changelog what is forgotten.
        layers = LoggedLRUStore(name, lru, value_format, environment.writer, context)
    elif builder.logging:
        layers = LoggedStore(name, layers, value_format, environment.writer)
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
        cache.remembers_more = lru is not None
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
    apply = None if lru is None else lru.apply_in(value_format)
    return OpenStore(store, table, cache, base, value_format, base.persistent, apply=apply)


def open_base(
    name: str,
    persistent: bool,
    environment: StoreEnvironment,
    overlay: Callable[..., OverlayStore] = OverlayStore,
) -> CommittableStore:
    """The lowest writable layer of a store: RocksDB below uncommitted writes, or memory.

    Args:
        name: the store's name.
        persistent: whether the data survives its process.
        environment: of its task.
        overlay: makes the layer of uncommitted writes; takes what `OverlayStore` takes.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    if not persistent:
        return MemoryStore()
    return overlay(
        _open_storage(name, environment),
        limit_bytes=environment.uncommitted_max_bytes,
        spill_when_full=not environment.exactly_once,
    )


def _open_storage(name: str, environment: StoreEnvironment) -> Storage:
    place = (name, environment.directory / "rocksdb" / name, environment.task_id)
    storage = environment.storages.open(*place)
    why = _why_not_trusted(storage, environment)
    if why is None:
        return storage
    logger.info(
        "task %s: store %s is rebuilt from its changelog: %s", environment.task_id, name, why
    )
    storage.close()
    environment.storages.destroy(*place)
    return environment.storages.open(*place)


def _why_not_trusted(storage: Storage, environment: StoreEnvironment) -> str | None:
    if environment.changelog is None:
        return None
    if environment.exactly_once and storage.spilled:
        return "it holds writes of a time under at-least-once that may never have been committed"
    if storage.committed_offset(environment.changelog) is None and not storage.is_empty():
        # Restoring above it would keep keys whose deletion has left the compacted changelog.
        return f"it holds data, but not how far it got in {environment.changelog}"
    return None

"""Open stores, the environment in which they are opened, and their lowest layers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from millstream.record import TaskId, TopicPartition
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.restore import ApplyRecords
from millstream.state.changelogs.store_changelog import (
    ChangelogWriter,
    ProcessorRecordContext,
    StoreChangelog,
)
from millstream.state.engine_failures import EngineFailures
from millstream.state.keyvalue.typed_store import StorePosition
from millstream.state.queries.read_requests import ReadRequest
from millstream.state.storage.bytes_store import (
    ByteItems,
    Committable,
    CommittableStore,
    Storage,
)
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.overlay import OverlayStore
from millstream.state.storage.storages import Storages
from millstream.state.storage.value_formats import PLAIN, ValueFormat
from millstream.state.storage.write_check import WriteCheck

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreEnvironment:
    """The task's services for a store that is being opened.

    Args:
        topic: the topic that is passed to serdes: the changelog's name, even if the store has none.
        restored_from: the partition from which the store is restored; None if it is not restored.
        writer: writes changes to changelogs if the builder enables logging; None to disable it.
        recent_max_bytes: the limit for the recent entries that a window store keeps in memory.
        dropped: counts records that were too late for a store; called with their number, the
            reason and the store's name.
        write_check: verifies the order of writes and deliveries, in tests.
    """

    task_id: TaskId
    directory: Path
    topic: str
    restored_from: TopicPartition | None
    writer: ChangelogWriter | None
    context: ProcessorRecordContext
    budget: CacheBudget
    recent_max_bytes: int
    storages: Storages
    dropped: Callable[[int, str, str], None]
    write_check: WriteCheck | None = None
    failures: EngineFailures = field(default_factory=EngineFailures)

    def changelog_of(
        self, builder: StoreBuilder, value_format: ValueFormat = PLAIN
    ) -> StoreChangelog:
        """Return the changelog of a store; disabled if its builder disables logging."""
        writer = self.writer if builder.logging else None
        return StoreChangelog(builder.name, writer, value_format)


@dataclass(slots=True)
class OpenStore:
    """An open store of a task, with the layers that the task accesses.

    Args:
        store: the interface for processors.
        table: the interface for the DSL's operators, for example a `TimestampedTable`; None for
            stores that only processors use.
        base: the lowest writable layer, which the task commits, restores and closes.
        keeps_offset: whether `base` stores the changelog offset with its data. If not, the task
            writes the offset of a persistent store to its checkpoint file.
        before_commit: writes and logs the changes that the store defers until a commit.
        on_recycle: resets state derived from the data, which may change in the task's other role.
        read: reads the store for queries (see `queries/readers.py`); None if it cannot be queried.
    """

    store: Any
    table: Any
    base: Committable
    apply: ApplyRecords
    cache: RecordCache | None = None
    keeps_offset: bool = True
    before_commit: Callable[[], None] | None = None
    on_recycle: Callable[[], None] | None = None
    read: Callable[[ReadRequest], ByteItems | None] | None = None
    position: StorePosition = field(default_factory=StorePosition)

    @property
    def persistent(self) -> bool:
        return self.base.persistent

    @property
    def stream_time(self) -> int | None:
        """The latest time put into a window or session store; None for other stores."""
        return getattr(self.base, "observed_time", None)

    def close(self) -> None:
        """Release all resources and discard uncommitted writes."""
        with ExitStack() as closing:
            closing.callback(self.base.close)
            if self.cache is not None:
                closing.callback(self.cache.close)
            self.store.close()


def open_base(name: str, persistent: bool, environment: StoreEnvironment) -> CommittableStore:
    """Open the lowest writable layer of a store; see `open_storage` for the errors."""
    return open_overlay(name, environment) if persistent else MemoryStore()


def open_overlay(name: str, environment: StoreEnvironment) -> OverlayStore:
    """Open the lowest writable layer of a persistent store; see `open_base`."""
    return OverlayStore(open_storage(name, environment), environment.write_check)


def open_storage(name: str, environment: StoreEnvironment) -> Storage:
    """Open the storage of a persistent store; recreate it if its data is unusable.

    Raises:
        TaskCorruptedError: the data on disk cannot be read.
    """
    location = (name, environment.directory / "rocksdb" / name, environment.task_id)
    storage = environment.storages.open(*location)
    storage.on_failure = environment.failures.record
    why = _rebuild_reason(storage, environment)
    if why is None:
        return storage
    logger.info(
        "task %s: rebuilding store %s from its changelog: %s", environment.task_id, name, why
    )
    storage.close()
    environment.storages.destroy(*location)
    storage = environment.storages.open(*location)
    storage.on_failure = environment.failures.record
    return storage


def _rebuild_reason(storage: Storage, environment: StoreEnvironment) -> str | None:
    if environment.restored_from is None:
        return None
    if storage.committed_offset(environment.restored_from) is None and not storage.is_empty():
        # Restoring into this data would keep keys whose deletions have been compacted away.
        return f"it contains data but no offset for {environment.restored_from}"
    return None

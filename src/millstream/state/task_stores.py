"""The stores of one task: opened, restored, committed and closed together.

Kafka Streams' `ProcessorStateManager`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter_ns
from typing import Any, Final

from millstream.errors import (
    IllegalStateError,
    StreamsError,
    TaskCorruptedError,
    UnknownStateStoreError,
)
from millstream.metrics.registry import MetricsScope, detached_scope
from millstream.record import TaskId, TopicPartition
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.restore import StoreRestorer
from millstream.state.changelogs.store_changelog import (
    ChangelogWriter,
    ProcessorRecordContext,
    TrackingChangelogWriter,
)
from millstream.state.directories.checkpoint import CheckpointFile
from millstream.state.directories.disk import disk_errors
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.engine_failures import EngineFailures
from millstream.state.opening.open_store import OpenStore, StoreEnvironment
from millstream.state.opening.store_layers import open_store
from millstream.state.storage.overlay import UncommittedBudget
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.state.storage.storages import Storages
from millstream.state.storage.write_check import WriteCheck
from millstream.state.store_metrics import StoreMetrics

logger = logging.getLogger(__name__)

#: How many offsets the stores may be ahead of the checkpoint file before the file is rewritten.
_CHECKPOINT_AFTER_OFFSETS: Final = 10_000


class TaskStores:
    """The stores of one task by name, in the order of registration in the topology.

    To commit, flush the caches (operators flush theirs; then call `flush_cache` for each store
    until no cache has changes), flush the producer, commit the input offsets, and call `commit`
    with the acknowledged changelog offsets. Only commits and restoration write to
    persistent stores, so the state on disk always corresponds to a commit.

    An instance is owned by one thread at a time, and may be reopened after closing.

    Args:
        directory: the application's state directory on this host, for persistent stores only.
        application_id: the prefix of changelog names that are passed to serdes.
        changelogs: the changelog partition of each store that is restored. The topic is the store's
            own changelog, or a source topic that serves as its changelog.
        recent_max_bytes: the limit for the recent entries that all window stores keep in memory.
        dropped: see `StoreEnvironment`.
        write_check: verifies the order of writes and deliveries, in tests.
        failures: records engine failures, which user code may hide.
    """

    def __init__(
        self,
        task_id: TaskId,
        builders: Sequence[StoreBuilder],
        directory: StateDirectory,
        *,
        application_id: str,
        changelogs: Mapping[str, TopicPartition],
        writer: ChangelogWriter,
        context: ProcessorRecordContext,
        budget: CacheBudget,
        uncommitted: UncommittedBudget | None = None,
        recent_max_bytes: int = 64 << 20,
        storages: Storages | None = None,
        dropped: Callable[[int, str, str], None] | None = None,
        metrics: MetricsScope | None = None,
        write_check: WriteCheck | None = None,
        failures: EngineFailures | None = None,
    ) -> None:
        self._metrics = StoreMetrics(metrics or detached_scope())
        self.task_id = task_id
        self._builders = list(builders)
        self._directory = directory
        self._application_id = application_id
        self._changelogs = dict(changelogs)
        #: Failures of storages and changelogs since the stores were opened.
        self.failures = failures or EngineFailures()
        self._writer = TrackingChangelogWriter(writer, self.failures)
        self._context = context
        self._budget = budget
        self._uncommitted = uncommitted or UncommittedBudget()
        self._write_check = write_check
        persistent = sum(builder.persistent for builder in builders)
        self._is_persistent = persistent > 0
        self._recent_max_bytes = recent_max_bytes // max(1, persistent)
        self._storages = storages
        self._dropped = dropped or _ignore_dropped
        self._stores: dict[str, OpenStore] = {}
        self._checkpoint = CheckpointFile(directory.checkpoint_path(task_id), directory.disk)
        self._written_checkpoint: dict[TopicPartition, int] = {}
        self._restorers: dict[TopicPartition, StoreRestorer] = {}
        self._saved_offset_sum = 0
        if write_check is not None:
            write_check.watch(self, "flush_cache", "write_cached_changes", "log_changes")

    # --- life cycle ----------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the task's directory and open the stores.

        Raises:
            LockError: another process owns the task.
            TaskCorruptedError: a store or the checkpoint cannot be read. All stores are closed,
                and the next owner of the task starts with an empty state.
        """
        with (
            disk_errors(f"open the state of task {self.task_id}", self.task_id),
            ExitStack() as undo,
        ):
            if self._is_persistent:
                self._directory.lock_task(self.task_id)
                undo.callback(self._directory.unlock_task, self.task_id)
                self._directory.prepare_task(self.task_id)
            undo.callback(self._close_stores)
            self._writer.has_written = False
            self.failures.reset()
            try:
                self._read_checkpoint()
                for builder in self._builders:
                    began_ns = perf_counter_ns()
                    opened = open_store(builder, self._environment(builder.name))
                    self._metrics.on_open(builder, opened, perf_counter_ns() - began_ns)
                    self._stores[builder.name] = opened
                    self._add_restorer(builder.name, opened)
            except TaskCorruptedError:
                self.mark_corrupted()
                raise
            undo.pop_all()

    def close(self, *, clean: bool) -> None:
        """Close the stores and unlock the directory. Idempotent.

        Args:
            clean: whether all writes were committed. If not, uncommitted writes are discarded.
        """
        with (
            disk_errors(f"close the state of task {self.task_id}", self.task_id),
            ExitStack() as finish,
        ):
            finish.callback(self._directory.unlock_task, self.task_id)
            finish.callback(self._close_stores)
            if self._stores:
                self._save_offset_sum()
            if clean and self._stores:
                self._warn_uncommitted()
                self._write_checkpoint()

    def mark_corrupted(self) -> None:
        """Mark the task's local state as corrupted.

        The next owner deletes and restores it. Open stores must still be closed.

        Raises:
            LockError: another process owns the task.
        """
        if self._is_persistent:
            with disk_errors(f"mark the state of task {self.task_id}", self.task_id):
                self._directory.mark_task_corrupted(self.task_id)

    @property
    def can_recycle(self) -> bool:
        """Whether the stores may stay open for the task's other role.

        False after an engine failure, or if anything was written after the last commit, for example
        by a processor's `close`: its changelog records may not be delivered, or may be aborted. If
        they are delivered, restoration reads them.
        """
        failed = self.failures.first is not None
        return not (failed or self._writer.has_written or self.uncommitted_bytes)

    def recycle(self) -> None:
        """Clear the caches and keep the stores open for the task's other role.

        The roles are active and standby.

        Raises:
            IllegalStateError: `can_recycle` is False.
        """
        if not self.can_recycle:
            raise IllegalStateError(
                f"The stores of task {self.task_id} have failed or have uncommitted writes "
                f"({self.uncommitted_bytes} bytes), so they cannot stay open for another role. "
                "Close them.",
                task_id=self.task_id,
            )
        for cache in self.caches().values():
            cache.clear()
        for opened in self._stores.values():
            if opened.on_recycle is not None:
                opened.on_recycle()

    # --- stores --------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        return [builder.name for builder in self._builders]

    def store(self, name: str) -> Any:
        """Return a store's interface for processors, for example a `KeyValueStore`.

        Raises:
            UnknownStateStoreError: the task has no such store.
            IllegalStateError: the stores are not open.
        """
        return self._get_open(name).store

    def find(self, name: str) -> OpenStore | None:
        """Return an open store for queries; None if it does not exist or is not open."""
        return self._stores.get(name)

    def table(self, name: str) -> Any:
        """Return a store's interface for DSL operators, for example a `TimestampedTable`.

        Raises:
            UnknownStateStoreError: the task has no such store.
            IllegalStateError: the stores are not open, or this one is not timestamped.
        """
        table = self._get_open(name).table
        if table is None:
            raise IllegalStateError(
                f"Store {name} is not a timestamped key-value store, so it cannot back a table. "
                "Build it with timestamped_key_value_builder.",
                task_id=self.task_id,
            )
        return table

    def caches(self) -> dict[str, RecordCache]:
        """Return the record caches by store name, in topology order."""
        return {
            name: opened.cache for name, opened in self._stores.items() if opened.cache is not None
        }

    # --- restoration ---------------------------------------------------------------------------

    def restorers(self) -> dict[TopicPartition, StoreRestorer]:
        """Return the restorer of each changelog partition, which also tracks its offset."""
        return dict(self._restorers)

    def changelog_offsets(self) -> dict[TopicPartition, int | None]:
        """Return the last offset that each changelog's store reflects; None if unknown."""
        return {partition: restorer.reached for partition, restorer in self._restorers.items()}

    # --- commit --------------------------------------------------------------------------------

    def flush_cache(self, name: str) -> None:
        """Flush the cache of a store, unless an operator forwards its changes downstream.

        In that case, the operator must flush the cache before this call. A cache without changes
        then evicts entries if the puts of processors have exceeded the budget.
        """
        cache = self._get_open(name).cache
        if cache is None:
            return
        if not cache.forwards_changes:
            cache.flush()
        # If there are new changes since the operator's flush, the operator must forward them first.
        if not cache.dirty:
            cache.evict()

    @property
    def has_cached_changes(self) -> bool:
        """Whether a cache has changes that were neither written nor forwarded."""
        return any(cache.dirty for cache in self.caches().values())

    def write_cached_changes(self) -> list[str]:
        """Write cached changes without forwarding them; return the names of their stores."""
        changed = {name: cache for name, cache in self.caches().items() if cache.dirty}
        for cache in changed.values():
            cache.flush()
        return list(changed)

    def stream_times(self) -> dict[str, int]:
        """Return the latest time put into each window and session store; -1 if empty."""
        times = ((name, opened.stream_time) for name, opened in self._stores.items())
        return {name: time for name, time in times if time is not None}

    def log_changes(self) -> None:
        """Log the changes that stores log once per commit.

        Call this after flushing the caches.

        Raises:
            Exception: a storage or a changelog failed, and user code hid the error.
        """
        for opened in self._stores.values():
            if opened.before_commit is not None:
                opened.before_commit()
        self.failures.raise_first()

    @property
    def uncommitted_bytes(self) -> int:
        return sum(opened.base.uncommitted_bytes for opened in self._stores.values())

    def count_uncommitted(self) -> int:
        return sum(opened.base.count_uncommitted() for opened in self._stores.values())

    def after_work(self) -> None:
        """Update the uncommitted budget after each batch, punctuation or completion.

        Raises:
            Exception: a storage or a changelog failed, and user code hid the error.
        """
        self.failures.raise_first()
        self._count_writes()

    def _count_writes(self) -> None:
        self._uncommitted.update(self, self.uncommitted_bytes)

    @property
    def needs_commit(self) -> bool:
        """Whether the thread's uncommitted writes require a commit before the next batch."""
        return self._uncommitted.is_exceeded

    def on_commit_started(self) -> None:
        """Freeze the writes made so far; see `Committable.on_commit_started`."""
        for opened in self._stores.values():
            opened.base.on_commit_started()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Persist the writes made before the commit began, with their changelog offsets.

        Args:
            offsets: the last acknowledged offset of each written changelog partition; for a source
                topic that serves as a changelog, the last consumed offset.
        """
        self._writer.has_written = False
        for name, opened in self._stores.items():
            began_ns = perf_counter_ns()
            partition = self._changelogs.get(name)
            offset = None if partition is None else offsets.get(partition)
            if partition is None or offset is None:
                opened.base.commit(None)
            else:
                restorer = self._restorers[partition]
                assert restorer.reached is None or offset >= restorer.reached, (
                    f"store {name} has reached offset {restorer.reached} of {partition}, "
                    f"not {offset}"
                )
                kept = (partition, offset) if opened.keeps_offset else None
                opened.base.commit(kept)
                restorer.reached = offset
            self._metrics.on_commit(name, opened, began_ns)
        self._count_writes()
        with disk_errors(f"commit the state of task {self.task_id}", self.task_id):
            self._write_offsets_if_due()

    # --- internals -----------------------------------------------------------------------------

    def _environment(self, name: str) -> StoreEnvironment:
        changelog = self._changelogs.get(name)
        if self._storages is None:
            self._storages = RocksDBStorages()
        return StoreEnvironment(
            task_id=self.task_id,
            directory=self._directory.task_directory(self.task_id),
            topic=changelog.topic if changelog else f"{self._application_id}-{name}-changelog",
            restored_from=changelog,
            writer=self._writer,
            context=self._context,
            budget=self._budget,
            recent_max_bytes=self._recent_max_bytes,
            storages=self._metrics.track_databases(self._storages),
            dropped=self._dropped,
            write_check=self._write_check,
            failures=self.failures,
        )

    def _write_offsets_if_due(self) -> None:
        reached = self._checkpoint_offsets()
        moved = sum(offset - self._written_checkpoint.get(tp, 0) for tp, offset in reached.items())
        if moved > _CHECKPOINT_AFTER_OFFSETS:
            self._write_checkpoint()
        if self._offset_sum() - self._saved_offset_sum > _CHECKPOINT_AFTER_OFFSETS:
            self._save_offset_sum()

    def _get_open(self, name: str) -> OpenStore:
        opened = self._stores.get(name)
        if opened is not None:
            return opened
        if name in self.names:
            raise IllegalStateError(
                f"The stores of task {self.task_id} are not open, so {name} cannot be used.",
                task_id=self.task_id,
            )
        raise UnknownStateStoreError(
            f"Task {self.task_id} has no store {name}; it has {', '.join(self.names) or 'none'}.",
            task_id=self.task_id,
        )

    def _add_restorer(self, name: str, opened: OpenStore) -> None:
        partition = self._changelogs.get(name)
        if partition is None:
            return
        if opened.keeps_offset:
            reached = opened.base.committed_offset(partition)
        else:
            reached = self._written_checkpoint.get(partition)
        self._restorers[partition] = StoreRestorer(
            name, partition, opened.apply, opened.base.set_bulk_loading, reached
        )

    def _checkpoint_offsets(self) -> dict[TopicPartition, int]:
        """Return the offsets of persistent stores that do not store their own offsets."""
        return {
            partition: restorer.reached
            for partition, restorer in self._restorers.items()
            if restorer.reached is not None
            and (opened := self._stores[restorer.store_name]).persistent
            and not opened.keeps_offset
        }

    def _offset_sum(self) -> int:
        """Return the number of changelog records that the persistent state reflects."""
        return sum(
            restorer.reached + 1
            for restorer in self._restorers.values()
            if restorer.reached is not None and self._stores[restorer.store_name].persistent
        )

    def _save_offset_sum(self) -> None:
        if self._is_persistent and self._restorers:
            self._saved_offset_sum = self._offset_sum()
            self._directory.write_offset_sum(self.task_id, self._saved_offset_sum)

    def _read_checkpoint(self) -> None:
        if not self._is_persistent:
            return
        try:
            found = self._checkpoint.read()
        except StreamsError as error:
            raise TaskCorruptedError(error.message, task_ids=[self.task_id]) from error
        self._written_checkpoint = {tp: offset for tp, offset in found.items() if offset >= 0}

    def _write_checkpoint(self) -> None:
        offsets = self._checkpoint_offsets()
        if offsets != self._written_checkpoint:
            self._checkpoint.write(offsets)
            self._written_checkpoint = offsets

    def _warn_uncommitted(self) -> None:
        dirty = sum(len(cache.dirty) for cache in self.caches().values())
        if self.uncommitted_bytes or dirty:
            logger.warning(
                "task %s: closed with %d changed keys in caches and %d bytes of uncommitted "
                "writes; they are discarded",
                self.task_id,
                dirty,
                self.uncommitted_bytes,
            )

    def _close_stores(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._metrics.on_close)
            for opened in self._stores.values():
                closing.callback(opened.close)
            self._stores = {}
            self._restorers = {}
            self._uncommitted.update(self, 0)


def _ignore_dropped(count: int, why: str, store: str) -> None:
    """Ignore dropped records; used if the owner does not count them."""

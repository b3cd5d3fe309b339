"""All stores of one task: opened, restored, committed and closed together.

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
from millstream.metrics.registry import Scope, unseen
from millstream.record import TaskId, TopicPartition
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.caches.record_cache import RecordCache
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.changelogs.restore import StoreRestorer
from millstream.state.changelogs.store_changelog import ChangelogWriter, WatchedWriter
from millstream.state.directories.checkpoint import CheckpointFile
from millstream.state.directories.disk import disk_errors
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.engine_failures import EngineFailures
from millstream.state.opening.by_kind import open_store
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.state.storage.storages import Storages
from millstream.state.storage.uncommitted_budget import UncommittedBudget
from millstream.state.storage.write_check import WriteCheck
from millstream.state.store_meters import StoreMeters

logger = logging.getLogger(__name__)

#: Offsets by which stores may run ahead of the checkpoint file before it is written again.
_CHECKPOINT_AFTER_OFFSETS: Final = 10_000


class TaskStores:
    """The stores of one task, by name, in the order in which the topology registered them.

    A commit goes: flush the caches (the operators theirs, then `flush_silently`, store by store,
    until they have no changes), flush the producer, commit the input offsets, then `commit` with
    the acknowledged changelog offsets. Only commits and restorations write to persistent stores:
    what is on disk is always the state at some commit.

    Owned by one thread at a time; it may be opened again after it was closed.

    Args:
        task_id: the task.
        builders: of the stores, resolved.
        directory: the application's state on this host. Used only if a store is persistent.
        application_id: names the changelogs that serdes are told about.
        changelogs: the changelog partition of each store that is restored from one: its own, or
            that of the source topic which serves as one.
        writer: where changes are logged.
        context: the record being processed.
        budget: of the record caches of the thread.
        uncommitted: limits the writes of the thread that wait for a commit.
        recent_max_bytes: bytes of recent entries that all window stores may keep in memory.
        storages: opens those of persistent stores; by default databases of RocksDB.
        dropped: counts records that come too late for a store: how many, why, the store's name.
        metrics: of the task; None where nobody reads them.
        write_check: verifies the order of writes and deliveries, in tests.
        failures: keep errors of the engine that user code may hide.
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
        context: RecordAtHand,
        budget: CacheBudget,
        uncommitted: UncommittedBudget | None = None,
        recent_max_bytes: int = 64 << 20,
        storages: Storages | None = None,
        dropped: Callable[[int, str, str], None] | None = None,
        metrics: Scope | None = None,
        write_check: WriteCheck | None = None,
        failures: EngineFailures | None = None,
    ) -> None:
        self._meters = StoreMeters(metrics or unseen())
        self.task_id = task_id
        self._builders = list(builders)
        self._directory = directory
        self._application_id = application_id
        self._changelogs = dict(changelogs)
        #: Errors of storages and changelogs since the stores were opened.
        self.failures = failures or EngineFailures()
        self._writer = WatchedWriter(writer, self.failures)
        self._context = context
        self._budget = budget
        self._uncommitted = uncommitted or UncommittedBudget()
        self._write_check = write_check
        persistent = sum(builder.persistent for builder in builders)
        self._is_persistent = persistent > 0
        self._recent_max_bytes = recent_max_bytes // max(1, persistent)
        self._storages = storages
        self._dropped = dropped or _count_nowhere
        self._stores: dict[str, OpenStore] = {}
        self._checkpoint = CheckpointFile(directory.checkpoint_path(task_id), directory.disk)
        self._checkpointed: dict[TopicPartition, int] = {}
        self._restorers: dict[TopicPartition, StoreRestorer] = {}
        self._noted = 0
        if write_check is not None:
            write_check.watch(self, "flush_silently", "write_held_back", "log_changes")

    # --- life ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Lock the task's directory and open the stores.

        Raises:
            LockError: another process works on the task.
            TaskCorruptedError: a store or the checkpoint cannot be read. Everything is closed
                again; the next one to open the task begins with nothing.
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
            self.failures.forget()
            try:
                self._read_checkpoint()
                for builder in self._builders:
                    began_ns = perf_counter_ns()
                    opened = open_store(builder, self._environment(builder.name))
                    self._meters.opened(builder, opened, perf_counter_ns() - began_ns)
                    self._stores[builder.name] = opened
                    self._add_restorer(builder.name, opened)
            except TaskCorruptedError:
                self.distrust()
                raise
            undo.pop_all()

    def close(self, *, clean: bool) -> None:
        """Close the stores and unlock the directory. Does nothing the second time.

        Args:
            clean: whether everything was committed. If not, what is not committed is dropped.
        """
        with (
            disk_errors(f"close the state of task {self.task_id}", self.task_id),
            ExitStack() as finish,
        ):
            finish.callback(self._directory.unlock_task, self.task_id)
            finish.callback(self._close_stores)
            if self._stores:
                self._note_reached()
            if clean and self._stores:
                self._warn_of_uncommitted()
                self._write_checkpoint()

    def distrust(self) -> None:
        """Have what the task has on disk thrown away when it is opened next, by whoever does so.

        Open stores are to be closed as ever.

        Raises:
            LockError: another process works on the task.
        """
        if self._is_persistent:
            with disk_errors(f"mark the state of task {self.task_id}", self.task_id):
                self._directory.distrust_task(self.task_id)

    @property
    def can_be_recycled(self) -> bool:
        """Whether the stores may stay open for the task's other role.

        Not with writes of a processor's `close`, which come after the last commit: their changelog
        records may not be delivered, or be aborted. They are restored if they are delivered.
        """
        failed = self.failures.first is not None
        return not (failed or self._writer.has_written or self.uncommitted_bytes)

    def recycle(self) -> None:
        """Keep the stores open for the task's other role (active or standby), without caches.

        Raises:
            IllegalStateError: the stores have writes that are not committed.
        """
        if not self.can_be_recycled:
            raise IllegalStateError(
                f"The stores of task {self.task_id} have {self.uncommitted_bytes} bytes of writes "
                "that are not committed, so they cannot stay open for another role. Close them.",
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
        """The names of the stores, in the order of the topology."""
        return [builder.name for builder in self._builders]

    def store(self, name: str) -> Any:
        """The store as processors see it, for example a `KeyValueStore`.

        Raises:
            UnknownStateStoreError: the task has no such store.
            IllegalStateError: the stores are not open.
        """
        return self._opened(name).store

    def find(self, name: str) -> OpenStore | None:
        """The open store of that name, for queries; None if it is not here, or not open."""
        return self._stores.get(name)

    def table(self, name: str) -> Any:
        """The store as the DSL's operators see it, for example a `TimestampedTable`.

        Raises:
            UnknownStateStoreError: the task has no such store.
            IllegalStateError: the stores are not open, or this one keeps no timestamps.
        """
        table = self._opened(name).table
        if table is None:
            raise IllegalStateError(
                f"Store {name} is not a timestamped key-value store, so it cannot back a table. "
                "Build it with timestamped_key_value_builder.",
                task_id=self.task_id,
            )
        return table

    def caches(self) -> dict[str, RecordCache]:
        """The record caches by the names of their stores, in the order of the topology."""
        return {
            name: opened.cache for name, opened in self._stores.items() if opened.cache is not None
        }

    # --- restoration ---------------------------------------------------------------------------

    def restorers(self) -> dict[TopicPartition, StoreRestorer]:
        """What applies the records of each changelog partition, and knows how far it is."""
        return dict(self._restorers)

    def changelog_offsets(self) -> dict[TopicPartition, int | None]:
        """The last offset of each changelog that is reflected in its store; None if unknown."""
        return {partition: restorer.reached for partition, restorer in self._restorers.items()}

    # --- commit --------------------------------------------------------------------------------

    def flush_silently(self, name: str) -> None:
        """Write the changes held back in a cache that has nobody downstream to tell of them.

        Args:
            name: of the store. A cache that an operator flushes must have been flushed: of it, what
                processors have put beyond the budget is given back.
        """
        cache = self._opened(name).cache
        if cache is None:
            return
        if not cache.forwards_changes:
            cache.flush()
        # What the flush of an operator has changed again is for that operator to forward.
        if not cache.dirty:
            cache.evict()

    @property
    def have_changes(self) -> bool:
        """Whether a cache holds changes that are neither written nor forwarded."""
        return any(cache.dirty for cache in self.caches().values())

    def write_held_back(self) -> list[str]:
        """Write the changes in caches without forwarding them; the names of their stores."""
        changed = {name: cache for name, cache in self.caches().items() if cache.dirty}
        for cache in changed.values():
            cache.flush()
        return list(changed)

    def stream_times(self) -> dict[str, int]:
        """The latest time that was put into each window and session store; -1 before that."""
        times = ((name, opened.stream_time) for name, opened in self._stores.items())
        return {name: time for name, time in times if time is not None}

    def log_changes(self) -> None:
        """Send what stores log only once a commit, after the caches are flushed.

        Raises:
            Exception: a storage or a changelog has failed, and user code has hidden the error.
        """
        for opened in self._stores.values():
            if opened.before_commit is not None:
                opened.before_commit()
        self.failures.check()

    @property
    def uncommitted_bytes(self) -> int:
        """At most how many bytes of writes wait for a commit."""
        return sum(opened.base.uncommitted_bytes for opened in self._stores.values())

    def count_uncommitted(self) -> int:
        """How many bytes of writes wait for a commit, counted anew."""
        return sum(opened.base.count_uncommitted() for opened in self._stores.values())

    def after_work(self) -> None:
        """After each batch, punctuation or release: count the writes that wait for a commit.

        Raises:
            Exception: a storage or a changelog has failed, and user code has hidden the error.
        """
        self.failures.check()
        self._count_writes()

    def _count_writes(self) -> None:
        self._uncommitted.update(self, self.uncommitted_bytes)

    @property
    def needs_commit(self) -> bool:
        """Whether so many writes of the thread wait that a commit should come before a batch."""
        return self._uncommitted.is_exceeded

    def commit_begun(self) -> None:
        """What was written so far is what `commit` keeps; what comes is for the next one.

        A commit that has begun before and has failed is part of it.
        """
        for opened in self._stores.values():
            opened.base.commit_begun()

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keep what was written until the commit began, with the changelog offsets it stands for.

        Args:
            offsets: the last acknowledged offset of each changelog partition that was written to
                (for a source topic that serves as changelog: the last one consumed).
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
            self._meters.committed(name, opened, began_ns)
        self._count_writes()
        with disk_errors(f"commit the state of task {self.task_id}", self.task_id):
            self._write_offsets_now_and_then()

    # --- parts ---------------------------------------------------------------------------------

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
            storages=self._meters.watching(self._storages),
            dropped=self._dropped,
            write_check=self._write_check,
            failures=self.failures,
        )

    def _write_offsets_now_and_then(self) -> None:
        reached = self._offsets_beside()
        moved = sum(offset - self._checkpointed.get(tp, 0) for tp, offset in reached.items())
        if moved > _CHECKPOINT_AFTER_OFFSETS:
            self._write_checkpoint()
        if self._kept_offset_sum() - self._noted > _CHECKPOINT_AFTER_OFFSETS:
            self._note_reached()

    def _opened(self, name: str) -> OpenStore:
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
            reached = self._checkpointed.get(partition)
        self._restorers[partition] = StoreRestorer(
            name, partition, opened.apply, opened.base.expect_many, reached
        )

    def _offsets_beside(self) -> dict[TopicPartition, int]:
        """How far the persistent stores are which keep no offset themselves."""
        return {
            partition: restorer.reached
            for partition, restorer in self._restorers.items()
            if restorer.reached is not None
            and (opened := self._stores[restorer.store_name]).persistent
            and not opened.keeps_offset
        }

    def _kept_offset_sum(self) -> int:
        """How many changelog records the state stands for that outlives this process."""
        return sum(
            restorer.reached + 1
            for restorer in self._restorers.values()
            if restorer.reached is not None and self._stores[restorer.store_name].persistent
        )

    def _note_reached(self) -> None:
        if self._is_persistent and self._restorers:
            self._noted = self._kept_offset_sum()
            self._directory.note_reached(self.task_id, self._noted)

    def _read_checkpoint(self) -> None:
        if not self._is_persistent:
            return
        try:
            found = self._checkpoint.read()
        except StreamsError as error:
            raise TaskCorruptedError(error.message, task_ids=[self.task_id]) from error
        self._checkpointed = {tp: offset for tp, offset in found.items() if offset >= 0}

    def _write_checkpoint(self) -> None:
        offsets = self._offsets_beside()
        if offsets != self._checkpointed:
            self._checkpoint.write(offsets)
            self._checkpointed = offsets

    def _warn_of_uncommitted(self) -> None:
        dirty = sum(len(cache.dirty) for cache in self.caches().values())
        if self.uncommitted_bytes or dirty:
            logger.warning(
                "task %s: closed with %d changed keys in caches and %d bytes of writes that were "
                "never committed; they are dropped",
                self.task_id,
                dirty,
                self.uncommitted_bytes,
            )

    def _close_stores(self) -> None:
        with ExitStack() as closing:
            closing.callback(self._meters.closed)
            for opened in self._stores.values():
                closing.callback(opened.close)
            self._stores = {}
            self._restorers = {}
            self._uncommitted.update(self, 0)


def _count_nowhere(count: int, why: str, store: str) -> None:
    """For stores whose owner counts nothing."""

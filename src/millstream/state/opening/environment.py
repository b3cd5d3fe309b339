"""What a store finds in the task that opens it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from millstream.record import TaskId, TopicPartition
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.record_at_hand import RecordAtHand
from millstream.state.changelogs.store_changelog import ChangelogWriter, StoreChangelog
from millstream.state.engine_failures import EngineFailures
from millstream.state.storage.storages import Storages
from millstream.state.storage.value_formats import PLAIN, ValueFormat
from millstream.state.storage.write_check import WriteCheck


@dataclass(frozen=True, slots=True)
class StoreEnvironment:
    """What a store finds in the task that opens it.

    Args:
        task_id: the task.
        directory: of the task; persistent stores live in it.
        topic: handed to serdes: the name of the changelog, whether there is one or not.
        restored_from: the partition from which the store is restored; None if from none.
        writer: where changes are logged, if the builder wants logging; None for nowhere.
        context: the record being processed.
        budget: of the record caches of the thread.
        recent_max_bytes: bytes of recent entries that a window store may keep in memory.
        storages: opens what keeps the data of persistent stores.
        dropped: counts records that a store does not take because they come too late; it is told
            how many, why, and the store's name.
        write_check: verifies the order of writes and deliveries, in tests.
        failures: keep errors of storages, which user code may hide.
    """

    task_id: TaskId
    directory: Path
    topic: str
    restored_from: TopicPartition | None
    writer: ChangelogWriter | None
    context: RecordAtHand
    budget: CacheBudget
    recent_max_bytes: int
    storages: Storages
    dropped: Callable[[int, str, str], None]
    write_check: WriteCheck | None = None
    failures: EngineFailures = field(default_factory=EngineFailures)

    def changelog_of(
        self, builder: StoreBuilder, value_format: ValueFormat = PLAIN
    ) -> StoreChangelog:
        """Where a store logs its changes.

        Args:
            builder: of the store, which says whether it does.
            value_format: how its values are stored.
        """
        writer = self.writer if builder.logging else None
        return StoreChangelog(builder.name, writer, value_format)

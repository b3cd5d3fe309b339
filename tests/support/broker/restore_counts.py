"""A counting restore listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.record import TopicPartition


@dataclass
class Restoration:
    """One restoration of a changelog partition from `start` to `end`."""

    store: str
    start: int
    end: int
    total: int | None = None
    """The number of restored records; None if the restoration was not completed."""


class RestoreCounts:
    """Counts restored records of each changelog partition, and records copied by standbys.

    Attributes:
        by_store: the number of restored records by store.
        finished: the number of records of completed restorations by store.
        copied: the number of records that standbys read.
    """

    def __init__(self) -> None:
        self.totals: dict[TopicPartition, int] = {}
        self.by_store: Counter[str] = Counter()
        self.finished: Counter[str] = Counter()
        self.times: dict[TopicPartition, list[Restoration]] = {}
        self.suspended = 0
        self.copied = 0
        self._restored: set[TopicPartition] = set()
        self._copied_to: dict[TopicPartition, int] = {}

    def on_restore_start(self, place: TopicPartition, store: str, start: int, end: int) -> None:
        self.totals.setdefault(place, 0)
        self._restored.discard(place)
        self.times.setdefault(place, []).append(Restoration(store, start, end))

    def on_batch_restored(self, place: TopicPartition, store: str, end: int, count: int) -> None:
        # Counted per batch, because a task may move to the other thread before the restoration
        # ends.
        self.totals[place] += count
        self.by_store[store] += count

    def on_restore_end(self, place: TopicPartition, store: str, total: int) -> None:
        self._restored.add(place)
        self.times[place][-1].total = total
        self.finished[store] += total

    def on_restore_suspended(self, place: TopicPartition, store: str, total: int) -> None:
        self.suspended += 1

    def on_update_start(self, place: TopicPartition, store: str, start: int) -> None:
        # It may have been active before, and may have lost its in-memory state.
        self._restored.discard(place)
        self._copied_to[place] = start

    def on_batch_loaded(
        self, place: TopicPartition, store: str, task_id: Any, last: int, count: int, end: int
    ) -> None:
        self.copied += count
        self._copied_to[place] = last + 1

    def on_update_suspended(
        self, place: TopicPartition, store: str, offset: int, end: int, why: Any
    ) -> None:
        """Do nothing: the counts stay."""

    @property
    def total(self) -> int:
        """The number of restored records."""
        return sum(self.totals.values())

    def of(self, store: str) -> list[Restoration]:
        """All restorations of a store, on any thread."""
        return [time for times in self.times.values() for time in times if time.store == store]

    def has_all(self, sizes: Mapping[TopicPartition, int]) -> bool:
        """Whether the instance has restored each changelog, or copied it to its end."""
        return all(
            place in self._restored or self._copied_to.get(place, 0) >= size
            for place, size in sizes.items()
        )

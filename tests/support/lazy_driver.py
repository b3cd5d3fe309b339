"""A test driver that commits only now and then, so that record caches have something to hold."""

from __future__ import annotations

from typing import Any

from millstream.testing import TopologyTestDriver
from millstream.testing.driver_topics import Captured


class LazyDriver(TopologyTestDriver):
    """Takes one record at a time, like its base, but does not commit after each.

    Args:
        commit_every: after how many records it does.
    """

    def __init__(self, topology: Any, config: Any, *, commit_every: int) -> None:
        self._commit_every = commit_every
        self._uncommitted = 0
        super().__init__(topology, config, initial_wall_clock_ms=0)

    def finish(self) -> None:
        """Commit until nothing comes of it any more."""
        self._commit_every = 1
        # What a commit writes to a repartition topic is processed, which may change caches again.
        for _ in range(10):
            self._work(commit=True)

    def held_back(self) -> list[str]:
        """The stores whose caches hold changes that are neither written nor forwarded."""
        return [name for name, cache in self._task.stores.caches().items() if cache.dirty]

    @property
    def has_just_committed(self) -> bool:
        """Whether nothing was processed since the last commit."""
        return self._uncommitted == 0

    def written(self) -> dict[str, list[Captured]]:
        """What was written to each topic, internal ones included, in the order of writing."""
        return {topic: list(records) for topic, records in self._outputs.items()}

    def _commit(self) -> None:
        self._uncommitted += 1
        if self._uncommitted >= self._commit_every:
            self._uncommitted = 0
            super()._commit()
            return
        for record in self._collector.take():
            self._outputs[record.topic].append(record)
            self._deliver(record)

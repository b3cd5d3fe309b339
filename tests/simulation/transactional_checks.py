"""Further invariants under exactly-once: records count once their transaction is decided, and
committed results are never overwritten."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.record import TopicPartition
from simulation.application import FOLDED, OUTPUT, REPARTITION, SEEN, WINDOWED, WINDOWS, ids_in
from simulation.broker.cluster import Cluster
from simulation.broker.log import Entry
from simulation.checks import Checks, ViolationError, entries_from
from simulation.scheduler import Process

_GROWING = frozenset({SEEN, FOLDED, WINDOWED, OUTPUT, WINDOWS})


class TransactionalChecks(Checks):
    """Checks the invariants of one history under exactly-once.

    - Each committed list of ids starts with the previously committed list of its key and contains
      no id twice: no id is ever lost, repeated or reordered.
    - No id is committed twice to the repartition topic.
    - A process commits nothing for a task that it has lost.

    Args:
        cluster: the history's cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._writers: dict[int, Process] = {}
        self._committed_ids: dict[tuple[str, bytes | None], list[int]] = {}
        cluster.transactions.on_commit.append(self.decided)

    def appended(self, place: TopicPartition, first: int, process: Process | None) -> None:
        entries = entries_from(self._cluster.logs[place].entries, first)
        plain = [entry for entry in entries if entry.producer_id < 0]
        if plain:
            self.written(place, plain, process)
        for entry in entries:
            if entry.producer_id >= 0 and process is not None:
                self._writers[entry.producer_id] = process

    def decided(self, producer_id: int, firsts: Mapping[TopicPartition, int]) -> None:
        """Check the records of a transaction when its commit is decided."""
        for place, first in sorted(firsts.items()):
            entries = [
                entry
                for entry in entries_from(self._cluster.logs[place].entries, first)
                if entry.producer_id == producer_id and entry.marker is None
            ]
            self.written(place, entries, self._writers[producer_id])

    def written(self, place: TopicPartition, entries: list[Entry], process: Process | None) -> None:
        for entry in entries:
            ids = ids_in(place.topic, entry.value)
            if place.topic in _GROWING:
                self._check_growth(place, entry, ids)
            elif place.topic == REPARTITION and not self._seen[place].isdisjoint(ids):
                raise ViolationError(f"{ids} is committed twice to {place}")
        super().written(place, entries, process)

    def _check_growth(self, place: TopicPartition, entry: Entry, ids: list[int]) -> None:
        previous = self._committed_ids.get((place.topic, entry.key), [])
        if ids[: len(previous)] != previous or len(set(ids)) != len(ids):
            raise ViolationError(
                f"offset {entry.offset} of {place}: {ids} follows {previous} for {entry.key!r}"
            )
        self._committed_ids[place.topic, entry.key] = ids

    def _overwrite(self, topic: str, entry: Entry) -> None:
        raise ViolationError(
            f"{topic}: offset {entry.offset} is committed after its process lost the task"
        )

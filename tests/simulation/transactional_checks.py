"""What must hold under exactly-once beyond `Checks`: here a record counts once its transaction is
decided, and nobody may write over what is committed."""

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
    """Watches one history under exactly-once.

    - Of each key, each list of ids that is committed begins with the list committed before it, and
      has no id twice: nothing is lost, repeated or in another order, at any moment.
    - No id is committed twice to the repartition topic.
    - Whoever has lost a task commits nothing for it.

    Args:
        cluster: its cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._writers: dict[int, Process] = {}
        self._told: dict[tuple[str, bytes | None], list[int]] = {}
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
        """A transaction will be committed, whatever happens from now on."""
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
        known = self._told.get((place.topic, entry.key), [])
        if ids[: len(known)] != known or len(set(ids)) != len(ids):
            raise ViolationError(
                f"offset {entry.offset} of {place}: after {known} comes {ids} of {entry.key!r}"
            )
        self._told[place.topic, entry.key] = ids

    def _overwrite(self, topic: str, entry: Entry) -> None:
        raise ViolationError(
            f"{topic}: offset {entry.offset} is committed by one who has lost the task"
        )

"""The transaction coordinator: who may write under a transactional id, and how that ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from millstream.record import TopicPartition
from simulation.broker.group import NONE, Committed
from simulation.broker.log import LogError

if TYPE_CHECKING:
    from simulation.broker.cluster import Cluster


@dataclass(eq=False, slots=True)
class _Transactional:
    producer_id: int
    epoch: int
    timeout_ms: int
    places: set[TopicPartition] = field(default_factory=set)
    is_open: bool = False
    number: int = 0


class TransactionCoordinator:
    """All transactional ids of the cluster.

    Args:
        cluster: has the logs and the group.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, _Transactional] = {}
        self._ids = 0

    def new_producer_id(self) -> int:
        """A producer without transactions begins."""
        self._ids += 1
        return self._ids

    def init(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Take an id over: aborts what is open, fences who had it; producer id and epoch."""
        known = self._known.get(transactional_id)
        if known is None:
            known = _Transactional(self.new_producer_id(), 0, timeout_ms)
            self._known[transactional_id] = known
        else:
            known.epoch += 1
            known.timeout_ms = timeout_ms
            if known.is_open:
                self._end(known, commit=False)
        return known.producer_id, known.epoch

    def begin(self, transactional_id: str, epoch: int, place: TopicPartition) -> None:
        """A partition becomes part of the transaction, which begins with its first one.

        Raises:
            LogError: `PRODUCER_FENCED`.
        """
        known = self._checked(transactional_id, epoch)
        if not known.is_open:
            known.is_open = True
            known.number += 1
            number = known.number

            def expired() -> None:
                if known.is_open and known.number == number:
                    # Follows Kafka: the epoch moves, so that whoever wakes up late is fenced.
                    known.epoch += 1
                    self._end(known, commit=False)

            self._cluster.scheduler.call_after(known.timeout_ms * 1000, expired)
        known.places.add(place)

    def send_offsets(
        self,
        transactional_id: str,
        epoch: int,
        member: tuple[str, str | None, int],
        offsets: Mapping[TopicPartition, Committed],
    ) -> int:
        """Make offsets part of the transaction, fenced by the member's generation (KIP-447).

        Args:
            transactional_id: of the producer.
            epoch: of the producer.
            member: member id, instance id, generation.
            offsets: to commit with it.

        Raises:
            LogError: `PRODUCER_FENCED`.
        """
        known = self._checked(transactional_id, epoch)
        group = self._cluster.group
        error = group.may_commit(*member)
        if error:
            return error
        known.is_open = True
        group.pending_offsets.setdefault(known.producer_id, {}).update(offsets)
        return NONE

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort.

        Raises:
            LogError: `PRODUCER_FENCED`, `INVALID_TXN_STATE` without a transaction.
        """
        known = self._checked(transactional_id, epoch)
        if not known.is_open:
            raise LogError("INVALID_TXN_STATE")
        self._end(known, commit=commit)

    def _end(self, known: _Transactional, *, commit: bool) -> None:
        known.is_open = False
        for place in sorted(known.places):
            self._cluster.logs[place].mark(known.producer_id, known.epoch, commit=commit)
        known.places.clear()
        group = self._cluster.group
        offsets = group.pending_offsets.pop(known.producer_id, {})
        if commit and offsets:
            group.offsets.update(offsets)
            for call in group.on_commit:
                call(-1, "", offsets)

    def _checked(self, transactional_id: str, epoch: int) -> _Transactional:
        known = self._known.get(transactional_id)
        if known is None or epoch != known.epoch:
            raise LogError("PRODUCER_FENCED")
        return known

"""The transaction coordinator: owners of transactional ids, open transactions and markers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.record import TopicPartition
from simulation.broker.group import NONE, Committed
from simulation.broker.log import LogError

if TYPE_CHECKING:
    from simulation.broker.cluster import Cluster


#: The maximum latency of a marker; some are late.
_MARKER_US: Final = 1_000
_LATE_MARKER_US: Final = 400_000
_LATE: Final = 0.1


@dataclass(eq=False, slots=True)
class _Transactional:
    producer_id: int
    epoch: int
    timeout_ms: int
    places: set[TopicPartition] = field(default_factory=set)
    is_open: bool = False
    #: The outcome of the last transaction, and the number of its markers to be written.
    ended: bool | None = None
    markers: int = 0
    number: int = 0


class TransactionCoordinator:
    """All transactional ids of the cluster.

    Args:
        cluster: the cluster, with its logs and its group.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, _Transactional] = {}
        self._ids = 0
        #: Called when a commit is decided, with the producer and the offsets of its first records
        #: in each partition.
        self.on_commit: list[Callable[[int, Mapping[TopicPartition, int]], None]] = []

    def new_producer_id(self) -> int:
        """Create a producer id."""
        self._ids += 1
        return self._ids

    def init(self, transactional_id: str, timeout_ms: int) -> tuple[int, int]:
        """Acquire a transactional id: abort its open transaction and fence its previous owner.
        Return producer id and epoch.

        Raises:
            LogError: `CONCURRENT_TRANSACTIONS` until the open transaction has ended everywhere.
        """
        known = self._known.get(transactional_id)
        if known is None:
            known = _Transactional(self.new_producer_id(), -1, timeout_ms)
            self._known[transactional_id] = known
        if known.is_open:
            # Follows Kafka: a new epoch fences the owner.
            known.epoch += 1
            self._end(known, commit=False)
        if known.markers:
            raise LogError("CONCURRENT_TRANSACTIONS")
        known.epoch += 1
        known.timeout_ms = timeout_ms
        known.ended = None
        return known.producer_id, known.epoch

    def begin(self, transactional_id: str, epoch: int, place: TopicPartition) -> None:
        """Add a partition to the transaction, which starts with its first one.

        Raises:
            LogError: `PRODUCER_FENCED`, `CONCURRENT_TRANSACTIONS`.
        """
        known = self._checked(transactional_id, epoch)
        if place not in known.places and self._cluster.coordinators_silent_us:
            # Without an answer, the client sends the batch again.
            raise LogError("CONCURRENT_TRANSACTIONS")
        self._open(known)
        known.places.add(place)

    def _open(self, known: _Transactional) -> None:
        if known.is_open:
            return
        if known.markers:
            raise LogError("CONCURRENT_TRANSACTIONS")
        known.is_open = True
        known.ended = None
        known.number += 1
        number = known.number

        def expired() -> None:
            silent_us = self._cluster.coordinators_silent_us
            if silent_us:
                self._cluster.scheduler.call_after(silent_us, expired)
            elif known.is_open and known.number == number:
                # Follows Kafka: a new epoch fences an owner that continues late.
                known.epoch += 1
                self._cluster.scheduler.log(f"a transaction of {known.producer_id} expires")
                self._end(known, commit=False)

        self._cluster.scheduler.call_after(known.timeout_ms * 1000, expired)

    def send_offsets(
        self,
        transactional_id: str,
        epoch: int,
        member: tuple[str, str | None, int],
        offsets: Mapping[TopicPartition, Committed],
    ) -> int:
        """Add offsets to the transaction, fenced by the member's generation (KIP-447).

        Args:
            transactional_id: of the producer.
            epoch: of the producer.
            member: member id, instance id, generation.
            offsets: to commit with it.

        Raises:
            LogError: `PRODUCER_FENCED`, `CONCURRENT_TRANSACTIONS`.
        """
        known = self._checked(transactional_id, epoch)
        self._open(known)
        group = self._cluster.group
        error = group.may_commit(*member, transactional=True)
        if error:
            return error
        group.pending_offsets.setdefault(known.producer_id, {}).update(offsets)
        return NONE

    def end(self, transactional_id: str, epoch: int, *, commit: bool) -> None:
        """Commit or abort. Returns when the outcome is decided, before all markers are written.

        Raises:
            LogError: `PRODUCER_FENCED`, `INVALID_TXN_STATE` without a transaction.
        """
        known = self._checked(transactional_id, epoch)
        if known.ended is commit and not known.is_open:
            # A repeated request, since the answer was lost.
            return
        if not known.is_open:
            raise LogError("INVALID_TXN_STATE")
        self._end(known, commit=commit)

    def _end(self, known: _Transactional, *, commit: bool) -> None:
        known.is_open = False
        known.ended = commit
        places, epoch = sorted(known.places), known.epoch
        known.places.clear()
        known.markers = len(places) + 1
        if commit:
            opened = {place: self._cluster.logs[place].open for place in places}
            firsts = {
                place: firsts[known.producer_id]
                for place, firsts in opened.items()
                if known.producer_id in firsts
            }
            for call in self.on_commit:
                call(known.producer_id, firsts)
        for place in places:
            self._later(partial(self._mark, known, place, epoch, commit), place)
        self._later(partial(self._mark_group, known, commit), None)

    def _later(self, write: Callable[[], None], place: TopicPartition | None) -> None:
        """Send a marker to the leader of a partition, or to the group's coordinator."""
        rng = self._cluster.scheduler.random
        max_us = _LATE_MARKER_US if rng.random() < _LATE else _MARKER_US

        def arrives() -> None:
            led = self._cluster.group_is_up if place is None else self._cluster.is_led(place)
            if led:
                write()
            else:
                self._later(write, place)

        self._cluster.scheduler.call_after(rng.randrange(50, max_us), arrives)

    def _mark(self, known: _Transactional, place: TopicPartition, epoch: int, commit: bool) -> None:
        self._cluster.logs[place].mark(known.producer_id, epoch, commit=commit)
        known.markers -= 1

    def _mark_group(self, known: _Transactional, commit: bool) -> None:
        known.markers -= 1
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

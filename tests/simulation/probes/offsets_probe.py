"""Requests with offsets in transactions, sent both to a real broker and to the simulated cluster:
which members' offsets are accepted, and when they become visible."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.errors import StreamsError
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.membership.member_events import CommitOffset
from millstream.kafka.protocols import TransactionalProducer
from millstream.record import TopicPartition
from simulation.probes.group_probe import Answers, Prober

_TIMEOUT_MS: Final = 20_000


class TransactionalOffsets:
    """Sends the offsets of a group in transactions.

    Args:
        new_producer: creates a producer that is not initialized.
        group: the group id.
        place: the partition.
    """

    def __init__(
        self, new_producer: Callable[[], TransactionalProducer], group: str, place: TopicPartition
    ) -> None:
        self._new_producer = new_producer
        self._producer = new_producer()
        self._producer.init_transactions(_TIMEOUT_MS)
        self._group = group
        self._place = place

    def send(self, member_id: str, generation: int, offset: int) -> str:
        """Send an offset and return the outcome. A rejected transaction is aborted."""
        member = GroupMetadata(generation, self._group, member_id)
        try:
            self._producer.send_offsets(
                {self._place: CommitOffset(offset, "")}, member, _TIMEOUT_MS
            )
        except StreamsError as error:
            self._producer = self._new_producer()
            self._producer.init_transactions(_TIMEOUT_MS)
            return type(error).__name__
        return "accepted"

    def commit(self) -> None:
        """End the transaction."""
        self._producer.commit_transaction(_TIMEOUT_MS)

    def abort(self) -> None:
        """Abort the transaction."""
        self._producer.purge()
        if not self._producer.is_ready:
            self._producer.init_transactions(_TIMEOUT_MS)


def offsets_in_transactions(probe: Prober, other: Prober, offsets: TransactionalOffsets) -> Answers:
    """Which members' offsets a transaction accepts, and when they are committed."""
    answers: Answers = {}

    def committed_after(expected: int, attempts: int = 20) -> str:
        # The marker is written after the answer.
        for _ in range(attempts):
            if probe.committed() == str(expected):
                break
            probe.pause()
        return probe.committed()

    probe.find()
    other.find()
    answers["without a member, empty group"] = offsets.send("", -1, 1)
    answers["before the transaction ends"] = probe.committed()
    offsets.commit()
    answers["after the transaction has ended"] = committed_after(1)
    joined = probe.new_member()
    me, generation = joined.member_id, joined.generation_id
    answers["before the sync"] = offsets.send(me, generation, 2)
    offsets.commit()
    answers["committed before the sync"] = committed_after(2)
    probe.sync(me, generation, {me: b"all"})
    answers["of the current generation"] = offsets.send(me, generation, 3)
    offsets.abort()
    answers["aborted"] = committed_after(2)
    answers["of the previous generation"] = offsets.send(me, generation - 1, 4)
    answers["of another generation"] = offsets.send(me, generation + 1, 4)
    answers["of an unknown member"] = offsets.send("unknown", generation, 4)
    answers["without a member"] = offsets.send("", -1, 5)
    offsets.commit()
    answers["committed without a member"] = committed_after(5)
    pending_join = other.begin(other.join_request(other.join("").member_id, b"b"))
    probe.pause()
    answers["the second join waits"] = str(not pending_join.is_done)
    answers["during the rebalance"] = offsets.send(me, generation, 6)
    offsets.commit()
    answers["committed during the rebalance"] = committed_after(6)
    joined = probe.join(me)
    probe.pause()
    answers["of the generation before the rebalance"] = offsets.send(me, generation, 7)
    answers["of the next generation"] = offsets.send(me, joined.generation_id, 7)
    offsets.commit()
    answers["committed at the end"] = committed_after(7)
    return answers

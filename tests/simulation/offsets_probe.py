"""Questions about offsets in transactions, asked of a real broker and of the simulated cluster
alike: whose are taken, and when they are seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.errors import StreamsError
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.protocols import TransactionalProducer
from millstream.record import TopicPartition
from simulation.group_probe import Answers, Prober

_TIMEOUT_MS: Final = 20_000


class Offsets:
    """Sends positions of a group in transactions.

    Args:
        new_producer: makes a producer that is not initialized.
        group: whose positions.
        place: of which partition.
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
        """What is said to the position; one that is refused is aborted."""
        member = GroupMetadata(generation, self._group, member_id)
        try:
            self._producer.send_offsets(
                {self._place: CommitOffset(offset, "")}, member, _TIMEOUT_MS
            )
        except StreamsError as error:
            self._producer = self._new_producer()
            self._producer.init_transactions(_TIMEOUT_MS)
            return type(error).__name__
        return "taken"

    def commit(self) -> None:
        """End the transaction."""
        self._producer.commit_transaction(_TIMEOUT_MS)

    def abort(self) -> None:
        """Give the transaction up."""
        self._producer.purge()
        if not self._producer.is_ready:
            self._producer.init_transactions(_TIMEOUT_MS)


def offsets_in_transactions(probe: Prober, other: Prober, offsets: Offsets) -> Answers:
    """Whose offsets are taken into a transaction, and when the group has them."""
    told: Answers = {}

    def told_then(expected: int, most: int = 20) -> str:
        # The marker is written after the answer.
        for _ in range(most):
            if probe.committed() == str(expected):
                break
            probe.pause()
        return probe.committed()

    probe.find()
    other.find()
    told["from outside, no members"] = offsets.send("", -1, 1)
    told["before its end"] = probe.committed()
    offsets.commit()
    told["after its end"] = told_then(1)
    joined = probe.new_member()
    me, generation = joined.member_id, joined.generation_id
    told["before the sync"] = offsets.send(me, generation, 2)
    offsets.commit()
    told["committed before the sync"] = told_then(2)
    probe.sync(me, generation, {me: b"all"})
    told["of the generation"] = offsets.send(me, generation, 3)
    offsets.abort()
    told["aborted"] = told_then(2)
    told["of the generation before"] = offsets.send(me, generation - 1, 4)
    told["of another generation"] = offsets.send(me, generation + 1, 4)
    told["of nobody"] = offsets.send("nobody", generation, 4)
    told["without a member"] = offsets.send("", -1, 5)
    offsets.commit()
    told["committed without a member"] = told_then(5)
    coming = other.begin(other.join_request(other.join("").member_id, b"b"))
    probe.pause()
    told["another waits for us"] = str(not coming.is_done)
    told["while the group prepares"] = offsets.send(me, generation, 6)
    offsets.commit()
    told["committed meanwhile"] = told_then(6)
    joined = probe.join(me)
    probe.pause()
    told["of the generation that has passed"] = offsets.send(me, generation, 7)
    told["of the one that is coming"] = offsets.send(me, joined.generation_id, 7)
    offsets.commit()
    told["committed at last"] = told_then(7)
    return told

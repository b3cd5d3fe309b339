"""What a group member tells its stream thread, and the offsets they speak of.

A member reports each rebalance as events, in this order:

    Joining?  →  Revoked?  →  Assigned     a rebalance; Revoked only if partitions go elsewhere
    Lost      →  Assigned                  the group had thrown the member out; it joined anew
    Failed                                 the member has ended and will report nothing else

`Joining`, `Revoked` and `Lost` hold the member back until they are acknowledged, so that nobody
else is given a partition while this thread still works on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from millstream.errors import StreamsError
from millstream.record import TopicPartition


class CommitOffset(NamedTuple):
    """A position in a partition, as the group keeps it.

    Args:
        offset: the offset of the next record to process, not of the last one processed.
        metadata: text kept beside it; Kafka Streams keeps partition times there.
        leader_epoch: the leader epoch of the last record processed; None where it is not known.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Joining:
    """The member is about to join a rebalance: commit what is done, then acknowledge.

    Reported only to who has asked for it. From the acknowledgement until the rebalance is complete
    nothing can be committed, and nobody knows how long that takes.
    """


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions go to other members: commit them, give them up, then acknowledge.

    The member is still in the group, so commits work. It joins the follow-up rebalance, which hands
    the partitions on, only after the acknowledgement.
    """

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A rebalance is complete. Reported also when it changed nothing.

    Several rebalances may complete before the stream thread looks; of those with nothing to
    acknowledge between them only the newest is reported, which stands for all.

    Args:
        partitions: all partitions this member owns now, not only the new ones.
        user_data: what the leader's assignor wrote for this member in that very rebalance.
        generation: the number of the rebalance.
        member_id: the id under which the broker knows this member.
    """

    partitions: frozenset[TopicPartition]
    user_data: bytes
    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The group went on without this member: others may own these partitions already.

    Nothing can be committed for them. Drop the work since the last commit, then acknowledge; the
    member joins again after that.
    """

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Failed:
    """The member cannot go on: the reason is in `error`. It is reported from then on, each time."""

    error: StreamsError


MemberEvent: TypeAlias = Joining | Revoked | Assigned | Lost | Failed

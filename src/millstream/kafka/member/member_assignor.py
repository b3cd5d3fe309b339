"""The first of the four assignors: what a group member asks, and how that travels over the wire.

The group protocol is Kafka's classic one (protocol type "consumer"), with the assignment strategy
"stream", so that Java's Kafka Streams members and these can be in one group. Each member sends a
subscription, the leader answers with an assignment for each; both carry user data, opaque here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.record import TopicPartition

#: The name under which Kafka Streams' assignor is known in a group.
PROTOCOL_NAME: Final = "stream"
PROTOCOL_TYPE: Final = "consumer"

#: Of subscriptions and assignments: 1 added owned partitions (KIP-429), 2 the generation, 3 the
#: rack (KIP-881). Older members read what they know and ignore the rest, and so do we with newer.
_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What one member brought into a rebalance.

    Args:
        topics: the topics it wants to read; some may not exist (yet).
        user_data: its assignor's bytes.
        owned_partitions: what it owns and has not given up.
        instance_id: its `group.instance.id`, for a static member.
        rack_id: its `client.rack`.
        generation: the rebalance in which it was given what it owns; -1 if it does not say.
    """

    topics: tuple[str, ...]
    user_data: bytes
    owned_partitions: tuple[TopicPartition, ...]
    instance_id: str | None
    rack_id: str | None
    generation: int = -1


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """What the leader gives one member: all its partitions, and the assignor's bytes."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


class MemberAssignor(Protocol):
    """The part of a rebalance that knows about tasks. Called on the member's own thread, never
    twice at once."""

    def user_data(self) -> bytes:
        """This member's bytes for the subscription. Called before each join; must be quick,
        because the member does not heartbeat meanwhile."""
        ...

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """An assignment for each member, by member id. Called on the leader only.

        It must answer well within `max.poll.interval.ms`, after which the broker gives up on the
        leader. If it raises, this member fails and leaves; the others choose another leader.
        """
        ...


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """The subscription as the broker passes it on (ConsumerProtocolSubscription, version 3)."""
    rack = subscription.rack_id
    return b"".join(
        [
            struct.pack(">hi", _VERSION, len(subscription.topics)),
            *map(_string, subscription.topics),
            _bytes(subscription.user_data),
            _partitions(subscription.owned_partitions),
            struct.pack(">i", subscription.generation),
            struct.pack(">h", -1) if rack is None else _string(rack),
        ]
    )


def decode_subscription(data: bytes, instance_id: str | None) -> MemberSubscription:
    """Read a subscription of any version.

    Args:
        data: the bytes of ConsumerProtocolSubscription.
        instance_id: the member's `group.instance.id`, which travels beside them.

    Raises:
        ValueError: these are not the bytes of a subscription.
    """
    reader = _Reader(data)
    version = reader.number(">h")
    topics = tuple(reader.string() or "" for _ in range(reader.number(">i")))
    return MemberSubscription(
        topics=topics,
        user_data=reader.bytes(),
        owned_partitions=reader.partitions() if version >= 1 else (),
        generation=reader.number(">i") if version >= 2 else -1,
        rack_id=reader.string() if version >= 3 else None,
        instance_id=instance_id,
    )


def encode_assignment(assignment: MemberAssignment) -> bytes:
    """The assignment as the broker passes it on (ConsumerProtocolAssignment, version 3)."""
    return (
        struct.pack(">h", _VERSION)
        + _partitions(assignment.partitions)
        + _bytes(assignment.user_data)
    )


def decode_assignment(data: bytes) -> MemberAssignment:
    """Read an assignment of any version. No bytes at all mean that nothing was assigned.

    Raises:
        ValueError: these are not the bytes of an assignment.
    """
    if not data:
        return MemberAssignment((), b"")
    reader = _Reader(data)
    reader.number(">h")
    return MemberAssignment(reader.partitions(), reader.bytes())


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _partitions(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    parts = [struct.pack(">i", len(by_topic))]
    for topic, numbers in by_topic.items():
        parts.append(_string(topic))
        parts.append(struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(parts)


class _Reader:
    """Reads fields one after the other; what newer versions put behind them stays unread."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError(
                f"A group member's data ends too early: {length} bytes are announced at position "
                f"{self._at}, but there are {len(self._data)} in all. "
                "Is another kind of application using this group id?"
            )
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return int(value)

    def string(self) -> str | None:
        length = self.number(">h")
        return None if length < 0 else self._take(length).decode()

    def bytes(self) -> bytes:
        length = self.number(">i")
        return b"" if length < 0 else self._take(length)

    def partitions(self) -> tuple[TopicPartition, ...]:
        found: list[TopicPartition] = []
        for _ in range(self.number(">i")):
            topic = self.string() or ""
            numbers: Sequence[int] = [self.number(">i") for _ in range(self.number(">i"))]
            found.extend(TopicPartition(topic, number) for number in numbers)
        return tuple(found)

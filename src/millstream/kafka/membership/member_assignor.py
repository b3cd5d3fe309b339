"""The assignor protocol of a group member, and its wire format.

The group protocol is Kafka's classic protocol (protocol type "consumer") with the assignment
strategy "stream", so members that run Java's Kafka Streams can be in the same group. Each member
sends a subscription, and the leader returns an assignment for each member. Both contain user data,
which is opaque here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.record import TopicPartition

#: The name of Kafka Streams' assignor in the group protocol.
PROTOCOL_NAME: Final = "stream"
PROTOCOL_TYPE: Final = "consumer"

#: The version of subscriptions and assignments: 1 added owned partitions (KIP-429), 2 the
#: generation, 3 the rack (KIP-881). Decoders of any version ignore the fields of newer versions.
_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of one member in a rebalance."""

    topics: tuple[str, ...]
    user_data: bytes
    owned_partitions: tuple[TopicPartition, ...]
    instance_id: str | None
    rack_id: str | None
    #: The generation in which the partitions were assigned; -1 if not specified.
    generation: int = -1


@dataclass(frozen=True, slots=True)
class MemberAssignment:
    """The leader's assignment for one member.

    Contains all partitions of the member, and the assignor's bytes.
    """

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


class MemberAssignor(Protocol):
    """Assigns partitions and their tasks to the members of a group.

    Called on the member's thread, never concurrently.
    """

    def user_data(self) -> bytes:
        """Return this member's user data for its subscription.

        Called before each join. Must be quick, because the member sends no heartbeats meanwhile.
        """
        ...

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """Return an assignment for each member, by member id. Called on the leader only.

        Must return well within `max.poll.interval.ms`, after which the broker removes the leader.
        If it raises, this member fails and leaves, and the broker selects another leader.
        """
        ...


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode a subscription for the broker (ConsumerProtocolSubscription, version 3)."""
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
    """Decode a subscription of any version.

    The data does not contain `group.instance.id`. Raises ValueError for invalid data.
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
    """Encode an assignment for the broker (ConsumerProtocolAssignment, version 3)."""
    return (
        struct.pack(">h", _VERSION)
        + _partitions(assignment.partitions)
        + _bytes(assignment.user_data)
    )


def decode_assignment(data: bytes) -> MemberAssignment:
    """Decode an assignment of any version; empty bytes are an empty assignment.

    Raises ValueError for invalid data."""
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
    """Decodes fields in order and ignores fields of newer versions at the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise ValueError(
                f"The data of a group member is truncated: expected {length} bytes at position "
                f"{self._at}, but there are only {len(self._data)} bytes in total. "
                "Check whether another kind of application uses this group id."
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

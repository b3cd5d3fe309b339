"""The bytes of the group protocol, as read and written by Java clients."""

from __future__ import annotations

import pytest
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from millstream.kafka.membership.member_assignor import (
    MemberAssignment,
    MemberSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from millstream.record import TopicPartition

SUBSCRIPTION = MemberSubscription(
    topics=("orders", "users"),
    user_data=b"\x00\x0b\xff",
    owned_partitions=(
        TopicPartition("orders", 0),
        TopicPartition("orders", 3),
        TopicPartition("users", 1),
    ),
    instance_id=None,
    rack_id="eu-1",
    generation=7,
)


def test_the_encoding_of_a_subscription_follows_the_protocol() -> None:
    """Version 3 of ConsumerProtocolSubscription, byte for byte, with owned partitions by topic."""
    assert (
        encode_subscription(SUBSCRIPTION)
        == bytes.fromhex(
            "0003"  # version
            "00000002" + "0006" + b"orders".hex() + "0005" + b"users".hex() + "00000003" + "000bff"
            "00000002"
            + "0006"
            + b"orders".hex()
            + "00000002"
            + "00000000"
            + "00000003"
            + "0005"
            + b"users".hex()
            + "00000001"
            + "00000001"
            + "00000007"  # generation
            + "0004"
            + b"eu-1".hex()
        )
    )


def test_the_encoding_is_compatible_with_kafka_python() -> None:
    """The generated codec of kafka-python reads our bytes, and we read its bytes."""
    read = ConsumerProtocolSubscription.decode(encode_subscription(SUBSCRIPTION))
    assert read.topics == ["orders", "users"]
    assert read.user_data == SUBSCRIPTION.user_data
    assert read.generation_id == 7
    assert read.rack_id == "eu-1"
    assert decode_subscription(read.encode(), None) == SUBSCRIPTION

    assignment = MemberAssignment((TopicPartition("a", 0), TopicPartition("a", 2)), b"data")
    decoded = ConsumerProtocolAssignment.decode(encode_assignment(assignment))
    assert decoded.partitions() == [("a", 0), ("a", 2)]
    assert decoded.user_data == b"data"
    assert decode_assignment(decoded.encode()) == assignment


@pytest.mark.parametrize("version", [0, 1, 2, 3, 9])
def test_subscriptions_of_older_and_newer_members_are_read(version: int) -> None:
    """For rolling upgrades: missing fields have defaults, and unknown fields are ignored."""
    known = min(version, 3)
    fields = ConsumerProtocolSubscription(
        version=known, topics=["orders"], user_data=b"u", owned_partitions=[], generation_id=4
    ).encode()
    data = version.to_bytes(2, "big") + fields[2:] + (b"future" if version > 3 else b"")
    read = decode_subscription(data, "instance-1")
    assert read.topics == ("orders",)
    assert read.user_data == b"u"
    assert read.owned_partitions == ()
    assert read.instance_id == "instance-1"
    assert read.rack_id is None
    assert read.generation == (4 if version >= 2 else -1)


def test_absent_user_data_and_rack_are_read() -> None:
    data = bytes.fromhex("000300000000ffffffff00000000ffffffffffff")
    assert decode_subscription(data, None) == MemberSubscription((), b"", (), None, None)
    assert decode_assignment(b"") == MemberAssignment((), b"")


@pytest.mark.parametrize("cut", [1, 5, 12, 30])
def test_truncated_data_is_rejected(cut: int) -> None:
    """Data of another kind of application causes an explained error, not a `struct.error`."""
    with pytest.raises(ValueError, match="data of a group member is truncated"):
        decode_subscription(encode_subscription(SUBSCRIPTION)[:cut], None)

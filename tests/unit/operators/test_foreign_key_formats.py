"""The byte formats of foreign-key joins are those of Kafka Streams, including older versions."""

from __future__ import annotations

import pickle

import pytest

from millstream.errors import SerializationError
from millstream.operators.joins.foreign_key_formats import (
    ForeignKeyResponse,
    ForeignKeyResponseSerde,
    ForeignKeySubscription,
    ForeignKeySubscriptionSerde,
    Instruction,
    combined_key,
    murmur3_128,
    pure_murmur3_128,
    subscription_prefix,
)
from millstream.serdes import LONG, STRING

HASH = bytes(range(16))

# Computed by Kafka Streams 4.3.1: empty, a tail, half a block, a whole block and more.
HASHES = {
    "616263": (-8302830256874342818, -1638537471643095488),
    "": (-7122613646888064702, -8341524471658347240),
    "99": (-7235817594937675000, 850853544839869828),
    "0016175aa147e1f3": (7540691147262038730, 7150869584156098990),
    "e98ee81edf7fae40bf": (-2058543396021421716, 6742042323218841920),
    "ee614cc5a74b029f8f814e38d93995": (7349050994430798271, -8159079942229585648),
    "94aa2150847891d75da8ddddc46434af": (-5640303051418852051, 5947455844329350205),
    "eb50781ae04364f9b3a3f3707eab79470b": (-7071531028695454241, -3831558065442160829),
    "fe41e1be58c9936f70570198736d008963a7f2f0c00be3754308a9a9492a58": (
        5293777645906638949,
        7493572762161832782,
    ),
    "2662199f0e33af179c6689465024424cc8942db5b9cfdf14d380620108d6bbd2b5": (
        -1396979692196578459,
        5307633719111311788,
    ),
}


@pytest.mark.parametrize("data", HASHES)
def test_murmur3(data: str) -> None:
    """Two signed longs, for all lengths of the last block that are treated differently."""
    for hash_of in (murmur3_128, pure_murmur3_128):
        computed = hash_of(bytes.fromhex(data))
        halves = (computed[:8], computed[8:])
        longs = tuple(int.from_bytes(half, "big", signed=True) for half in halves)
        assert longs == HASHES[data]


def test_format_of_a_subscription() -> None:
    """Version, instruction, hash, primary key, partition."""
    serde = ForeignKeySubscriptionSerde()
    subscription = ForeignKeySubscription(HASH, Instruction.RESPOND, b"pk", 7)
    data = serde.serialize("t", subscription)
    assert data == b"\x01\x02" + HASH + b"pk" + b"\x00\x00\x00\x07"
    assert serde.deserialize("t", data) == subscription


def test_format_of_a_subscription_of_a_deleted_row() -> None:
    """Without a hash, the first bit is set."""
    serde = ForeignKeySubscriptionSerde()
    subscription = ForeignKeySubscription(None, Instruction.DELETE_QUIETLY, b"", 0)
    data = serde.serialize("t", subscription)
    assert data == b"\x81\x00" + b"\x00\x00\x00\x00"
    assert serde.deserialize("t", data) == subscription


def test_format_of_a_subscription_of_version_0() -> None:
    """Kafka Streams before 3.2 wrote no partition; stores may still contain this version."""
    serde = ForeignKeySubscriptionSerde()
    data = b"\x00\x03" + HASH + b"pk"
    assert serde.deserialize("t", data) == ForeignKeySubscription(HASH, 3, b"pk", None)
    assert serde.serialize("t", ForeignKeySubscription(HASH, 3, b"pk", None)) == data


def test_format_of_responses() -> None:
    """Version, hash, value. A null value stays null; an empty value becomes null, as in Kafka
    Streams."""
    serde = ForeignKeyResponseSerde(STRING)
    assert serde.serialize("t", ForeignKeyResponse(HASH, "v", 3)) == b"\x00" + HASH + b"v"
    assert serde.deserialize("t", b"\x00" + HASH + b"v") == ForeignKeyResponse(HASH, "v")
    assert serde.serialize("t", ForeignKeyResponse(None, None)) == b"\x80"
    assert serde.deserialize("t", b"\x80") == ForeignKeyResponse(None, None)
    assert serde.deserialize(
        "t", serde.serialize("t", ForeignKeyResponse(HASH, ""))
    ) == ForeignKeyResponse(HASH, None)


@pytest.mark.parametrize("serde", [ForeignKeySubscriptionSerde(), ForeignKeyResponseSerde(STRING)])
def test_newer_version_is_rejected(
    serde: ForeignKeySubscriptionSerde | ForeignKeyResponseSerde,
) -> None:
    """Instead of misreading it; the error contains the remedy."""
    with pytest.raises(SerializationError, match=r"version 2, .* Upgrade all instances"):
        serde.deserialize("t", b"\x02\x00" + HASH)


def test_serdes_can_be_pickled() -> None:
    """They are sent to workers, where the default serde is inserted."""
    assert pickle.loads(pickle.dumps(ForeignKeyResponseSerde(LONG))).inner is LONG
    assert ForeignKeyResponseSerde(None).with_inner(LONG).inner is LONG
    assert isinstance(
        pickle.loads(pickle.dumps(ForeignKeySubscriptionSerde())), ForeignKeySubscriptionSerde
    )


def test_keys_of_one_right_row_are_adjacent() -> None:
    """The length in front separates `a` from `ab`, whose subscriptions have `a` as a prefix."""
    assert combined_key(b"a", b"bc") == b"\x00\x00\x00\x01abc"
    assert combined_key(b"ab", b"c") == b"\x00\x00\x00\x02abc"
    assert not combined_key(b"ab", b"c").startswith(subscription_prefix(b"a"))

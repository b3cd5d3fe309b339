"""The bytes of foreign-key joins: those of Kafka Streams, of older versions, too."""

from __future__ import annotations

import pickle

import pytest

from millstream.errors import SerializationError
from millstream.operators.joins.foreign_key_formats import (
    Instruction,
    Response,
    ResponseSerde,
    Subscription,
    SubscriptionSerde,
    combined_key,
    subscription_prefix,
)
from millstream.operators.joins.murmur3 import murmur3_128, pure_murmur3_128
from millstream.serdes import LONG, STRING

HASH = bytes(range(16))

# Computed by Kafka Streams 4.3.1: nothing, a tail, half a block, a whole block and more.
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
    """Two signed longs, for every length of the last block that behaves differently."""
    for hash_of in (murmur3_128, pure_murmur3_128):
        computed = hash_of(bytes.fromhex(data))
        halves = (computed[:8], computed[8:])
        longs = tuple(int.from_bytes(half, "big", signed=True) for half in halves)
        assert longs == HASHES[data]


def test_a_subscription() -> None:
    """Version, instruction, hash, primary key, partition."""
    serde = SubscriptionSerde()
    subscription = Subscription(HASH, Instruction.RESPOND, b"pk", 7)
    data = serde.serialize("t", subscription)
    assert data == b"\x01\x02" + HASH + b"pk" + b"\x00\x00\x00\x07"
    assert serde.deserialize("t", data) == subscription


def test_a_subscription_of_a_row_that_is_gone() -> None:
    """Without a hash the first bit is set."""
    serde = SubscriptionSerde()
    subscription = Subscription(None, Instruction.DELETE_QUIETLY, b"", 0)
    data = serde.serialize("t", subscription)
    assert data == b"\x81\x00" + b"\x00\x00\x00\x00"
    assert serde.deserialize("t", data) == subscription


def test_a_subscription_of_version_0() -> None:
    """Kafka Streams before 3.2 told no partition; a store may still hold such ones."""
    serde = SubscriptionSerde()
    data = b"\x00\x03" + HASH + b"pk"
    assert serde.deserialize("t", data) == Subscription(HASH, 3, b"pk", None)
    assert serde.serialize("t", Subscription(HASH, 3, b"pk", None)) == data


def test_responses() -> None:
    """Version, hash, value; no value stays none, and so does, as in Kafka Streams, an empty one."""
    serde = ResponseSerde(STRING)
    assert serde.serialize("t", Response(HASH, "v", 3)) == b"\x00" + HASH + b"v"
    assert serde.deserialize("t", b"\x00" + HASH + b"v") == Response(HASH, "v")
    assert serde.serialize("t", Response(None, None)) == b"\x80"
    assert serde.deserialize("t", b"\x80") == Response(None, None)
    assert serde.deserialize("t", serde.serialize("t", Response(HASH, ""))) == Response(HASH, None)


@pytest.mark.parametrize("serde", [SubscriptionSerde(), ResponseSerde(STRING)])
def test_a_newer_version_is_refused(serde: SubscriptionSerde | ResponseSerde) -> None:
    """Rather than misread it; the error tells what to do."""
    with pytest.raises(SerializationError, match=r"version 2, .* Upgrade every instance"):
        serde.deserialize("t", b"\x02\x00" + HASH)


def test_serdes_travel() -> None:
    """They are shipped to workers; the default serde is put in there."""
    assert pickle.loads(pickle.dumps(ResponseSerde(LONG))).inner is LONG
    assert ResponseSerde(None).around(LONG).inner is LONG
    assert isinstance(pickle.loads(pickle.dumps(SubscriptionSerde())), SubscriptionSerde)


def test_keys_of_one_right_row_lie_side_by_side() -> None:
    """The length in front keeps `a` apart from `ab`, whose subscriptions it is a prefix of."""
    assert combined_key(b"a", b"bc") == b"\x00\x00\x00\x01abc"
    assert combined_key(b"ab", b"c") == b"\x00\x00\x00\x02abc"
    assert not combined_key(b"ab", b"c").startswith(subscription_prefix(b"a"))

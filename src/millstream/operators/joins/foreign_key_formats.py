"""The formats of foreign-key joins in topics and stores.

They are compatible with Kafka Streams.

A **subscription** is sent from a row of the left table to the task that owns the referenced row of
the right table, and is stored there. A **response** returns the value of the right row. Both
contain a hash of the left row's value, which identifies outdated responses.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

from millstream.errors import SerializationError
from millstream.native import compiled
from millstream.serdes import Serde
from millstream.serdes._serde import WrapperSerde

_HASH_BYTES: Final = 16
#: A flag in the first byte, next to the version: the message has no hash.
_NO_HASH: Final = 0x80
_VERSION: Final = 0x7F
_INT: Final = struct.Struct(">i")

#: Since version 1, a subscription contains the partition of its row (KIP-775).
SUBSCRIPTION_VERSION: Final = 1
RESPONSE_VERSION: Final = 0


class Instruction(IntEnum):
    """The action that a subscription requests from the owner of the right row."""

    DELETE_QUIETLY = 0
    DELETE_AND_RESPOND = 1
    RESPOND = 2
    RESPOND_IF_FOUND = 3


class ForeignKeySubscription(NamedTuple):
    """The subscription of a left row to a right row."""

    #: The hash of the left row's value, 16 bytes; None if the row is deleted.
    value_hash: bytes | None
    instruction: int
    primary_key: bytes
    #: The partition of the left row; None if an older version wrote the subscription.
    partition: int | None


class ForeignKeyResponse(NamedTuple):
    """The value of a right row, sent to a left row that refers to it."""

    value_hash: bytes | None
    value: Any
    #: The partition of the left row, to which the response is sent; not serialized.
    partition: int | None = None


class ForeignKeySubscriptionSerde(Serde[ForeignKeySubscription]):
    """Serializes subscriptions.

    The format is `version, instruction, hash, primary key, partition`.
    """

    def __init__(self) -> None:
        super().__init__(
            encode_subscription,
            decode_subscription,
            immutable=True,
            name="foreign-key subscription",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (ForeignKeySubscriptionSerde, ())


def encode_subscription(topic: str, subscription: ForeignKeySubscription) -> bytes:
    value_hash, instruction, primary_key, partition = subscription
    version = SUBSCRIPTION_VERSION if partition is not None else 0
    head = version | _NO_HASH if value_hash is None else version
    tail = b"" if partition is None else _INT.pack(partition)
    return bytes((head, instruction)) + (value_hash or b"") + primary_key + tail


def decode_subscription(topic: str, data: bytes) -> ForeignKeySubscription:
    head, instruction = data[0], data[1]
    version = head & _VERSION
    if version > SUBSCRIPTION_VERSION:
        raise _unknown_version("subscription", version)
    start = 2 if head & _NO_HASH else 2 + _HASH_BYTES
    value_hash = data[2:start] if start > 2 else None
    if version == 0:
        return ForeignKeySubscription(value_hash, instruction, data[start:], None)
    return ForeignKeySubscription(
        value_hash, instruction, data[start:-4], _INT.unpack(data[-4:])[0]
    )


class ForeignKeyResponseSerde(WrapperSerde[ForeignKeyResponse]):
    """Serializes responses as `version, hash, value`.

    Follows Kafka Streams: a value without any bytes, such as an empty string, becomes None.
    """

    def __init__(self, inner: Serde[Any] | None) -> None:
        super().__init__(inner, self._encode, self._decode, name="foreign-key response")

    def __reduce__(self) -> tuple[Any, ...]:
        return (ForeignKeyResponseSerde, (self.inner,))

    def with_inner(self, inner: Serde[Any]) -> ForeignKeyResponseSerde:
        return ForeignKeyResponseSerde(inner)

    def _encode(self, topic: str, response: ForeignKeyResponse) -> bytes:
        assert self.inner is not None
        data = self.inner.serialize(topic, response.value) or b""
        if response.value_hash is None:
            return bytes((RESPONSE_VERSION | _NO_HASH,)) + data
        return bytes((RESPONSE_VERSION,)) + response.value_hash + data

    def _decode(self, topic: str, data: bytes) -> ForeignKeyResponse:
        assert self.inner is not None
        head = data[0]
        if head & _VERSION != RESPONSE_VERSION:
            raise _unknown_version("response", head & _VERSION)
        start = 1 if head & _NO_HASH else 1 + _HASH_BYTES
        value_hash = data[1:start] if start > 1 else None
        rest = data[start:]
        return ForeignKeyResponse(value_hash, self.inner.deserialize(topic, rest) if rest else None)


def combined_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """Return the store key of a subscription.

    Subscriptions to the same right row are adjacent.
    """
    return subscription_prefix(foreign_key) + primary_key


def subscription_prefix(foreign_key: bytes) -> bytes:
    """Return the store key prefix of all subscriptions to one right row."""
    return _INT.pack(len(foreign_key)) + foreign_key


def _unknown_version(what: str, version: int) -> SerializationError:
    return SerializationError(
        f"A foreign-key {what} has version {version}, which is newer than this program supports. "
        "Upgrade all instances of the application."
    )


_SEED: Final = 104729
_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F
_BLOCK: Final = 16
_TWO_LONGS: Final = struct.Struct("<QQ")
_RESULT: Final = struct.Struct(">QQ")


def pure_murmur3_128(data: bytes) -> bytes:
    """Return the MurmurHash3 (128 bits, x64) of bytes.

    The result is two big-endian longs, as in Kafka Streams.
    """
    h1 = h2 = _SEED
    size = len(data)
    whole = size - size % _BLOCK
    for k1, k2 in _TWO_LONGS.iter_unpack(data[:whole]):
        k1 = k1 * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
        h1 = (h1 << 27 | h1 >> 37) + h2 & _MASK
        h1 = h1 * 5 + 0x52DCE729 & _MASK
        k2 = k2 * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
        h2 = (h2 << 31 | h2 >> 33) + h1 & _MASK
        h2 = h2 * 5 + 0x38495AB5 & _MASK
    if whole < size:
        k1, k2 = _TWO_LONGS.unpack(bytes(data[whole:]).ljust(_BLOCK, b"\0"))
        k2 = k2 * _C2 & _MASK
        h2 ^= (k2 << 33 | k2 >> 31) * _C1 & _MASK
        k1 = k1 * _C1 & _MASK
        h1 ^= (k1 << 31 | k1 >> 33) * _C2 & _MASK
    h1 ^= size
    h2 ^= size
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1, h2 = _finished(h1), _finished(h2)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _RESULT.pack(h1, h2)


def _finished(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return h ^ h >> 33


#: Takes 0.1 us for 75 bytes with the extension, 4 us without.
murmur3_128 = compiled(pure_murmur3_128, "murmur3_128")

"""The bytes that a foreign-key join writes to its topics and to its store, those of Kafka Streams.

A **subscription** goes from a row of the left table to the task that owns the row of the right
table it refers to, and is kept there; a **response** carries the right table's value back. Both
carry a hash of the left row's value, by which a response is known to be out of date.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, Final, NamedTuple

from millstream.errors import SerializationError
from millstream.serdes import Serde
from millstream.serdes._wrapper import WrapperSerde

_HASH_BYTES: Final = 16
#: Set in the first byte, beside the version, where there is no hash.
_NO_HASH: Final = 0x80
_VERSION: Final = 0x7F
_INT: Final = struct.Struct(">i")

#: Since version 1 a subscription says which partition its row came from (KIP-775).
SUBSCRIPTION_VERSION: Final = 1
RESPONSE_VERSION: Final = 0


class Instruction(IntEnum):
    """What the owner of the right row shall do with a subscription."""

    DELETE_QUIETLY = 0
    DELETE_AND_RESPOND = 1
    RESPOND = 2
    RESPOND_IF_FOUND = 3


class Subscription(NamedTuple):
    """A left row that refers to a right row.

    Args:
        value_hash: of the left row's value, 16 bytes; None if the row is gone.
        instruction: what to do.
        primary_key: the left row's key, serialized.
        partition: of the left row; None if an older version wrote the subscription.
    """

    value_hash: bytes | None
    instruction: int
    primary_key: bytes
    partition: int | None


class Response(NamedTuple):
    """The value that a left row refers to.

    Args:
        value_hash: of the left row's value when it asked.
        value: of the right row; None if there is none.
        partition: where the response belongs; not written.
    """

    value_hash: bytes | None
    value: Any
    partition: int | None = None


class SubscriptionSerde(Serde[Subscription]):
    """Subscriptions as `version, instruction, hash, primary key, partition`."""

    def __init__(self) -> None:
        super().__init__(
            encode_subscription,
            decode_subscription,
            immutable=True,
            name="foreign-key subscription",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (SubscriptionSerde, ())


def encode_subscription(topic: str, subscription: Subscription) -> bytes:
    value_hash, instruction, primary_key, partition = subscription
    version = SUBSCRIPTION_VERSION if partition is not None else 0
    head = version | _NO_HASH if value_hash is None else version
    tail = b"" if partition is None else _INT.pack(partition)
    return bytes((head, instruction)) + (value_hash or b"") + primary_key + tail


def decode_subscription(topic: str, data: bytes) -> Subscription:
    head, instruction = data[0], data[1]
    version = head & _VERSION
    if version > SUBSCRIPTION_VERSION:
        raise _unknown_version("subscription", version)
    start = 2 if head & _NO_HASH else 2 + _HASH_BYTES
    value_hash = data[2:start] if start > 2 else None
    if version == 0:
        return Subscription(value_hash, instruction, data[start:], None)
    return Subscription(value_hash, instruction, data[start:-4], _INT.unpack(data[-4:])[0])


class ResponseSerde(WrapperSerde[Response]):
    """Responses as `version, hash, value`.

    Follows Kafka Streams: a value of no bytes at all, such as an empty string, arrives as none.

    Args:
        inner: the serde of the right table's values; None for the config's default.
    """

    def __init__(self, inner: Serde[Any] | None) -> None:
        super().__init__(inner, self._encode, self._decode, name="foreign-key response")

    def __reduce__(self) -> tuple[Any, ...]:
        return (ResponseSerde, (self.inner,))

    def around(self, inner: Serde[Any]) -> ResponseSerde:
        """The same around that serde."""
        return ResponseSerde(inner)

    def _encode(self, topic: str, response: Response) -> bytes:
        assert self.inner is not None
        data = self.inner.serialize(topic, response.value) or b""
        if response.value_hash is None:
            return bytes((RESPONSE_VERSION | _NO_HASH,)) + data
        return bytes((RESPONSE_VERSION,)) + response.value_hash + data

    def _decode(self, topic: str, data: bytes) -> Response:
        assert self.inner is not None
        head = data[0]
        if head & _VERSION != RESPONSE_VERSION:
            raise _unknown_version("response", head & _VERSION)
        start = 1 if head & _NO_HASH else 1 + _HASH_BYTES
        value_hash = data[1:start] if start > 1 else None
        rest = data[start:]
        return Response(value_hash, self.inner.deserialize(topic, rest) if rest else None)


def combined_key(foreign_key: bytes, primary_key: bytes) -> bytes:
    """The key of a subscription in its store: those of one right row lie side by side."""
    return subscription_prefix(foreign_key) + primary_key


def subscription_prefix(foreign_key: bytes) -> bytes:
    """What the keys of all subscriptions to one right row begin with."""
    return _INT.pack(len(foreign_key)) + foreign_key


def _unknown_version(what: str, version: int) -> SerializationError:
    return SerializationError(
        f"A foreign-key {what} was written in version {version}, which is newer than this program "
        "knows. Upgrade every instance of the application."
    )

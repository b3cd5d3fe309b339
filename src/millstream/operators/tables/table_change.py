"""A serde for the changes of a table, which are sent through repartition topics.

The format is that of Kafka Streams' `ChangedSerializer`: the new value, the old value, or both,
preceded by the size of the new value. The last byte is a flag that distinguishes these cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes import Serde
from millstream.serdes._serde import WrapperSerde

_OLD: Final = 0
_NEW: Final = 1
_BOTH: Final = 2
#: Added to a flag if the byte before the flag says whether the change is the latest of its key
#: (KIP-904). No version writes this format yet, but it can be read.
_WITH_IS_LATEST: Final = 3


class Change(NamedTuple):
    """The new and the old value of a row."""

    new: Any
    old: Any


class ChangeSerde(WrapperSerde[Change]):
    """The serde of changes."""

    def __init__(self, inner: Serde[Any] | None) -> None:
        name = f"ChangeSerde({inner.name if inner else 'default'})"
        super().__init__(inner, self._encode, self._decode, name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ChangeSerde, (self.inner,))

    def with_inner(self, inner: Serde[Any]) -> ChangeSerde:
        return ChangeSerde(inner)

    def serialize_many(self, topic: str, values: Sequence[Change | None]) -> list[bytes | None]:
        assert self.inner is not None
        if None in values:
            return super().serialize_many(topic, values)
        try:
            new = self.inner.serialize_many(topic, [change[0] for change in values if change])
            old = self.inner.serialize_many(topic, [change[1] for change in values if change])
        except BatchSerializationError:
            # Repeat one by one to find the failing change.
            return super().serialize_many(topic, values)
        return [_joined(one, other) for one, other in zip(new, old, strict=True)]

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[Change | None]:
        assert self.inner is not None
        try:
            parts = [_split(data or b"") for data in datas]
            new = self.inner.deserialize_many(topic, [part[0] for part in parts])
            old = self.inner.deserialize_many(topic, [part[1] for part in parts])
        except (BatchSerializationError, ValueError):
            return super().deserialize_many(topic, datas)
        return list(map(Change, new, old))

    def _encode(self, topic: str, change: Change) -> bytes:
        assert self.inner is not None
        return _joined(
            self.inner.serialize(topic, change.new), self.inner.serialize(topic, change.old)
        )

    def _decode(self, topic: str, data: bytes) -> Change:
        assert self.inner is not None
        try:
            new, old = _split(data)
        except ValueError as error:
            raise SerializationError(
                f"{self.name} cannot deserialize {data[:80]!r}: {error}. The topic probably "
                "contains records of another application.",
                topic=topic or None,
            ) from None
        return Change(self.inner.deserialize(topic, new), self.inner.deserialize(topic, old))


def _joined(new: bytes | None, old: bytes | None) -> bytes:
    if old is None:
        if new is None:
            raise ValueError("A change must have a new or an old value.")
        return new + b"\x01"
    if new is None:
        return old + b"\x00"
    return b"".join((_varint(len(new)), new, old, b"\x02"))


def _split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return the serialized new value and old value."""
    if not data:
        raise ValueError("there are no bytes")
    flag, end = data[-1], len(data) - 1
    if flag >= _WITH_IS_LATEST:
        flag, end = flag - _WITH_IS_LATEST, end - 1
    if flag == _NEW:
        return data[:end], None
    if flag == _OLD:
        return None, data[:end]
    if flag != _BOTH:
        raise ValueError(f"its last byte is {data[-1]}, not the flag of a change")
    size, start = _read_varint(data)
    middle = start + size
    if size < 0 or middle > end:
        raise ValueError("it ends in the middle of the new value")
    return data[start:middle], data[middle:end]


def _varint(size: int) -> bytes:
    """Encode a size as Kafka's varint.

    The encoding is zigzag, with seven bits per byte, lowest bits first.
    """
    rest = size << 1
    parts = bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


def _read_varint(data: bytes) -> tuple[int, int]:
    """Decode a varint. Returns the number and the index after the varint."""
    number = shift = 0
    for position, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
    raise ValueError("it ends in the middle of a size")

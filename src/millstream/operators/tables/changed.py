"""A table's change as one value, to be sent through a repartition topic.

The bytes are those of Kafka Streams' `ChangedSerializer`: the new value, the old value, or both
with the size of the new one in front; a flag at the end says which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes import Serde
from millstream.serdes._wrapper import WrapperSerde

_OLD: Final = 0
_NEW: Final = 1
_BOTH: Final = 2
#: Flags from here on say the same, with a byte before the flag that tells whether the change is the
#: newest (KIP-904). Nobody writes them yet, but they may be read.
_WITH_IS_LATEST: Final = 3


class Change(NamedTuple):
    """What a table's row was and is.

    Args:
        new: the new value; None if the row is gone.
        old: what it replaces; None if there was nothing.
    """

    new: Any
    old: Any


class ChangeSerde(WrapperSerde[Change]):
    """The serde of changes.

    Args:
        inner: the serde of the values; None for the config's default.
    """

    def __init__(self, inner: Serde[Any] | None) -> None:
        name = f"ChangeSerde({inner.name if inner else 'default'})"
        super().__init__(inner, self._encode, self._decode, name=name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ChangeSerde, (self.inner,))

    def around(self, inner: Serde[Any]) -> ChangeSerde:
        """The same with a serde of the values."""
        return ChangeSerde(inner)

    def serialize_many(self, topic: str, values: Sequence[Change | None]) -> list[bytes | None]:
        assert self.inner is not None
        if None in values:
            return super().serialize_many(topic, values)
        try:
            new = self.inner.serialize_many(topic, [change[0] for change in values if change])
            old = self.inner.serialize_many(topic, [change[1] for change in values if change])
        except BatchSerializationError:
            # One by one, to tell which change it is.
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
                f"{self.name} cannot deserialize {data[:80]!r}: {error}. Probably the topic holds "
                "records of another application.",
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
    return b"".join((_size(len(new)), new, old, b"\x02"))


def _split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """The bytes of the new value and of the old one."""
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
    size, start = _read_size(data)
    middle = start + size
    if size < 0 or middle > end:
        raise ValueError("it ends in the middle of the new value")
    return data[start:middle], data[middle:end]


def _size(size: int) -> bytes:
    """A size as Kafka's varint: zigzag, seven bits a byte, the lowest first."""
    rest = size << 1
    parts = bytearray()
    while rest > 0x7F:
        parts.append(rest & 0x7F | 0x80)
        rest >>= 7
    parts.append(rest)
    return bytes(parts)


def _read_size(data: bytes) -> tuple[int, int]:
    """A varint at the beginning, and where it ends."""
    number = shift = 0
    for position, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        if byte <= 0x7F:
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
    raise ValueError("it ends in the middle of a size")

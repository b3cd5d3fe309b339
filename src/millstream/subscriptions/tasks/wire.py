"""As much of the protocol buffers encoding as Decaton's two messages need.

They have fields of two kinds only: 64-bit integers, and bytes or text with their length before
them. Follows the decoder of protobuf-java: fields that are not known are skipped whatever they
hold, and so is a known one of another kind than it should have; of one that comes twice the last
counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: How the value of a field is written; the lowest three bits of its tag.
VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

_LEAST: Final = -(1 << 63)
_MOST: Final = (1 << 63) - 1
_ALL_BITS: Final = (1 << 64) - 1
#: As much of a tag or a length as protobuf-java looks at.
_LOW_BITS: Final = (1 << 32) - 1

#: What is nested deeper is refused, as by Java's decoder.
_DEEPEST: Final = 100

#: Seven bits each: as many bytes as 64 bits take.
_LONGEST_VARINT: Final = 10


class WireFormatError(ValueError):
    """Bytes are no message, or a value does not fit into one; the text says why."""


def varint_field(number: int, value: int) -> bytes:
    """An integer under its field number; nothing for 0, which proto3 leaves out.

    Args:
        number: of the field, from 1 to 15.
        value: as an int64.

    Raises:
        WireFormatError: it has more than 64 bits.
    """
    if not value:
        return b""
    if not _LEAST <= value <= _MOST:
        raise WireFormatError(f"{value} does not fit into 64 bits")
    return bytes((number << 3 | VARINT,)) + _varint(value & _ALL_BITS)


def bytes_field(number: int, value: bytes) -> bytes:
    """Bytes under their field number; nothing for none, which proto3 leaves out."""
    return message_field(number, value) if value else b""


def message_field(number: int, value: bytes) -> bytes:
    """A message under its field number, also if it is empty: being there says something."""
    return bytes((number << 3 | BYTES,)) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    done = bytearray()
    while value > 0x7F:
        done.append(value & 0x7F | 0x80)
        value >>= 7
    done.append(value)
    return bytes(done)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The number and value of each field that is an int64 or bytes; others are skipped.

    Raises:
        WireFormatError: the bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        number, kind, at = _read_tag(data, at)
        if kind == VARINT:
            whole, at = read_int64(data, at)
            yield number, whole
        elif kind == BYTES:
            start, at = _read_span(data, at)
            yield number, data[start:at]
        else:
            at = _skipped(data, at, number, kind, 0)


def read_int64(data: bytes, at: int) -> tuple[int, int]:
    """The integer that begins at a place, and the place behind it.

    Raises:
        WireFormatError: there is none.
    """
    value, end = _read_varint(data, at)
    return (value - (1 << 64) if value > _MOST else value), end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The same without a sign."""
    value = shift = 0
    for byte in data[at : at + _LONGEST_VARINT]:
        if byte < 0x80:
            return (value | byte << shift) & _ALL_BITS, at + shift // 7 + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if at + _LONGEST_VARINT > len(data):
        raise _truncated(data)
    raise WireFormatError(f"the integer at byte {at} has no end")


def _read_tag(data: bytes, at: int) -> tuple[int, int, int]:
    """A field's number and kind, and the place behind them."""
    tag, at = _read_varint(data, at)
    number, kind = (tag & _LOW_BITS) >> 3, tag & 7
    if not number:
        raise WireFormatError("there is no field with the number 0")
    return number, kind, at


def _read_span(data: bytes, at: int) -> tuple[int, int]:
    """Where the bytes begin and end whose length stands at a place."""
    length, start = _read_varint(data, at)
    return start, _moved(data, start, length & _LOW_BITS)


def _moved(data: bytes, at: int, length: int) -> int:
    if at + length > len(data):
        raise _truncated(data)
    return at + length


def _skipped(data: bytes, at: int, number: int, kind: int, depth: int) -> int:
    """The place behind a field that is not of interest."""
    if kind == VARINT:
        return _read_varint(data, at)[1]
    if kind == BYTES:
        return _read_span(data, at)[1]
    if kind == FIXED64:
        return _moved(data, at, 8)
    if kind == FIXED32:
        return _moved(data, at, 4)
    if kind != GROUP:
        raise WireFormatError(f"field {number} is of kind {kind}, which cannot stand there")
    if depth == _DEEPEST:
        raise WireFormatError(f"it is nested more than {_DEEPEST} deep")
    while True:
        inner, inner_kind, at = _read_tag(data, at)
        if inner_kind == END_GROUP:
            if inner != number:
                raise WireFormatError(f"the group {number} ends as group {inner}")
            return at
        at = _skipped(data, at, inner, inner_kind, depth + 1)


def _truncated(data: bytes) -> WireFormatError:
    return WireFormatError(f"its {len(data)} bytes end in the midst of a field")

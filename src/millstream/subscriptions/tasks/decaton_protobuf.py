"""The subset of the protobuf encoding that Decaton's two messages need.

Their fields are 64-bit integers and length-prefixed bytes or strings. The decoder behaves like that
of protobuf-java: fields that are unknown or have an unexpected wire type are skipped, and the last
occurrence of a repeated field wins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: Wire types: the lowest three bits of a tag.
VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_UINT64_MASK: Final = (1 << 64) - 1
#: The bits of a tag or length that protobuf-java uses.
_UINT32_MASK: Final = (1 << 32) - 1

#: The maximum nesting depth, as in Java's decoder.
_MAX_DEPTH: Final = 100

#: The bytes of a 64-bit integer at seven bits per byte.
_MAX_VARINT_BYTES: Final = 10


class WireFormatError(ValueError):
    """The bytes are not a valid message, or a value cannot be encoded."""


def varint_field(number: int, value: int) -> bytes:
    """Encode an integer field; empty for 0, which proto3 omits.

    `number` is at most 15.

    Raises:
        WireFormatError: the value exceeds 64 bits.
    """
    if not value:
        return b""
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise WireFormatError(f"{value} does not fit into 64 bits")
    return bytes((number << 3 | VARINT,)) + _varint(value & _UINT64_MASK)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a bytes field; empty for no bytes, which proto3 omits."""
    return message_field(number, value) if value else b""


def message_field(number: int, value: bytes) -> bytes:
    """Encode a message field.

    Empty messages are encoded, too: their presence is significant.
    """
    return bytes((number << 3 | BYTES,)) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    done = bytearray()
    while value > 0x7F:
        done.append(value & 0x7F | 0x80)
        value >>= 7
    done.append(value)
    return bytes(done)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each int64 or bytes field.

    Other fields are skipped.

    Raises:
        WireFormatError: the bytes are not a valid message.
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
            at = _skip_field(data, at, number, kind, 0)


def read_int64(data: bytes, at: int) -> tuple[int, int]:
    """Decode the integer at a position; return it and the position after it.

    Raises:
        WireFormatError: the bytes at the position are not an integer.
    """
    value, end = _read_varint(data, at)
    return (value - (1 << 64) if value > _INT64_MAX else value), end


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in data[at : at + _MAX_VARINT_BYTES]:
        if byte < 0x80:
            return (value | byte << shift) & _UINT64_MASK, at + shift // 7 + 1
        value |= (byte & 0x7F) << shift
        shift += 7
    if at + _MAX_VARINT_BYTES > len(data):
        raise _truncated_error(data)
    raise WireFormatError(f"the integer at byte {at} is not terminated")


def _read_tag(data: bytes, at: int) -> tuple[int, int, int]:
    """Decode a tag.

    Returns the field number, the wire type and the position after the tag.
    """
    tag, at = _read_varint(data, at)
    number, kind = (tag & _UINT32_MASK) >> 3, tag & 7
    if not number:
        raise WireFormatError("0 is not a valid field number")
    return number, kind, at


def _read_span(data: bytes, at: int) -> tuple[int, int]:
    """Return the start and end of a length-prefixed field."""
    length, start = _read_varint(data, at)
    return start, _advance(data, start, length & _UINT32_MASK)


def _advance(data: bytes, at: int, length: int) -> int:
    if at + length > len(data):
        raise _truncated_error(data)
    return at + length


def _skip_field(data: bytes, at: int, number: int, kind: int, depth: int) -> int:
    """Return the position after a skipped field."""
    if kind == VARINT:
        return _read_varint(data, at)[1]
    if kind == BYTES:
        return _read_span(data, at)[1]
    if kind == FIXED64:
        return _advance(data, at, 8)
    if kind == FIXED32:
        return _advance(data, at, 4)
    if kind != GROUP:
        raise WireFormatError(f"field {number} has the invalid wire type {kind}")
    if depth == _MAX_DEPTH:
        raise WireFormatError(f"groups are nested more than {_MAX_DEPTH} levels deep")
    while True:
        inner, inner_kind, at = _read_tag(data, at)
        if inner_kind == END_GROUP:
            if inner != number:
                raise WireFormatError(f"group {number} ends with the end tag of group {inner}")
            return at
        at = _skip_field(data, at, inner, inner_kind, depth + 1)


def _truncated_error(data: bytes) -> WireFormatError:
    return WireFormatError(f"the {len(data)} bytes end in the middle of a field")

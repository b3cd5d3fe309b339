"""The list serde, in the format of Kafka's `ListSerializer`."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes._numbers import DOUBLE, FLOAT, INTEGER, LONG, SHORT
from millstream.serdes._serde import ArgumentsSerde, Serde, WrongValueError, check_type
from millstream.serdes._text import UUID

T = TypeVar("T")

# Elements of these serdes have a constant size, which is not written. As in Kafka, this
# depends on the serde: elements of a custom serde with 8 bytes are written with their sizes.
_FIXED_SIZES: Final[dict[Serde[Any], int]] = {
    SHORT: 2,
    INTEGER: 4,
    FLOAT: 4,
    LONG: 8,
    DOUBLE: 8,
    UUID: 36,
}
_CONSTANT_SIZE: Final = 0
_VARIABLE_SIZE: Final = 1
_NULL_SIZE: Final = -1
_INT: Final = struct.Struct(">i")


def list_of(inner: Serde[T]) -> Serde[list[T | None]]:
    """Return a serde for lists, which may contain None.

    The format is that of Kafka's `Serdes.ListSerde`. If the elements have a constant size, a flag
    is followed by the positions of the Nones, and then by the elements. Otherwise, the flag is
    followed by the elements, each preceded by its size.

    Example:
        >>> list_of(LONG).serialize("scores", [7]).hex()
        '0000000000000000010000000000000007'
    """
    return ListSerde(inner)


class ListSerde(ArgumentsSerde[list[T | None]]):
    def __init__(self, inner: Serde[T]) -> None:
        self.inner = inner
        self._arguments = (inner,)
        self._size = _FIXED_SIZES.get(inner)
        super().__init__(self._encode, self._decode, name=f"list_of({inner.name})")

    def _encode(self, topic: str, values: Sequence[T | None]) -> bytes:
        check_type(values, (list, tuple))
        try:
            elements = self.inner.serialize_many(topic, values)
        except BatchSerializationError as error:
            raise self._element_failed(error, topic) from error
        count = _INT.pack(len(elements))
        if self._size is not None:
            nulls = [index for index, data in enumerate(elements) if data is None]
            head = struct.pack(f">bi{len(nulls)}i", _CONSTANT_SIZE, len(nulls), *nulls)
            return b"".join((head, count, *filter(None, elements)))
        parts = [bytes((_VARIABLE_SIZE,)), count]
        for data in elements:
            parts.append(_INT.pack(_NULL_SIZE if data is None else len(data)))
            parts.append(data or b"")
        return b"".join(parts)

    def _decode(self, topic: str, data: bytes) -> list[T | None]:
        try:
            flag = data[0]
            if flag == _CONSTANT_SIZE and self._size is not None:
                elements = _constant_size_elements(data, self._size)
            elif flag == _VARIABLE_SIZE:
                elements = _variable_size_elements(data)
            else:
                raise WrongValueError(f"the first byte is {flag}, which is not a valid list flag")
        except (struct.error, IndexError):
            raise WrongValueError("the bytes end in the middle of the list") from None
        try:
            return self.inner.deserialize_many(topic, elements)
        except BatchSerializationError as error:
            raise self._element_failed(error, topic) from error

    def _element_failed(self, error: BatchSerializationError, topic: str) -> SerializationError:
        # The index refers to this list, not to the batch of the caller.
        return SerializationError(
            f"{self.name} failed at element {error.index}: {error.message}", topic=topic or None
        )


def _constant_size_elements(data: bytes, size: int) -> list[bytes | None]:
    (null_count,) = _INT.unpack_from(data, 1)
    nulls = frozenset(struct.unpack_from(f">{max(0, null_count)}i", data, 5))
    start = 5 + 4 * max(0, null_count)
    (count,) = _INT.unpack_from(data, start)
    start += 4
    # Checked before any allocation: an invalid count could be up to 2**31.
    if count < 0 or len(data) - start != size * (count - len(nulls)):
        raise WrongValueError(f"the number of bytes does not fit {count} elements of {size} bytes")
    elements: list[bytes | None] = []
    for index in range(count):
        if index in nulls:
            elements.append(None)
        else:
            elements.append(data[start : start + size])
            start += size
    return elements


def _variable_size_elements(data: bytes) -> list[bytes | None]:
    (count,) = _INT.unpack_from(data, 1)
    start = 5
    elements: list[bytes | None] = []
    for _ in range(count):
        (size,) = _INT.unpack_from(data, start)
        start += 4
        if size == _NULL_SIZE:
            elements.append(None)
            continue
        if size < 0 or start + size > len(data):
            raise WrongValueError("the bytes end in the middle of the list")
        elements.append(data[start : start + size])
        start += size
    return elements

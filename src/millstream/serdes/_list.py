"""Lists of what another serde takes, in the bytes of Kafka's ListSerializer."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes._constant import must_be
from millstream.serdes._numbers import DOUBLE, FLOAT, INTEGER, LONG, SHORT
from millstream.serdes._serde import Serde, WrongValueError
from millstream.serdes._text import UUID

T = TypeVar("T")

# Values of these serdes are written without their size: it is always the same. As in Kafka, that
# goes by the serde, so another serde of 8 bytes is written with sizes.
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
    """Lists, with None among their elements allowed.

    The bytes are those of Kafka's `Serdes.ListSerde`: a flag, then for elements of constant size
    the positions of the Nones and the elements, for others each element after its size.

    Args:
        inner: the serde of the elements.

    Example:
        >>> list_of(LONG).serialize("scores", [7]).hex()
        '0000000000000000010000000000000007'
    """
    return ListSerde(inner)


class ListSerde(Serde[list[T | None]]):
    """The serde of `list_of`. Two with equal inner serdes are equal."""

    def __init__(self, inner: Serde[T]) -> None:
        #: The serde of the elements.
        self.inner = inner
        self._size = _FIXED_SIZES.get(inner)
        super().__init__(self._encode, self._decode, name=f"list_of({inner.name})")

    def __reduce__(self) -> tuple[Any, ...]:
        return (list_of, (self.inner,))

    def __eq__(self, other: object) -> bool:
        return self.inner == other.inner if isinstance(other, ListSerde) else NotImplemented

    def __hash__(self) -> int:
        return hash((ListSerde, self.inner))

    def _encode(self, topic: str, values: Sequence[T | None]) -> bytes:
        must_be(values, (list, tuple))
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
                raise WrongValueError(f"its first byte is {flag}, not the flag of such a list")
        except (struct.error, IndexError):
            raise WrongValueError("it ends in the middle of the list") from None
        try:
            return self.inner.deserialize_many(topic, elements)
        except BatchSerializationError as error:
            raise self._element_failed(error, topic) from error

    def _element_failed(self, error: BatchSerializationError, topic: str) -> SerializationError:
        # Its index is one of this list, not of the batch that a caller counts in.
        return SerializationError(
            f"{self.name} failed at element {error.index}: {error.message}", topic=topic or None
        )


def _constant_size_elements(data: bytes, size: int) -> list[bytes | None]:
    (null_count,) = _INT.unpack_from(data, 1)
    nulls = frozenset(struct.unpack_from(f">{max(0, null_count)}i", data, 5))
    start = 5 + 4 * max(0, null_count)
    (count,) = _INT.unpack_from(data, start)
    start += 4
    # Checked before anything is allocated: a broken count could ask for 2**31 elements.
    if count < 0 or len(data) - start != size * (count - len(nulls)):
        raise WrongValueError(f"its size does not fit {count} elements of {size} bytes")
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
            raise WrongValueError("it ends in the middle of the list")
        elements.append(data[start : start + size])
        start += size
    return elements

"""Numbers of a fixed size, big-endian, as Java's serdes write them.

LONG 8 bytes, INTEGER 4, SHORT 2 (signed); DOUBLE 8, FLOAT 4 (IEEE 754).
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from millstream.serdes._constant import ConstantSerde
from millstream.serdes._serde import Serde, WrongValueError

N = TypeVar("N", bound=float)

_NONE_TYPE = type(None)


class FixedSizeSerde(ConstantSerde[N]):
    """Numbers that take the same number of bytes each.

    Args:
        name: the constant's name.
        code: the number's letter in the `struct` module.
        kind: the type of Python that decoding gives.
    """

    def __init__(self, name: str, code: str, kind: type[N]) -> None:
        super().__init__(name, self._pack, self._unpack, immutable=True)
        #: The number's letter in the modules `struct` and `array`.
        self.code = code
        self._struct = struct.Struct(">" + code)
        #: Values of other types take the slow path: subclasses, numpy's integers, mistakes.
        self._plain: frozenset[type] = frozenset({kind, _NONE_TYPE})
        #: The number of bytes of a value.
        self.size = self._struct.size

    def serialize_many(self, topic: str, values: Sequence[N | None]) -> list[bytes | None]:
        # 65 ns a record, with Nones in between too; one by one: 200. Packing the whole list at
        # once and cutting it is slower than packing each.
        kinds = set(map(type, values))
        if kinds <= self._plain and not self._has_unusual(values, kinds):
            pack = self._struct.pack
            try:
                if _NONE_TYPE in kinds:
                    return [None if value is None else pack(value) for value in values]
                return list(map(pack, values))
            except (struct.error, OverflowError):
                pass  # One value is out of range; below it is found and named.
        return super().serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[N | None]:
        # 44 ns a record, 57 with Nones in between; one by one: 145. Joining the bytes turns the
        # whole list into one call of unpack; only equal sizes make that the same.
        try:
            if set(map(len, datas)) <= {self.size}:  # type: ignore[arg-type]
                joined = b"".join(datas)  # type: ignore[arg-type]
                return list(struct.unpack(f">{len(datas)}{self.code}", joined))
        except TypeError:
            pass  # There is a None; len() and join() take none.
        unpack = self._struct.unpack
        try:
            return [None if data is None else unpack(data)[0] for data in datas]
        except (struct.error, TypeError):
            return super().deserialize_many(topic, datas)

    def _has_unusual(self, values: Sequence[Any], kinds: set[type]) -> bool:
        return False

    def _pack(self, topic: str, value: Any) -> bytes:
        try:
            number = operator.index(value)
        except TypeError:
            raise WrongValueError("it takes int") from None
        if isinstance(value, bool):
            raise WrongValueError("it takes int")
        try:
            return self._struct.pack(number)
        except struct.error:
            most = (1 << (8 * self.size - 1)) - 1
            raise WrongValueError(f"it takes integers from {-most - 1} to {most}") from None

    def _unpack(self, topic: str, data: bytes) -> N:
        if len(data) != self.size:
            raise WrongValueError(f"it takes exactly {self.size} bytes")
        return self._struct.unpack(data)[0]  # type: ignore[no-any-return]


class FloatingPointSerde(FixedSizeSerde[float]):
    """Numbers with a fraction. Takes int as well, as Python does where a float is expected."""

    def __init__(self, name: str, code: str) -> None:
        super().__init__(name, code, float)
        self._plain = frozenset({float, int, _NONE_TYPE})

    def _pack(self, topic: str, value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WrongValueError("it takes float")
        try:
            number = float(value)
            # Kafka's DoubleSerializer writes every NaN alike (doubleToLongBits); Python has one
            # for a double without a sign, and the sign is what arithmetic may give it here.
            return self._struct.pack(number if number == number else _NAN)
        except OverflowError:
            raise WrongValueError(f"it is too large for {8 * self.size} bits") from None

    def _has_unusual(self, values: Sequence[Any], kinds: set[type]) -> bool:
        # A sum is NaN if one of its terms is; 4 ns a record.
        try:
            total = sum(values if _NONE_TYPE not in kinds else filter(None, values))
        except OverflowError:
            return True
        return bool(total != total)


_NAN: Final = float("nan")

LONG: Final[Serde[int]] = FixedSizeSerde[int]("LONG", "q", int)
INTEGER: Final[Serde[int]] = FixedSizeSerde[int]("INTEGER", "i", int)
SHORT: Final[Serde[int]] = FixedSizeSerde[int]("SHORT", "h", int)
DOUBLE: Final[Serde[float]] = FloatingPointSerde("DOUBLE", "d")
FLOAT: Final[Serde[float]] = FloatingPointSerde("FLOAT", "f")

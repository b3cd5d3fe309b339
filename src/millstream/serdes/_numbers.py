"""Serdes for big-endian numbers of a fixed size, compatible with Java's serdes.

LONG has 8 bytes, INTEGER 4 and SHORT 2 (signed); DOUBLE has 8 bytes and FLOAT 4 (IEEE 754).
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from millstream.serdes._serde import ConstantSerde, Serde, WrongValueError

N = TypeVar("N", bound=float)

_NONE_TYPE = type(None)


class FixedSizeSerde(ConstantSerde[N]):
    def __init__(self, name: str, code: str, kind: type[N]) -> None:
        super().__init__(name, self._pack, self._unpack, immutable=True)
        #: The type code of the modules `struct` and `array`.
        self.code = code
        self._struct = struct.Struct(">" + code)
        #: The types of the fast path. Values of other types use the slow path: subclasses, numpy
        #: integers, invalid values.
        self._fast_types: frozenset[type] = frozenset({kind, _NONE_TYPE})
        #: The size of a value in bytes.
        self.size = self._struct.size

    def serialize_many(self, topic: str, values: Sequence[N | None]) -> list[bytes | None]:
        # Takes 65 ns per record, also with Nones, compared to 200 ns in single calls. Packing the
        # whole list at once and slicing the result is slower than packing each value.
        kinds = set(map(type, values))
        if kinds <= self._fast_types and not self._needs_slow_path(values, kinds):
            pack = self._struct.pack
            try:
                if _NONE_TYPE in kinds:
                    return [None if value is None else pack(value) for value in values]
                return list(map(pack, values))
            except (struct.error, OverflowError):
                pass  # A value is out of range; the slow path below reports it.
        return super().serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[N | None]:
        # Takes 44 ns per record, or 57 ns with Nones, compared to 145 ns in single calls. Joining
        # the bytes allows a single call of unpack, which is only correct if all sizes are equal.
        try:
            if set(map(len, datas)) <= {self.size}:  # type: ignore[arg-type]
                joined = b"".join(datas)  # type: ignore[arg-type]
                return list(struct.unpack(f">{len(datas)}{self.code}", joined))
        except TypeError:
            pass  # The list contains None, which len() and join() do not accept.
        unpack = self._struct.unpack
        try:
            return [None if data is None else unpack(data)[0] for data in datas]
        except (struct.error, TypeError):
            return super().deserialize_many(topic, datas)

    def _needs_slow_path(self, values: Sequence[Any], kinds: set[type]) -> bool:
        return False

    def _pack(self, topic: str, value: Any) -> bytes:
        try:
            number = operator.index(value)
        except TypeError:
            raise WrongValueError("it requires int") from None
        if isinstance(value, bool):
            raise WrongValueError("it requires int")
        try:
            return self._struct.pack(number)
        except struct.error:
            maximum = (1 << (8 * self.size - 1)) - 1
            raise WrongValueError(
                f"it requires integers from {-maximum - 1} to {maximum}"
            ) from None

    def _unpack(self, topic: str, data: bytes) -> N:
        if len(data) != self.size:
            raise WrongValueError(f"it requires exactly {self.size} bytes")
        return self._struct.unpack(data)[0]  # type: ignore[no-any-return]


class FloatingPointSerde(FixedSizeSerde[float]):
    """A serde for floating-point numbers.

    Also accepts int, like Python's float parameters.
    """

    def __init__(self, name: str, code: str) -> None:
        super().__init__(name, code, float)
        self._fast_types = frozenset({float, int, _NONE_TYPE})

    def _pack(self, topic: str, value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise WrongValueError("it requires float")
        try:
            number = float(value)
            # Kafka's DoubleSerializer writes all NaNs with the same bytes (doubleToLongBits), while
            # arithmetic in Python may produce a NaN with a sign.
            return self._struct.pack(number if number == number else _NAN)
        except OverflowError:
            raise WrongValueError(f"the value is too large for {8 * self.size} bits") from None

    def _needs_slow_path(self, values: Sequence[Any], kinds: set[type]) -> bool:
        # A sum is NaN if one of its terms is NaN. Summing takes 4 ns per record.
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

"""The formats of stored values: plain, or prefixed with a timestamp.

A timestamped store stores `int64 big-endian timestamp + value`, as Kafka Streams does. Its
changelog records contain only the value, and their timestamp is that of the value.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final

from millstream.native import compiled
from millstream.record import UNKNOWN

_TIMESTAMP: Final = struct.Struct(">q")
_TIMESTAMP_BYTES: Final = _TIMESTAMP.size


def with_times(values: Iterable[bytes | None], timestamps: Iterable[int]) -> list[bytes | None]:
    """Prefix each value with its timestamp; None stays None."""
    pack = _TIMESTAMP.pack
    return [
        None if value is None else pack(timestamp) + value
        for value, timestamp in zip(values, timestamps, strict=True)
    ]


#: Takes 0.05 us per value with the extension, 0.11 us without it.
_with_times = compiled(with_times, "with_times")


class ValueFormat:
    """Combines values and timestamps into stored values, and splits them again.

    This class is the plain format, which stores no timestamps. A stored value of None means
    a deletion.
    """

    timestamped = False

    def join(self, value: bytes | None, timestamp: int) -> bytes | None:
        return value

    def join_many(
        self, values: Iterable[bytes | None], timestamps: Iterable[int]
    ) -> list[bytes | None]:
        """Return the stored form of each value, in a new list."""
        return list(values)

    def split(self, stored: bytes) -> tuple[bytes, int]:
        """Return the value and its timestamp, -1 if none is stored."""
        return stored, UNKNOWN

    def value_of(self, stored: bytes | None) -> bytes | None:
        return stored

    def values_of(self, stored: Sequence[bytes | None]) -> Sequence[bytes | None]:
        return stored

    def timestamps(self, stored: Iterable[bytes | None]) -> list[int]:
        """Return the timestamps; -1 for None, and in the plain format."""
        return [UNKNOWN for _ in stored]


class _Timestamped(ValueFormat):
    timestamped = True

    def join(self, value: bytes | None, timestamp: int) -> bytes | None:
        return None if value is None else _TIMESTAMP.pack(timestamp) + value

    def join_many(
        self, values: Iterable[bytes | None], timestamps: Iterable[int]
    ) -> list[bytes | None]:
        return _with_times(values, timestamps)

    def split(self, stored: bytes) -> tuple[bytes, int]:
        return stored[_TIMESTAMP_BYTES:], _TIMESTAMP.unpack_from(stored)[0]

    def value_of(self, stored: bytes | None) -> bytes | None:
        return None if stored is None else stored[_TIMESTAMP_BYTES:]

    def values_of(self, stored: Sequence[bytes | None]) -> Sequence[bytes | None]:
        # A stored value is never empty, so only None is falsy.
        return [each and each[_TIMESTAMP_BYTES:] for each in stored]

    def timestamps(self, stored: Iterable[bytes | None]) -> list[int]:
        unpack = _TIMESTAMP.unpack_from
        return [UNKNOWN if each is None else unpack(each)[0] for each in stored]


PLAIN: Final = ValueFormat()
TIMESTAMPED: Final[ValueFormat] = _Timestamped()


def format_of(timestamped: bool) -> ValueFormat:
    """Return the format of a timestamped or plain store."""
    return TIMESTAMPED if timestamped else PLAIN

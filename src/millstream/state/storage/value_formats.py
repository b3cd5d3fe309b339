"""How a store's values lie on disk: as they are, or behind their timestamp.

A timestamped store keeps `int64 big-endian timestamp + value`, as Kafka Streams does. Its changelog
carries the value alone, the timestamp being that of the record.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from millstream.compiled import compiled
from millstream.record import UNKNOWN

_TIMESTAMP: Final = struct.Struct(">q")
_TIMESTAMP_BYTES: Final = _TIMESTAMP.size


class ValueFormat(Protocol):
    """Joins values and timestamps to what lies on disk, and takes them apart again."""

    @property
    def timestamped(self) -> bool:
        """Whether the timestamp is kept."""
        ...

    def join(self, value: bytes | None, timestamp: int) -> bytes | None:
        """The bytes on disk; None, which deletes, stays None."""
        ...

    def join_many(
        self, values: Iterable[bytes | None], timestamps: Iterable[int]
    ) -> list[bytes | None]:
        """The bytes on disk of each value, in a new list."""
        ...

    def split(self, stored: bytes) -> tuple[bytes, int]:
        """The value and its timestamp, which is -1 where none is kept."""
        ...

    def value_of(self, stored: bytes | None) -> bytes | None:
        """The value alone."""
        ...

    def values_of(self, stored: Sequence[bytes | None]) -> Sequence[bytes | None]:
        """The values alone."""
        ...

    def timestamps(self, stored: Iterable[bytes | None]) -> list[int]:
        """The timestamps alone: -1 for None, and where none is kept."""
        ...


def with_times(values: Iterable[bytes | None], timestamps: Iterable[int]) -> list[bytes | None]:
    """Each value behind its timestamp; None for None."""
    pack = _TIMESTAMP.pack
    return [
        None if value is None else pack(timestamp) + value
        for value, timestamp in zip(values, timestamps, strict=True)
    ]


#: 0.05 us a value with the extension, 0.11 us without.
_with_times = compiled(with_times, "with_times")


class _Plain:
    timestamped = False

    def join(self, value: bytes | None, timestamp: int) -> bytes | None:
        return value

    def join_many(
        self, values: Iterable[bytes | None], timestamps: Iterable[int]
    ) -> list[bytes | None]:
        return list(values)

    def split(self, stored: bytes) -> tuple[bytes, int]:
        return stored, UNKNOWN

    def value_of(self, stored: bytes | None) -> bytes | None:
        return stored

    def values_of(self, stored: Sequence[bytes | None]) -> Sequence[bytes | None]:
        return stored

    def timestamps(self, stored: Iterable[bytes | None]) -> list[int]:
        return [UNKNOWN for _ in stored]


class _Timestamped:
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
        # A stored value is never empty, so only None is false.
        return [each and each[_TIMESTAMP_BYTES:] for each in stored]

    def timestamps(self, stored: Iterable[bytes | None]) -> list[int]:
        unpack = _TIMESTAMP.unpack_from
        return [UNKNOWN if each is None else unpack(each)[0] for each in stored]


PLAIN: Final[ValueFormat] = _Plain()
TIMESTAMPED: Final[ValueFormat] = _Timestamped()


def format_of(timestamped: bool) -> ValueFormat:
    """The format of a timestamped store, or of a plain one."""
    return TIMESTAMPED if timestamped else PLAIN

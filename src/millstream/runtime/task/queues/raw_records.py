"""Records as they come from Kafka."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol

from millstream.record import Headers


class RawRecords(Protocol):
    """Records as they come from Kafka: parallel lists in offset order."""

    @property
    def keys(self) -> list[bytes | None]: ...

    @property
    def values(self) -> list[bytes | None]: ...

    @property
    def timestamps(self) -> list[int]: ...

    @property
    def offsets(self) -> Sequence[int]: ...

    @property
    def headers(self) -> Sequence[Headers] | None:
        """None when no record has any."""
        ...

    @property
    def leader_epoch(self) -> int | None:
        """Of the last record; None when unknown."""
        ...


#: Key and value of a record as they were read.
RawPair = tuple[bytes | None, bytes | None]


def raw_pair(chunks: Iterable[RawRecords], offset: int) -> RawPair | None:
    """Key and value of the record with this offset; None if it is in none of the chunks."""
    for raw in chunks:
        index = bisect_left(raw.offsets, offset)
        if index < len(raw.offsets) and raw.offsets[index] == offset:
            return raw.keys[index], raw.values[index]
    return None

"""Records as they come from Kafka."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class _RawPart:
    """Some of the records of a poll."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: Sequence[int]
    headers: Sequence[Headers] | None
    leader_epoch: int | None


def raw_part(raw: RawRecords, start: int, end: int) -> RawRecords:
    """The records from one index up to another one, or `raw` itself if these are all."""
    if start == 0 and end == len(raw.offsets):
        return raw
    return _RawPart(
        raw.keys[start:end],
        raw.values[start:end],
        raw.timestamps[start:end],
        raw.offsets[start:end],
        None if raw.headers is None else raw.headers[start:end],
        raw.leader_epoch,
    )


#: Key and value of a record as they were read.
RawPair = tuple[bytes | None, bytes | None]


def raw_pair(chunks: Iterable[RawRecords], offset: int) -> RawPair | None:
    """Key and value of the record with this offset; None if it is in none of the chunks."""
    for raw in chunks:
        index = bisect_left(raw.offsets, offset)
        if index < len(raw.offsets) and raw.offsets[index] == offset:
            return raw.keys[index], raw.values[index]
    return None

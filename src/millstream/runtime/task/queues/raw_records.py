"""Records as fetched from Kafka, before deserialization."""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from millstream.record import Headers
from millstream.topology.physical.dataframe_stage import TIME_HEADER


class RawRecords(Protocol):
    """Fetched records as parallel lists in offset order."""

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
        """The headers of each record; None if no record has headers."""

    @property
    def leader_epoch(self) -> int | None:
        """The leader epoch of the last record; None if unknown."""


@dataclass(frozen=True, slots=True)
class _RawColumns:
    """Raw records that were derived from the records of a poll."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: Sequence[int]
    headers: Sequence[Headers] | None
    leader_epoch: int | None


def raw_part(raw: RawRecords, start: int, end: int) -> RawRecords:
    """Return the records from `start` up to `end`; `raw` itself if these are all."""
    if start == 0 and end == len(raw.offsets):
        return raw
    return _RawColumns(
        raw.keys[start:end],
        raw.values[start:end],
        raw.timestamps[start:end],
        raw.offsets[start:end],
        None if raw.headers is None else raw.headers[start:end],
        raw.leader_epoch,
    )


#: The serialized key and value of a record.
RawPair = tuple[bytes | None, bytes | None]


def raw_pair(chunks: Iterable[RawRecords], offset: int) -> RawPair | None:
    """Return the key and value at an offset; None if no chunk contains the offset."""
    for raw in chunks:
        index = bisect_left(raw.offsets, offset)
        if index < len(raw.offsets) and raw.offsets[index] == offset:
            return raw.keys[index], raw.values[index]
    return None


_TIME: Final = struct.Struct(">q")


def with_header_timestamps(raw: RawRecords) -> RawRecords:
    """Take each record's timestamp from its last header, and remove that header.

    Spark's Kafka sink sets the timestamp of each record to the time of the write, so `dataframes`
    stages pass the original timestamp in a header.
    """
    if raw.headers is None:
        return raw
    timestamps, headers = list(raw.timestamps), list(raw.headers)
    for row, each in enumerate(headers):
        if not each or each[-1][0] != TIME_HEADER:
            continue
        data = each[-1][1]
        if data is not None and len(data) == _TIME.size:
            (timestamps[row],) = _TIME.unpack(data)
            headers[row] = each[:-1]
    kept = headers if any(headers) else None
    return _RawColumns(raw.keys, raw.values, timestamps, raw.offsets, kept, raw.leader_epoch)

"""Records that bring their time in a header, since what wrote them could not say it to Kafka.

Spark's own Kafka sink gives each record the time at which it is written.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from millstream.record import Headers
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.topology.physical.dataframe_stage import TIME_HEADER

_TIME: Final = struct.Struct(">q")


@dataclass(frozen=True, slots=True)
class _Timed:
    """Records with other times and headers."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: Sequence[int]
    headers: Sequence[Headers] | None
    leader_epoch: int | None


class TimesInHeadersQueue(RecordQueue):
    """A queue whose records may have their time in their last header, which is taken off."""

    def add(self, raw: RawRecords) -> None:
        super().add(timed(raw))


def timed(raw: RawRecords) -> RawRecords:
    """The records with the times of their headers, where these have some."""
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
    return _Timed(raw.keys, raw.values, timestamps, raw.offsets, kept, raw.leader_epoch)

"""What a store shows of one partition, once its changelog is read up to some offset.

The same that the store itself shows then: the last value of each key that is not deleted; of
windows and sessions only those that its retention still reaches, counted from the latest time that
it has seen; of versions those that its history still has.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.kafka.data.record_columns import RecordColumns
from millstream.lake.filters import Wanted
from millstream.lake.latest import RECORDS, LatestOfKeys
from millstream.lake.rows import times_of
from millstream.lake.store_table import StoreTable
from millstream.record import UNKNOWN

_TIME: Final = struct.Struct(">q")
#: Until when a version is valid that has no successor.
_FOREVER: Final = (1 << 63) - 1
_STEP_COUNT: Final = 10_000
#: Of a list Arrow would ask pandas, whose import is 0.26 of 1.37 s that it takes to import this.
_STEPS: Final = pa.Array.from_buffers(
    pa.int64(), _STEP_COUNT, [None, pa.py_buffer(array("q", range(_STEP_COUNT)))]
)


class Content:
    """The content of a partition of a store.

    Args:
        table: the store.
        wanted: which rows are asked for.
        limit_bytes: of last records in memory; see `LatestOfKeys`.
        folder: for what is beyond.
        as_of_ms: of a versioned store: the versions that were valid then; None for the latest.
        history: of a versioned store: whether all versions are asked for.
    """

    def __init__(
        self,
        table: StoreTable,
        wanted: Wanted,
        limit_bytes: int,
        folder: str | None = None,
        *,
        as_of_ms: int | None = None,
        history: bool = False,
    ) -> None:
        self._table = table
        self._wanted = wanted
        self._as_of_ms = as_of_ms
        self._history = history
        #: The latest time that the store has seen.
        self._stream_time = UNKNOWN
        self._is_versioned = table.shape == "versioned"
        self._latest = LatestOfKeys(
            limit_bytes,
            folder,
            keeps_deletions=self._is_versioned,
            suffix_bytes=_TIME.size if self._is_versioned else 0,
        )

    def add(self, columns: RecordColumns) -> None:
        """Take records that follow those taken before."""
        table, wanted = self._table, self._wanted
        batch = as_records(columns)
        if not batch.num_rows:
            return
        if self._is_versioned:
            batch = by_version(wanted.of_keys(batch.filter(self._in_time(batch)), 0))
        elif table.suffix_bytes:
            latest: int = pc.max(times_of(batch.column("key"), table)).as_py()
            self._stream_time = max(self._stream_time, latest)
            batch = wanted.of_windows(wanted.of_keys(batch, table.suffix_bytes), table)
        else:
            batch = wanted.of_keys(batch, 0)
        if batch.num_rows:
            self._latest.add(batch)

    def tables(self) -> Iterator[Any]:
        """What the store shows, as tables of records."""
        for records in self._latest.tables():
            if not records.num_rows:
                continue
            if self._is_versioned:
                yield self._versions(records)
            elif self._table.suffix_bytes:
                times = times_of(records.column("key").combine_chunks(), self._table)
                first = self._stream_time - self._table.times.reach_ms
                yield records.filter(pc.greater_equal(times, first))
            else:
                yield records

    def close(self) -> None:
        """Let go of memory and files."""
        self._latest.close()

    def _in_time(self, batch: Any) -> Any:
        """Which versions did not come too late for the history when they came."""
        stream_time, history_ms = self._stream_time, self._table.times.history_ms
        in_time = []
        for time in batch.column("timestamp").to_pylist():
            stream_time = max(stream_time, time)
            in_time.append(time >= stream_time - history_ms)
        self._stream_time = stream_time
        return pa.array(in_time, pa.bool_())

    def _versions(self, records: Any) -> Any:
        """The versions with their ends, of records of which each key and time is there once."""
        records = records.set_column(
            0, "key", pc.binary_slice(records.column("key"), 0, -_TIME.size)
        ).sort_by([("key", "ascending"), ("timestamp", "ascending")])
        keys = records.column("key").combine_chunks()
        times = records.column("timestamp").combine_chunks()
        has_next = pa.concat_arrays([pc.equal(keys[1:], keys[:-1]), pa.array([False])])
        next_times = pa.concat_arrays([times[1:], times[:1]])
        ends = pc.if_else(has_next, next_times, _FOREVER)
        records = records.append_column("valid_to", ends)
        shown = pc.and_(pc.is_valid(records.column("value")), self._is_shown(times, ends))
        return records.filter(shown)

    def _is_shown(self, times: Any, ends: Any) -> Any:
        is_latest = pc.equal(ends, _FOREVER)
        oldest_ms = self._stream_time - self._table.times.history_ms
        if self._as_of_ms is not None:
            as_of_ms = self._as_of_ms
            valid = pc.and_(pc.less_equal(times, as_of_ms), pc.greater(ends, as_of_ms))
            # The latest version never gets too old.
            return valid if as_of_ms >= oldest_ms else pc.and_(valid, is_latest)
        if not self._history:
            return is_latest
        # As the store does, by whole segments of time.
        first_end = oldest_ms // self._table.times.segment_ms * self._table.times.segment_ms
        return pc.greater_equal(ends, first_end)


def as_records(columns: RecordColumns) -> Any:
    """Records as a `pyarrow.RecordBatch`, without those that have no key: stores pass over them."""
    types = RECORDS.types
    arrays = [
        pa.array(columns.keys, types[0]),
        pa.array(columns.values, types[1]),
        pa.array(columns.timestamps, types[2]),
        _offsets(columns.offsets),
    ]
    batch = pa.RecordBatch.from_arrays(arrays, schema=RECORDS)
    return batch.filter(pc.is_valid(arrays[0])) if arrays[0].null_count else batch


def _offsets(offsets: Sequence[int]) -> Any:
    if not isinstance(offsets, range) or len(offsets) > len(_STEPS):
        return pa.array(offsets, pa.int64())
    # A tenth of what it takes to look at each.
    return pc.add(_STEPS.slice(0, len(offsets)), offsets.start)


def by_version(batch: Any) -> Any:
    """The same, with the time behind each key: records of one key and time replace each other."""
    pack = _TIME.pack
    keys = [
        key + pack(time)
        for key, time in zip(
            batch.column("key").to_pylist(), batch.column("timestamp").to_pylist(), strict=True
        )
    ]
    return batch.set_column(0, RECORDS.field(0), pa.array(keys, pa.large_binary()))

"""Computes the content of a store's partition from its changelog up to an offset.

The result equals the content of the store: the last value of each key that is not deleted, only
windows and sessions within the retention (relative to stream time), and only versions within the
history retention.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.kafka.clients.record_columns import RecordColumns
from millstream.lake.latest_by_key import RECORDS, LatestByKey
from millstream.lake.row_filters import RowFilter
from millstream.lake.store_rows import times_of
from millstream.lake.store_table import StoreTable
from millstream.record import UNKNOWN

_TIME: Final = struct.Struct(">q")
#: The end of a version without a successor.
_FOREVER: Final = (1 << 63) - 1
_STEP_COUNT: Final = 10_000
#: The numbers from 0, from which `_offsets` computes consecutive offsets. Created from a buffer,
#: because Arrow imports pandas to convert a list, which takes 0.26 s of the 1.37 s that all imports
#: take.
_STEPS: Final = pa.Array.from_buffers(
    pa.int64(), _STEP_COUNT, [None, pa.py_buffer(array("q", range(_STEP_COUNT)))]
)


class StoreContent:
    """Computes the content of a store's partition from changelog records.

    For a versioned store, the content consists of the versions at `as_of_ms`, all versions
    (`history`), or the latest versions.
    """

    def __init__(
        self,
        table: StoreTable,
        row_filter: RowFilter,
        limit_bytes: int,
        *,
        as_of_ms: int | None = None,
        history: bool = False,
    ) -> None:
        self._table = table
        self._row_filter = row_filter
        self._as_of_ms = as_of_ms
        self._history = history
        self._stream_time = UNKNOWN
        self._is_versioned = table.shape == "versioned"
        self._latest = LatestByKey(
            limit_bytes,
            keeps_deletions=self._is_versioned,
            suffix_bytes=_TIME.size if self._is_versioned else 0,
        )

    def add(self, columns: RecordColumns) -> None:
        table, row_filter = self._table, self._row_filter
        batch = as_records(columns)
        if not batch.num_rows:
            return
        if self._is_versioned:
            batch = by_version(row_filter.select_keys(batch.filter(self._in_time(batch)), 0))
        elif table.suffix_bytes:
            latest: int = pc.max(times_of(batch.column("key"), table)).as_py()
            self._stream_time = max(self._stream_time, latest)
            batch = row_filter.select_windows(
                row_filter.select_keys(batch, table.suffix_bytes), table
            )
        else:
            batch = row_filter.select_keys(batch, 0)
        if batch.num_rows:
            self._latest.add(batch)

    def tables(self) -> Iterator[Any]:
        for records in self._latest.tables():
            if not records.num_rows:
                continue
            if self._is_versioned:
                yield self._versions(records)
            elif self._table.suffix_bytes:
                times = times_of(records.column("key").combine_chunks(), self._table)
                first = self._stream_time - self._table.times.lookback_ms
                yield records.filter(pc.greater_equal(times, first))
            else:
                yield records

    def close(self) -> None:
        self._latest.close()

    def _in_time(self, batch: Any) -> Any:
        """Return a mask of the versions that arrived within the history retention."""
        stream_time, history_ms = self._stream_time, self._table.times.history_ms
        in_time = []
        for time in batch.column("timestamp").to_pylist():
            stream_time = max(stream_time, time)
            in_time.append(time >= stream_time - history_ms)
        self._stream_time = stream_time
        return pa.array(in_time, pa.bool_())

    def _versions(self, records: Any) -> Any:
        """Add the end of each version, and filter the versions.

        The records are unique by key and time.
        """
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
            # The latest version never expires.
            return valid if as_of_ms >= oldest_ms else pc.and_(valid, is_latest)
        if not self._history:
            return is_latest
        # Versions expire by whole segments, as in the store.
        first_end = oldest_ms // self._table.times.segment_ms * self._table.times.segment_ms
        return pc.greater_equal(ends, first_end)


def as_records(columns: RecordColumns) -> Any:
    """Convert records to a `pyarrow.RecordBatch`, and drop records without a key."""
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
    # Ten times faster than converting each offset.
    return pc.add(_STEPS.slice(0, len(offsets)), offsets.start)


def by_version(batch: Any) -> Any:
    """Append the time to each key.

    As a result, records with the same key and time are merged.
    """
    pack = _TIME.pack
    keys = [
        key + pack(time)
        for key, time in zip(
            batch.column("key").to_pylist(), batch.column("timestamp").to_pylist(), strict=True
        )
    ]
    return batch.set_column(0, RECORDS.field(0), pa.array(keys, pa.large_binary()))

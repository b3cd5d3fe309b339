"""Converts changelog records to rows.

Also defines the columns for each kind of store:

| store | columns |
| --- | --- |
| key-value | `key`, `value`, `timestamp` |
| window, session | `key`, `window_start`, `window_end`, `value`, `timestamp` |
| versioned | `key`, `value`, `valid_from`, `valid_to` |

The rows of all stores also have the columns `partition` and `offset`: the position of the row's
last record in the changelog.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.lake.store_table import StoreTable
from millstream.spark.columns.serde_columns import LAST_MS, column_of, numbers_of
from millstream.state.queries.codec import StoreShape
from millstream.windowed import MAX_TIME_MS

#: The number of rows in a batch for Spark.
_BATCH_ROWS: Final = 50_000
_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_INT64_BYTES: Final = 8

_COLUMNS: Final[Mapping[StoreShape, tuple[str, ...]]] = {
    "key-value": ("key", "value", "timestamp"),
    "window": ("key", "window_start", "window_end", "value", "timestamp"),
    "session": ("key", "window_start", "window_end", "value", "timestamp"),
    "versioned": ("key", "value", "valid_from", "valid_to"),
}
PARTITION: Final = "partition"
OFFSET: Final = "offset"


class StoreRowConverter:
    def __init__(self, table: StoreTable) -> None:
        self._table = table
        self._key = column_of(table.key)
        self._value = column_of(table.value)
        types = {
            "key": self._key.arrow_type,
            "value": self._value.arrow_type,
            PARTITION: pa.int32(),
            OFFSET: pa.int64(),
        }
        names = (*_COLUMNS[table.shape], PARTITION, OFFSET)
        self.schema: Any = pa.schema([(name, types.get(name, _TIMESTAMP)) for name in names])

    def batches(self, records: Any, partition: int) -> Iterator[Any]:
        """Yield the rows for a table of records.

        For a versioned store, the table has the column `valid_to`.
        """
        for batch in records.combine_chunks().to_batches(max_chunksize=_BATCH_ROWS):
            if batch.num_rows:
                yield self._rows(batch, partition)

    def _rows(self, batch: Any, partition: int) -> Any:
        table = self._table
        keys, times = batch.column("key"), timestamps(batch.column("timestamp"))
        columns = {
            "value": self._value.decode(table.topic, batch.column("value")),
            "timestamp": times,
            "valid_from": times,
            PARTITION: pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows),
            OFFSET: batch.column("offset"),
        }
        if table.suffix_bytes:
            starts, ends = windows_of(keys, table)
            columns |= {"window_start": timestamps(starts), "window_end": timestamps(ends)}
            keys = pc.binary_slice(keys, 0, -table.suffix_bytes)
        if "valid_to" in batch.schema.names:
            columns["valid_to"] = timestamps(batch.column("valid_to"))
        else:
            columns["valid_to"] = pa.nulls(batch.num_rows, _TIMESTAMP)
        columns["key"] = self._key.decode(table.topic, keys)
        arrays = [columns[name] for name in self.schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def timestamps(times: Any) -> Any:
    """Convert milliseconds to timestamps. Unknown and out-of-range times become null."""
    is_known = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, LAST_MS))
    times = pc.if_else(is_known, times, pa.scalar(None, pa.int64()))
    return times.cast(pa.timestamp("ms", "UTC")).cast(_TIMESTAMP)


def times_of(keys: Any, table: StoreTable) -> Any:
    """Return the times that determine when stored keys expire.

    These are window starts or session ends.
    """
    return _int64(keys, -table.suffix_bytes, _INT64_BYTES - table.suffix_bytes)


def windows_of(keys: Any, table: StoreTable) -> tuple[Any, Any]:
    """Return the starts and ends of the windows of stored keys, in milliseconds."""
    times = times_of(keys, table)
    if table.shape == "session":
        return _int64(keys, -_INT64_BYTES, None), times
    size_ms = table.times.window_size_ms
    # As in `fixed_window_end`, an end after the maximum time is reduced to the maximum.
    room = pc.less_equal(times, MAX_TIME_MS - size_ms)
    ends = pc.if_else(room, pc.add(pc.if_else(room, times, 0), size_ms), MAX_TIME_MS)
    return times, ends


def _int64(keys: Any, start: int, stop: int | None) -> Any:
    """Return the int64 at a position in each key, relative to the key's end."""
    fixed = pc.binary_slice(keys, start, stop).cast(pa.binary()).cast(pa.binary(_INT64_BYTES))
    return numbers_of(fixed, "q", pa.int64())

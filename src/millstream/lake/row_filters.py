"""Filter pushdown: reads only the keys and windows in a query's filters.

Spark evaluates the filters again, so a pushed filter may keep too many rows, but never too few.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from millstream.errors import SerializationError
from millstream.kafka.partitioner import partitions_for
from millstream.lake.store_rows import windows_of
from millstream.lake.store_table import StoreTable
from millstream.serdes import BOOLEAN, BYTES, INTEGER, LONG, SHORT, STRING, UUID
from millstream.spark.columns.serde_columns import column_of, ms_of_time

#: Serdes that map keys to bytes one-to-one.
_ONE_TO_ONE: Final = (STRING, BYTES, LONG, INTEGER, SHORT, BOOLEAN, UUID)
_WINDOW_COLUMNS: Final = (("window_start",), ("window_end",))


@dataclass(frozen=True)
class TimeRange:
    """An inclusive range of times. None means that there is no limit."""

    first_ms: int | None = None
    last_ms: int | None = None

    def and_from(self, time_ms: int) -> TimeRange:
        first = time_ms if self.first_ms is None else max(self.first_ms, time_ms)
        return replace(self, first_ms=first)

    def and_until(self, time_ms: int) -> TimeRange:
        last = time_ms if self.last_ms is None else min(self.last_ms, time_ms)
        return replace(self, last_ms=last)

    def mask(self, times: Any) -> Any:
        """Return a boolean array that marks the times in the range; None if unbounded."""
        checks = []
        if self.first_ms is not None:
            checks.append(pc.greater_equal(times, self.first_ms))
        if self.last_ms is not None:
            checks.append(pc.less_equal(times, self.last_ms))
        return None if not checks else checks[0] if len(checks) == 1 else pc.and_(*checks)


@dataclass(frozen=True)
class RowFilter:
    """The serialized keys (None for all keys) and the windows in a query's filters."""

    keys: frozenset[bytes] | None = None
    starts: TimeRange = TimeRange()
    ends: TimeRange = TimeRange()

    def partitions(self, count: int, *, is_partitioned: bool) -> list[int]:
        """Return the partitions that may contain matching rows.

        `is_partitioned` is True if the topic is partitioned by Kafka's default partitioner.
        """
        if self.keys is None or not is_partitioned:
            return list(range(count))
        return sorted(set(partitions_for(self.keys, count)))

    def select_keys(self, batch: Any, suffix_bytes: int) -> Any:
        """Return the records with matching keys, ignoring the suffix of stored keys."""
        if self.keys is None:
            return batch
        keys = batch.column("key")
        if suffix_bytes:
            keys = pc.binary_slice(keys, 0, -suffix_bytes)
        wanted = pa.array(list(self.keys), keys.type)
        return batch.filter(pc.is_in(keys, value_set=wanted))

    def select_windows(self, batch: Any, table: StoreTable) -> Any:
        if self.starts == self.ends == TimeRange() or not batch.num_rows:
            return batch
        starts, ends = windows_of(batch.column("key"), table)
        for bounds, times in ((self.starts, starts), (self.ends, ends)):
            mask = bounds.mask(times)
            if mask is not None:
                batch, starts, ends = (each.filter(mask) for each in (batch, starts, ends))
                times = starts
        return batch


def row_filter_of(filters: Iterable[spark.Filter], table: StoreTable) -> RowFilter:
    """Convert Spark's filters to the keys and windows to read.

    Filters on other columns, and filters on keys that do not test for equality, are ignored.
    """
    row_filter = RowFilter()
    for each in filters:
        row_filter = _restrict(row_filter, each, table)
    return row_filter


def _restrict(row_filter: RowFilter, each: spark.Filter, table: StoreTable) -> RowFilter:
    column: tuple[str, ...] = getattr(each, "attribute", ())
    if column == ("key",) and table.key in _ONE_TO_ONE:
        if isinstance(each, spark.EqualTo | spark.EqualNullSafe):
            return _restrict_keys(row_filter, [each.value], table)
        if isinstance(each, spark.In):
            return _restrict_keys(row_filter, list(each.value), table)
        return row_filter
    if not table.suffix_bytes or column not in _WINDOW_COLUMNS:
        return row_filter
    time = getattr(each, "value", None)
    if not isinstance(time, datetime):
        return row_filter
    bounds = row_filter.starts if column == ("window_start",) else row_filter.ends
    # Filters are precise to the microsecond, windows to the millisecond. Rounding down keeps all
    # matches.
    time_ms = ms_of_time(time if time.tzinfo is not None else time.astimezone(UTC))
    if isinstance(each, spark.EqualTo | spark.GreaterThan | spark.GreaterThanOrEqual):
        bounds = bounds.and_from(time_ms)
    if isinstance(each, spark.EqualTo | spark.LessThan | spark.LessThanOrEqual):
        bounds = bounds.and_until(time_ms)
    if column == ("window_start",):
        return replace(row_filter, starts=bounds)
    return replace(row_filter, ends=bounds)


def _restrict_keys(row_filter: RowFilter, keys: list[Any], table: StoreTable) -> RowFilter:
    column = column_of(table.key)
    serialized = set()
    for key in keys:
        if key is None:
            continue
        try:
            (data,) = column.encode(table.topic, pa.array([key], column.arrow_type))
        except (SerializationError, pa.ArrowException):
            # The value cannot be a key of the store.
            continue
        if data is not None:
            serialized.add(data)
    if row_filter.keys is not None:
        serialized &= row_filter.keys
    return replace(row_filter, keys=frozenset(serialized))

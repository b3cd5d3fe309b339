"""Filters of a query that need not read everything: which keys, and which windows, are wanted.

Spark looks at each row once more, so that a filter may let more through than it should, never less.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from millstream.errors import SerializationError
from millstream.kafka.partitioner import partitions_for
from millstream.lake.rows import windows_of
from millstream.lake.store_table import StoreTable
from millstream.serdes import BOOLEAN, BYTES, INTEGER, LONG, SHORT, STRING, UUID
from millstream.spark.columns.serde_columns import column_of

#: Equal keys have equal bytes, and the other way round.
_ONE_TO_ONE: Final = (STRING, BYTES, LONG, INTEGER, SHORT, BOOLEAN, UUID)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_WINDOW_COLUMNS: Final = ("window_start", "window_end")


@dataclass(frozen=True)
class Bounds:
    """Between which times something lies, both included; None where it does not matter."""

    first_ms: int | None = None
    last_ms: int | None = None

    def and_from(self, time_ms: int) -> Bounds:
        """The same, and not before a time."""
        first = time_ms if self.first_ms is None else max(self.first_ms, time_ms)
        return replace(self, first_ms=first)

    def and_until(self, time_ms: int) -> Bounds:
        """The same, and not after a time."""
        last = time_ms if self.last_ms is None else min(self.last_ms, time_ms)
        return replace(self, last_ms=last)

    def hold(self, times: Any) -> Any:
        """Which of these times lie there, an array of booleans; None for all."""
        checks = []
        if self.first_ms is not None:
            checks.append(pc.greater_equal(times, self.first_ms))
        if self.last_ms is not None:
            checks.append(pc.less_equal(times, self.last_ms))
        return None if not checks else checks[0] if len(checks) == 1 else pc.and_(*checks)


@dataclass(frozen=True)
class Wanted:
    """Which rows of a store are asked for.

    Args:
        keys: the serialized keys; None for all.
        starts: of windows.
        ends: of windows.
    """

    keys: frozenset[bytes] | None = None
    starts: Bounds = Bounds()
    ends: Bounds = Bounds()

    def partitions(self, count: int, *, is_partitioned: bool) -> list[int]:
        """The partitions that can have such rows.

        Args:
            count: how many there are.
            is_partitioned: whether keys lie where Kafka's default partitioner puts them.
        """
        if self.keys is None or not is_partitioned:
            return list(range(count))
        return sorted(set(partitions_for(self.keys, count)))

    def of_keys(self, batch: Any, suffix_bytes: int) -> Any:
        """The records of these keys, which stand before a suffix."""
        if self.keys is None:
            return batch
        keys = batch.column("key")
        if suffix_bytes:
            keys = pc.binary_slice(keys, 0, -suffix_bytes)
        wanted = pa.array(list(self.keys), keys.type)
        return batch.filter(pc.is_in(keys, value_set=wanted))

    def of_windows(self, batch: Any, table: StoreTable) -> Any:
        """The records of these windows."""
        if self.starts == self.ends == Bounds() or not batch.num_rows:
            return batch
        starts, ends = windows_of(batch.column("key"), table)
        for bounds, times in ((self.starts, starts), (self.ends, ends)):
            mask = bounds.hold(times)
            if mask is not None:
                batch, starts, ends = (each.filter(mask) for each in (batch, starts, ends))
                times = starts
        return batch


def wanted_by(filters: Iterable[spark.Filter], table: StoreTable) -> Wanted:
    """What is left to read of a store where all of these filters hold.

    A filter that says nothing about keys or windows, or compares keys otherwise than for equality,
    leaves everything.
    """
    wanted = Wanted()
    for each in filters:
        wanted = _and(wanted, each, table)
    return wanted


def _and(wanted: Wanted, each: spark.Filter, table: StoreTable) -> Wanted:
    column: tuple[str, ...] = getattr(each, "attribute", ())
    if column == ("key",) and table.key in _ONE_TO_ONE:
        if isinstance(each, spark.EqualTo | spark.EqualNullSafe):
            return _of_keys(wanted, [each.value], table)
        if isinstance(each, spark.In):
            return _of_keys(wanted, list(each.value), table)
        return wanted
    if not table.suffix_bytes or len(column) != 1 or column[0] not in _WINDOW_COLUMNS:
        return wanted
    if not isinstance(getattr(each, "value", None), datetime):
        return wanted
    bounds = wanted.starts if column == ("window_start",) else wanted.ends
    # Column and value have microseconds, windows milliseconds: rounded so that none is lost.
    time_ms = (_aware(each.value) - _EPOCH) // _MILLISECOND  # type: ignore[attr-defined]
    if isinstance(each, spark.EqualTo | spark.GreaterThan | spark.GreaterThanOrEqual):
        bounds = bounds.and_from(time_ms)
    if isinstance(each, spark.EqualTo | spark.LessThan | spark.LessThanOrEqual):
        bounds = bounds.and_until(time_ms)
    if column == ("window_start",):
        return replace(wanted, starts=bounds)
    return replace(wanted, ends=bounds)


def _of_keys(wanted: Wanted, keys: list[Any], table: StoreTable) -> Wanted:
    column = column_of(table.key)
    serialized = set()
    for key in keys:
        if key is None:
            continue
        try:
            (data,) = column.encode(table.topic, pa.array([key], column.arrow_type))
        except (SerializationError, pa.ArrowException):
            # No key of the store is written like that.
            continue
        if data is not None:
            serialized.add(data)
    if wanted.keys is not None:
        serialized &= wanted.keys
    return replace(wanted, keys=frozenset(serialized))


def _aware(time: datetime) -> datetime:
    return time if time.tzinfo is not None else time.astimezone(UTC)

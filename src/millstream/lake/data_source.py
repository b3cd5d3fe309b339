"""The Python data source `millstream`, with which Spark reads stores.

For planning, Spark creates and calls these objects in separate Python processes. It pickles the
readers for its tasks.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as spark
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from millstream.lake.changelogs import (
    METADATA,
    Offsets,
    as_json,
    beginnings_of,
    ends_of,
    from_json,
    parse_position,
    read_records,
)
from millstream.lake.options import plan_from_options
from millstream.lake.row_filters import RowFilter, row_filter_of
from millstream.lake.store_content import StoreContent, as_records
from millstream.lake.store_rows import StoreRowConverter
from millstream.lake.store_table import ReadPlan, load_plan
from millstream.record import TopicPartition
from millstream.spark.code.shipping import ship
from millstream.spark.code.user_modules import driver_modules
from millstream.spark.worker.process_setup import infrequent_gc

FORMAT: Final = "millstream"
#: The name of the option that contains the path of a plan's file.
PLAN: Final = "plan"


class MillstreamDataSource(spark.DataSource):
    """Reads a store: a snapshot in batch queries, its changes in streaming queries.

    The serdes in the options are imported with the driver's `module_path`.
    """

    module_path: Sequence[str] = ()

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """Return the schema of the store's rows.

        The metadata of the first column contains the position.

        Called once, when the DataFrame is created. This call determines the position, so that each
        action on the DataFrame reads the same snapshot.
        """
        plan = load_plan(self.options[PLAN]) if PLAN in self.options else None
        with driver_modules(self.module_path):
            if plan is None:
                plan = plan_from_options(self.options)
            self._plan = ship(plan, "the plan of a DataFrame")
        self._ends = ends = ends_of(plan.config, plan.table)
        if plan.position is not None:
            self._ends = ends = parse_position(plan.position, ends, plan.table.topic)
        schema: StructType = from_arrow_schema(StoreRowConverter(plan.table).schema)
        schema.fields[0].metadata = {METADATA: as_json(plan.table.topic, ends)}
        return schema

    def reader(self, schema: StructType) -> SnapshotReader:
        return SnapshotReader(self._plan, self._ends)

    def streamReader(self, schema: StructType) -> ChangesReader:  # noqa: N802
        return ChangesReader(self._plan)


def with_module_path(path: Sequence[str]) -> type[MillstreamDataSource]:
    """Return the data source class with a module path.

    Because the class is not importable, Spark pickles it by value, including the path.
    """

    class WithModulePath(MillstreamDataSource):
        module_path = tuple(path)

    return WithModulePath


class OffsetRange(spark.InputPartition):
    """An offset range of a changelog partition.

    If `begin` is None, the range starts at the beginning of the log.
    """

    def __init__(self, partition: int, begin: int | None, end: int) -> None:
        super().__init__(partition)
        self.partition, self.begin, self.end = partition, begin, end


class SnapshotReader(spark.DataSourceReader):
    """Reads the content of a store at a position.

    The plan is already pickled, because Spark could not pickle its serdes by value.
    """

    def __init__(self, plan: bytes, ends: Offsets) -> None:
        self._plan = plan
        self._ends = ends
        self._row_filter = RowFilter()

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:  # noqa: N802
        """Use filters on keys and windows. Spark evaluates all filters again."""
        self._row_filter = row_filter_of(filters, _load_plan(self._plan).table)
        return filters

    def partitions(self) -> list[spark.InputPartition]:
        plan = _load_plan(self._plan)
        numbers = self._row_filter.partitions(len(self._ends), is_partitioned=plan.is_partitioned)
        return [OffsetRange(number, None, self._ends[number]) for number in numbers]

    def read(self, partition: spark.InputPartition) -> Iterator[Any]:
        # Without partitions, Spark reads a default partition.
        if not isinstance(partition, OffsetRange):
            return
        plan = _load_plan(self._plan)
        rows = StoreRowConverter(plan.table)
        content = StoreContent(
            plan.table,
            self._row_filter,
            plan.memory_bytes,
            as_of_ms=plan.as_of_ms,
            history=plan.history,
        )
        with infrequent_gc(), closing(content):
            for columns in _records(plan, partition):
                content.add(columns)
            for table in content.tables():
                yield from rows.batches(table, partition.partition)


class ChangesReader(spark.DataSourceStreamReader):
    """Reads the changes of a store in the order of the changelog, in offset ranges."""

    def __init__(self, plan: bytes) -> None:
        self._plan = plan

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        plan = _load_plan(self._plan)
        starting = plan.starting_offsets
        if starting == "earliest":
            return _as_offset(beginnings_of(plan.config, plan.table))
        if starting == "latest":
            return _as_offset(ends_of(plan.config, plan.table))
        return _as_offset(from_json(starting, plan.table.topic, "The option startingOffsets"))

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        plan = _load_plan(self._plan)
        return _as_offset(ends_of(plan.config, plan.table))

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[spark.InputPartition]:
        # A partition that was added later is read from its first record.
        return [
            OffsetRange(int(number), int(start.get(number, 0)), int(end[number]))
            for number in end
            if int(start.get(number, 0)) < int(end[number])
        ]

    def read(self, partition: spark.InputPartition) -> Iterator[Any]:
        if not isinstance(partition, OffsetRange):
            return
        plan = _load_plan(self._plan)
        rows = StoreRowConverter(plan.table)
        with infrequent_gc():
            for columns in _records(plan, partition):
                batch = as_records(columns)
                if batch.num_rows:
                    yield from rows.batches(pa.Table.from_batches([batch]), partition.partition)


def _records(plan: ReadPlan, offset_range: OffsetRange) -> Iterator[Any]:
    tp = TopicPartition(plan.table.topic, offset_range.partition)
    return read_records(plan.config, tp, offset_range.begin, offset_range.end)


def _as_offset(offsets: Offsets) -> dict[str, Any]:
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def _load_plan(plan: bytes) -> ReadPlan:
    read: ReadPlan = pickle.loads(plan)
    return read

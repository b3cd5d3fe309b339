"""The data source `millstream`: what Spark calls to read stores.

Spark makes and asks these objects in processes of Python that it starts for planning, and reads in
its tasks; between them they are pickled.
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

from millstream.lake.content import Content, as_records
from millstream.lake.filters import Wanted, wanted_by
from millstream.lake.log_reader import read_records
from millstream.lake.options import plan_of_options
from millstream.lake.plan import ReadPlan, taken_over
from millstream.lake.position import (
    METADATA,
    Offsets,
    as_json,
    beginnings_of,
    checked_position,
    ends_of,
    from_json,
)
from millstream.lake.rows import Rows
from millstream.record import TopicPartition
from millstream.spark.code.module_path import modules_of_the_driver
from millstream.spark.code.shipping import ship
from millstream.spark.worker.garbage import collecting_seldom

FORMAT: Final = "millstream"
#: The option that names the file with a plan.
PLAN: Final = "plan"


class MillstreamDataSource(spark.DataSource):
    """Stores as tables: a snapshot of one in a query, its changes in a streaming query.

    Attributes:
        module_path: where the modules are searched that options name, besides the installed ones.
    """

    module_path: Sequence[str] = ()

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the store's rows. The first says at which position the snapshot is.

        Called once, when the DataFrame is made: this is when the position is fixed, so that each
        action on the DataFrame sees the same.
        """
        plan = taken_over(self.options[PLAN]) if PLAN in self.options else None
        with modules_of_the_driver(self.module_path):
            if plan is None:
                plan = plan_of_options(self.options)
            self._plan = ship(plan, "the plan of a DataFrame")
        self._ends = ends = ends_of(plan.config, plan.table)
        if plan.position is not None:
            self._ends = ends = checked_position(plan.position, ends, plan.table.topic)
        schema: StructType = from_arrow_schema(Rows(plan.table).schema)
        schema.fields[0].metadata = {METADATA: as_json(plan.table.topic, ends)}
        return schema

    def reader(self, schema: StructType) -> SnapshotReader:
        return SnapshotReader(self._plan, self._ends)

    def streamReader(self, schema: StructType) -> ChangesReader:  # noqa: N802
        return ChangesReader(self._plan)


def with_module_path(path: Sequence[str]) -> type[MillstreamDataSource]:
    """The data source with a path of modules, in a form that takes it along to where Spark plans.

    Spark pickles the class: this one, which no module has, by value.
    """

    class WithModulePath(MillstreamDataSource):
        module_path = tuple(path)

    return WithModulePath


class Stretch(spark.InputPartition):
    """A part of one partition of the changelog.

    Args:
        partition: its number.
        begin: the first offset; None for the first that there is.
        end: the offset behind the last record.
    """

    def __init__(self, partition: int, begin: int | None, end: int) -> None:
        super().__init__(partition)
        self.partition = partition
        self.begin = begin
        self.end = end


class SnapshotReader(spark.DataSourceReader):
    """Reads what a store shows at a position.

    Args:
        plan: pickled, as tasks may not have the modules of its serdes.
        ends: the position.
    """

    def __init__(self, plan: bytes, ends: Offsets) -> None:
        self._plan = plan
        self._ends = ends
        self._wanted = Wanted()

    def pushFilters(self, filters: list[spark.Filter]) -> Iterable[spark.Filter]:  # noqa: N802
        """Take what filters say of keys and windows; Spark looks at each row once more."""
        self._wanted = wanted_by(filters, _unpickled(self._plan).table)
        return filters

    def partitions(self) -> list[spark.InputPartition]:
        plan = _unpickled(self._plan)
        numbers = self._wanted.partitions(len(self._ends), is_partitioned=plan.is_partitioned)
        return [Stretch(number, None, self._ends[number]) for number in numbers]

    def read(self, partition: spark.InputPartition) -> Iterator[Any]:
        # Where no partition is left, Spark asks for one without a number.
        if not isinstance(partition, Stretch):
            return
        plan = _unpickled(self._plan)
        rows = Rows(plan.table)
        content = Content(
            plan.table,
            self._wanted,
            plan.memory_bytes,
            as_of_ms=plan.as_of_ms,
            history=plan.history,
        )
        with collecting_seldom(), closing(content):
            for columns in _records(plan, partition):
                content.add(columns)
            for table in content.tables():
                yield from rows.batches(table, partition.partition)


class ChangesReader(spark.DataSourceStreamReader):
    """Reads the changes of a store in the order of the changelog, a stretch of offsets at a time.

    Args:
        plan: pickled.
    """

    def __init__(self, plan: bytes) -> None:
        self._plan = plan

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        plan = _unpickled(self._plan)
        starting = plan.starting_offsets
        if starting == "earliest":
            return _as_offset(beginnings_of(plan.config, plan.table))
        if starting == "latest":
            return _as_offset(ends_of(plan.config, plan.table))
        return _as_offset(from_json(starting, plan.table.topic, "The option startingOffsets"))

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        plan = _unpickled(self._plan)
        return _as_offset(ends_of(plan.config, plan.table))

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> list[spark.InputPartition]:
        # A partition that was added since begins at its first record.
        return [
            Stretch(int(number), int(start.get(number, 0)), int(end[number]))
            for number in end
            if int(start.get(number, 0)) < int(end[number])
        ]

    def read(self, partition: spark.InputPartition) -> Iterator[Any]:
        if not isinstance(partition, Stretch):
            return
        plan = _unpickled(self._plan)
        rows = Rows(plan.table)
        with collecting_seldom():
            for columns in _records(plan, partition):
                batch = as_records(columns)
                if batch.num_rows:
                    yield from rows.batches(pa.Table.from_batches([batch]), partition.partition)


def _records(plan: ReadPlan, stretch: Stretch) -> Iterator[Any]:
    place = TopicPartition(plan.table.topic, stretch.partition)
    return read_records(plan.config, place, stretch.begin, stretch.end)


def _as_offset(offsets: Offsets) -> dict[str, Any]:
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def _unpickled(plan: bytes) -> ReadPlan:
    read: ReadPlan = pickle.loads(plan)
    return read

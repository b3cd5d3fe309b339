"""Records as rows of the lake: which columns a table has.

A stream's table has `key`, `value`, `timestamp`, `headers`, and where the record came from:
`_topic`, `_partition`, `_offset` of the record of the input topic that it was made of. A table's
has `key`, `value`, `timestamp`. The columns of partitions come after them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from millstream.operators.lake_origin import ORIGIN_HEADER
from millstream.structured.rows import HEADERS_TYPE
from millstream.topology.options.lake import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def lake_rows(table: LakeTable) -> Callable[[DataFrame], DataFrame]:
    """What becomes of a stage's records on their way to a table, as the stage's function."""

    def rows(frame: DataFrame) -> DataFrame:
        if table.upserts:
            return change_rows(frame)
        made = stream_rows(frame, table)
        # Of the others each batch is bounded where it is written.
        return bounded(made, table) if table.format == "parquet" else made

    return rows


def stream_rows(frame: DataFrame, table: LakeTable) -> DataFrame:
    """The rows of a stream's table.

    Args:
        frame: key, value, timestamp, headers, partition, offset.
        table: where they go.
    """
    from pyspark.sql import functions

    origin = functions.expr(
        f"split(CAST(try_element_at(filter(headers, h -> h.key = '{ORIGIN_HEADER}'), -1).value "
        "AS string), ' ')"
    )
    headers = f"filter(headers, h -> h.key <> '{ORIGIN_HEADER}')"
    rows = frame.select(
        _storable(frame, "key"),
        _storable(frame, "value"),
        functions.col("timestamp").cast("timestamp").alias("timestamp"),
        functions.expr(f"CAST(if(size({headers}) > 0, {headers}, null) AS {HEADERS_TYPE})").alias(
            "headers"
        ),
        origin.getItem(2).alias("_topic"),
        origin.getItem(0).cast("int").alias("_partition"),
        origin.getItem(1).cast("bigint").alias("_offset"),
    )
    return _with_partitions(rows, table)


def change_rows(frame: DataFrame) -> DataFrame:
    """A table's changes: with the place of each in the input, by which the last one is found."""
    from pyspark.sql import functions

    return frame.select(
        _storable(frame, "key"),
        _storable(frame, "value"),
        functions.col("timestamp").cast("timestamp").alias("timestamp"),
        functions.col("offset").alias("_order"),
    )


def last_changes(changes: DataFrame, table: LakeTable) -> DataFrame:
    """The last change of each key; `_deleted` where that is a tombstone.

    All changes of a key are in one partition of the input, so that their offsets have an order.
    """
    from pyspark.sql import functions

    last = functions.max_by(functions.struct("value", "timestamp"), functions.col("_order"))
    rows = (
        changes.groupBy("key").agg(last.alias("last")).select("key", "last.value", "last.timestamp")
    )
    placed = _with_partitions(rows, table)
    return placed.withColumn("_deleted", functions.col("value").isNull())


def bounded(rows: DataFrame, table: LakeTable) -> DataFrame:
    """Rows in so few tasks that a batch writes no more files than it may."""
    names = [column.name for column in table.partition_by]
    if not names:
        return rows.coalesce(table.files_per_batch)
    if table.files_per_batch == 1:
        # All rows of one partition of the table come to one task.
        return rows.repartition(max(1, rows.sparkSession.sparkContext.defaultParallelism), *names)
    return rows.coalesce(table.files_per_batch)


def _with_partitions(rows: DataFrame, table: LakeTable) -> DataFrame:
    from pyspark.sql import functions

    for column in table.partition_by:
        if column.name != column.expression:
            rows = rows.withColumn(column.name, functions.expr(column.expression))
    return rows


def _storable(frame: DataFrame, name: str) -> Any:
    """A column that files can have: nothing is bytes that are never there."""
    from pyspark.sql import functions
    from pyspark.sql.types import NullType

    column = functions.col(name)
    void = isinstance(frame.schema[name].dataType, NullType)
    return (column.cast("binary") if void else column).alias(name)

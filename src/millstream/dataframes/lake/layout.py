"""Converts records to rows of lake tables, and defines the columns.

The lake table of a stream has the columns `key`, `value`, `timestamp` and `headers`, followed by
`_topic`, `_partition` and `_offset` of the input record from which the row was derived. The lake
table of a KTable has the columns `key`, `value` and `timestamp`. Partition columns are last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.dataframes.row_conversion import HEADERS_TYPE
from millstream.errors import SparkError
from millstream.operators.origin_header import ORIGIN_HEADER
from millstream.topology.options.lake import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: Spark's local property with the query's ID, which is constant for a checkpoint.
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class LakeBatch:
    """Identifies rows that are written atomically.

    A retried batch has the same rows and the same number. The number and the query's ID, which
    changes with a new checkpoint, determine whether the table already contains the batch.
    """

    table: LakeTable
    #: The name of the writing stage, unique among the writers of the table.
    stage: str
    query_id: str
    number: int


def batch_of(rows: DataFrame, number: int, table: LakeTable, stage: str) -> LakeBatch:
    """Identify the batch of the current `foreachBatch` call.

    Raises a `SparkError` outside such a call.
    """
    session: SparkSession = rows.sparkSession
    query_id = session.sparkContext.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise SparkError("Spark provides no query ID for the batch.")
    return LakeBatch(table, stage, query_id, number)


def lake_rows(table: LakeTable) -> Callable[[DataFrame], DataFrame]:
    """Return the stage function that converts records to rows of a table."""

    def rows(frame: DataFrame) -> DataFrame:
        if table.upserts:
            return change_rows(frame)
        converted = stream_rows(frame, table)
        # For other formats, the number of files is limited when a batch is written.
        return limit_files(converted, table) if table.format == "parquet" else converted

    return rows


def stream_rows(frame: DataFrame, table: LakeTable) -> DataFrame:
    """Convert the records of a stream to rows.

    The frame has the columns key, value, timestamp, headers, partition and offset.
    """
    from pyspark.sql import functions

    origin = functions.expr(
        f"split(CAST(try_element_at(filter(headers, h -> h.key = '{ORIGIN_HEADER}'), -1).value "
        "AS string), ' ')"
    )
    headers = f"filter(headers, h -> h.key <> '{ORIGIN_HEADER}')"
    rows = frame.select(
        _storable_column(frame, "key"),
        _storable_column(frame, "value"),
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
    """Convert the changes of a KTable to rows.

    The rows contain the input offset, which determines the last change of each key.
    """
    from pyspark.sql import functions

    return frame.select(
        _storable_column(frame, "key"),
        _storable_column(frame, "value"),
        functions.col("timestamp").cast("timestamp").alias("timestamp"),
        functions.col("offset").alias("_order"),
    )


def last_changes(changes: DataFrame, table: LakeTable) -> DataFrame:
    """Return the last change of each key, with `_deleted` set for tombstones.

    All changes of a key are in one input partition, so their offsets determine their order.
    """
    from pyspark.sql import functions

    last = functions.max_by(functions.struct("value", "timestamp"), functions.col("_order"))
    grouped = changes.groupBy("key").agg(last.alias("last"))
    rows = grouped.select("key", "last.value", "last.timestamp")
    placed = _with_partitions(rows, table)
    return placed.withColumn("_deleted", functions.col("value").isNull())


def limit_files(rows: DataFrame, table: LakeTable) -> DataFrame:
    """Repartition rows to limit the files that a batch writes per partition.

    The limit is `files_per_batch`.
    """
    names = [column.name for column in table.partition_by]
    if names and table.files_per_batch == 1:
        # This way, all rows of one table partition are in the same task.
        return rows.repartition(max(1, rows.sparkSession.sparkContext.defaultParallelism), *names)
    return rows.coalesce(table.files_per_batch)


def _with_partitions(rows: DataFrame, table: LakeTable) -> DataFrame:
    from pyspark.sql import functions

    for column in table.partition_by:
        if column.name != column.expression:
            rows = rows.withColumn(column.name, functions.expr(column.expression))
    return rows


def _storable_column(frame: DataFrame, name: str) -> Any:
    """Return a column with a type that files support; a void column becomes binary."""
    from pyspark.sql import functions
    from pyspark.sql.types import NullType

    column = functions.col(name)
    void = isinstance(frame.schema[name].dataType, NullType)
    return (column.cast("binary") if void else column).alias(name)

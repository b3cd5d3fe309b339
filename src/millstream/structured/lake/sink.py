"""Starts the query that writes a table of the lake."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from millstream.spark.sessions.connectors import require
from millstream.structured.lake import delta, iceberg
from millstream.structured.lake.batch import batch_of
from millstream.topology.options.history import LakeHistory
from millstream.topology.options.lake import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_CONNECTORS: Final = ("delta", "iceberg")


class LakeSink:
    """Where the rows of a stage go.

    Args:
        table: which table.
        stage: which stage writes it, by a name that no other has that writes into the table.
    """

    def __init__(self, table: LakeTable, stage: str) -> None:
        self.description = table.description
        self._table = table
        self._stage = stage

    def start(self, frame: DataFrame, writer: DataStreamWriter) -> StreamingQuery:
        """Start the query.

        Parquet is Structured Streaming's own sink, whose log of files (`_spark_metadata`) has each
        batch once; the others get batch by batch.

        Raises:
            SparkError: the session lacks the format.
        """
        require(frame.sparkSession, connectors_of([self._table]))
        if self._table.format == "parquet":
            names = [column.name for column in self._table.partition_by]
            return writer.partitionBy(*names).format("parquet").start(self._table.path)
        return writer.foreachBatch(partial(write_batch, self._table, self._stage)).start()


def write_batch(table: LakeTable, stage: str, rows: DataFrame, number: int) -> None:
    """Write one batch, unless the table has it already; called by Spark.

    Args:
        table: where it goes.
        stage: which stage writes it.
        rows: as `lake_rows` gives them.
        number: of the batch.
    """
    batch = batch_of(rows, number, table, stage)
    room = delta if table.format == "delta" else iceberg
    if table.upserts:
        room.upsert(rows, batch)
    else:
        room.append(rows, batch)


def connectors_of(tables: Iterable[LakeTable | LakeHistory]) -> list[str]:
    """The connectors that tables need, each once."""
    formats = {table.format for table in tables}
    return [name for name in _CONNECTORS if name in formats]

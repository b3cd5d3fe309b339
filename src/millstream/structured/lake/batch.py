"""One micro-batch on its way into a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import SparkError
from millstream.topology.options.lake import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Where Spark tells which query a batch belongs to: as long as its checkpoint is there the same.
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are written together, or not at all.

    Spark gives a batch the same rows and the same number whenever it is tried again. Together with
    the query's id, which a new checkpoint gets anew, the number says whether it is in the table.

    Args:
        table: where it goes.
        stage: which stage writes it, by a name that no other has that writes into the table.
        query_id: of the query.
        number: its place among the query's batches.
    """

    table: LakeTable
    stage: str
    query_id: str
    number: int


def batch_of(rows: DataFrame, number: int, table: LakeTable, stage: str) -> Batch:
    """The batch that `foreachBatch` was given.

    Raises:
        SparkError: it was called from elsewhere.
    """
    session: SparkSession = rows.sparkSession
    query_id = session.sparkContext.getLocalProperty(_QUERY_ID)
    if not query_id:
        raise SparkError("Spark does not tell which query a batch belongs to.")
    return Batch(table, stage, query_id, number)

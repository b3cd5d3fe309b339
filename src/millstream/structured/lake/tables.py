"""The rows of a table of the lake, whatever its format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.spark.sessions.connectors import require
from millstream.structured.lake.iceberg_reader import read_iceberg
from millstream.topology.options.lake import LakeFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_table(spark: SparkSession, path: str, format: LakeFormat) -> DataFrame:
    """The rows of a table of the lake.

    Args:
        spark: a session that has the format.
        path: the folder of the table.
        format: how it is written down.

    Raises:
        SparkError: the session lacks the format, or there is no such table.

    Example:
        >>> clicks = read_table(spark, "/lake/clicks", "delta")  # doctest: +SKIP
        >>> clicks.groupBy("key").count().show()  # doctest: +SKIP
    """
    if format == "iceberg":
        return read_iceberg(spark, path)
    if format == "delta":
        require(spark, ["delta"])
    return spark.read.format(format).load(path)

"""Stores as DataFrames, of serdes and settings that are at hand as objects."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from millstream.errors import ConfigError, SparkError
from millstream.lake.data_source import FORMAT, PLAN, with_module_path
from millstream.lake.plan import ReadPlan, handed_over
from millstream.lake.position import METADATA
from millstream.spark.code.module_path import module_path
from millstream.spark.sessions.session import use_this_python
from millstream.spark.sessions.spark_connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make a session know the format `millstream`, and let it hand filters to it.

    Spark plans queries in processes of Python beside the driver, which search the modules of
    serdes that options name where this process searches them now. Call it again after the path
    of modules has changed; otherwise further calls do nothing more. The session gets
    `spark.sql.python.filterPushdown.enabled=true`, without which Spark refuses data sources of
    Python that take filters.

    Args:
        spark: the session.

    Raises:
        SparkError: it is one of Spark Connect.

    Example:
        >>> register(spark)  # doctest: +SKIP
        >>> spark.read.format("millstream").options(store="counts").load()  # doctest: +SKIP
    """
    if is_connect(spark):
        raise SparkError(
            "The session is one of Spark Connect, whose server plans queries elsewhere and cannot "
            "be handed settings unseen. Give a classic SparkSession (spark.master instead of "
            "spark.remote)."
        )
    # Spark keeps the Python of a data source from when it is registered.
    use_this_python(spark)
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(with_module_path(module_path()))


def load(spark: SparkSession, plan: ReadPlan, *, stream: bool = False) -> DataFrame:
    """The DataFrame of a plan: a snapshot, or a stream of changes."""
    register(spark)
    reader = spark.readStream if stream else spark.read
    with handed_over(plan) as path:
        frame: DataFrame = reader.format(FORMAT).option(PLAN, path).load()
    if not stream:
        logger.info("Store %s is read at position %s", plan.table.store, _position_text(frame))
    return frame


def position_of(frame: DataFrame) -> str:
    """At which position a snapshot was taken: the offset behind the last record, by partition.

    Given as the option `position` (or `position=`), it makes the same snapshot again, for as long
    as the changelog has not been compacted beyond it.

    Args:
        frame: of `spark.read.format("millstream")`, `read_store` or `streams.dataframe`, or one
            that still has its first column under its name.

    Raises:
        ConfigError: it has no position.

    Example:
        >>> position_of(streams.dataframe("counts"))  # doctest: +SKIP
        '{"shop-counts-changelog":{"0":41,"1":7}}'
    """
    text = _position_text(frame)
    if text is None:
        raise ConfigError(
            "The DataFrame has no position: it is no snapshot of a store, or its column 'key' was "
            "left out or computed anew. Ask the DataFrame that was loaded."
        )
    return text


def _position_text(frame: DataFrame) -> str | None:
    for field in frame.schema.fields:
        if METADATA in (field.metadata or {}):
            return str(field.metadata[METADATA])
    return None

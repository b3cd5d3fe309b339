"""Reads stores of any application as DataFrames, and registers the data source."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from millstream.config.streams_config import StreamsConfig
from millstream.durations import milliseconds
from millstream.errors import ConfigError, SparkError
from millstream.lake.changelogs import METADATA
from millstream.lake.data_source import FORMAT, PLAN, with_module_path
from millstream.lake.options import time_ms_of
from millstream.lake.owners import query_owners
from millstream.lake.store_table import (
    DEFAULT_MEMORY_BYTES,
    SHAPES,
    ReadPlan,
    StoreTable,
    StoreTimes,
    check_is_logged,
    lookback_of,
    plan_file,
    table_of,
)
from millstream.query.state_queries import StateQueries
from millstream.serdes import Serde
from millstream.spark.code.user_modules import module_path
from millstream.spark.sessions.connectors import session_settings
from millstream.spark.sessions.session import is_connect, use_driver_python
from millstream.state.builders.versioned_builders import default_segment_ms
from millstream.state.queries.codec import StoreShape
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger(__name__)

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Register the data source `millstream` in a session, with filter pushdown.

    Spark plans queries in separate Python processes on the driver's machine. These processes import
    the serdes in the options from this process's current `sys.path`. If `sys.path` changes, call
    this function again; otherwise, more calls have no effect. The function also sets
    `spark.sql.python.filterPushdown.enabled=true`, without which Spark rejects Python data sources
    with filter pushdown.

    Raises:
        SparkError: the session is a Spark Connect session.

    Example:
        >>> register(spark)  # doctest: +SKIP
        >>> spark.read.format("millstream").options(store="counts").load()  # doctest: +SKIP
    """
    if is_connect(spark):
        raise SparkError(
            "The session is a Spark Connect session. Its server plans queries on another machine, "
            "to which settings cannot be passed confidentially. Use a classic SparkSession "
            "(spark.master instead of spark.remote)."
        )
    # Spark stores the path of the Python executable when the data source is registered.
    use_driver_python(spark)
    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(with_module_path(module_path()))


def load(spark: SparkSession, plan: ReadPlan, *, stream: bool = False) -> DataFrame:
    register(spark)
    reader = spark.readStream if stream else spark.read
    with plan_file(plan) as path:
        frame: DataFrame = reader.format(FORMAT).option(PLAN, path).load()
    if not stream:
        logger.info("Reading store %s at position %s", plan.table.store, _position_text(frame))
    return frame


def position_of(frame: DataFrame) -> str:
    """Return the position of a snapshot: the end offset of each partition.

    The option `position` (or the argument `position=`) reproduces the snapshot at a position,
    unless records after this position have already been compacted with earlier ones.

    Args:
        frame: a DataFrame from `spark.read.format("millstream")`, `read_store` or
            `streams.dataframe`, or a DataFrame derived from it that still has the first column
            under its original name.

    Raises:
        ConfigError: the DataFrame has no position.

    Example:
        >>> position_of(streams.dataframe("counts"))  # doctest: +SKIP
        '{"shop-counts-changelog":{"0":41,"1":7}}'
    """
    text = _position_text(frame)
    if text is None:
        raise ConfigError(
            "The DataFrame has no position: it is not a snapshot of a store, or its column 'key' "
            "was dropped or recomputed. Pass the DataFrame as it was loaded."
        )
    return text


def _position_text(frame: DataFrame) -> str | None:
    for field in frame.schema.fields:
        if METADATA in (field.metadata or {}):
            return str(field.metadata[METADATA])
    return None


def spark_settings(*names: str) -> dict[str, str]:
    """Return the settings for a Spark session with connectors or table formats.

    The jars are fetched once, as are those of the embedded broker. A session that Millstream starts
    already has the connectors that its application needs.

    Args:
        names: `"delta"`, `"iceberg"`, `"kafka"`.

    Raises:
        SparkError: a connector is unknown or does not support this version of Spark, or its jars
            cannot be fetched.

    Example:
        >>> builder = SparkSession.builder.master("local[4]")  # doctest: +SKIP
        >>> for name, value in spark_settings("delta").items():  # doctest: +SKIP
        ...     builder = builder.config(name, value)
    """
    return session_settings(names)


def read_store(
    spark: SparkSession,
    config: StreamsConfig,
    store: str,
    *,
    key: Serde[Any],
    value: Serde[Any],
    kind: StoreShape = "key-value",
    window_size: timedelta | None = None,
    retention: timedelta | None = None,
    history_retention: timedelta | None = None,
    topic: str | None = None,
    position: str | None = None,
    as_of: datetime | None = None,
    history: bool = False,
    partitioned: bool = True,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
) -> DataFrame:
    """Return a snapshot of a store from its changelog.

    The application does not need to be running. This call determines the position of the snapshot,
    which is the end offset of each partition, without open transactions.

    Args:
        config: the `application_id` and the settings for connecting to the cluster. The settings
            are not visible in the query's plan.
        kind: `key-value`, `window`, `session` or `versioned`.
        window_size: the window size of a window store.
        retention: the retention of a window or session store.
        history_retention: the history retention of a versioned store.
        topic: a topic to read instead of the store's changelog: the topic of a global table, or of
            a table that uses its source topic as its changelog.
        position: a position from `position_of`, to reproduce an earlier snapshot.
        as_of: for a versioned store, read the versions at this time instead of the latest versions.
        history: for a versioned store, read all versions, with their times.
        partitioned: whether the topic is partitioned by key with Kafka's default partitioner. If
            True, a filter on the key reads only one partition; pass False for other partitioners.
        memory_bytes: the memory limit of a task for the stored records of a partition, above which
            records are spilled to disk.

    Raises:
        ConfigError: an argument is missing or inconsistent.
        UnknownTopicError: the store has no changelog, or the application has never been started.
        BrokerUnavailableError: no broker responds.

    Example:
        >>> counts = read_store(spark, config, "counts", key=STRING, value=LONG)  # doctest: +SKIP
        >>> counts.where("key = 'ann'").show()  # doctest: +SKIP
    """
    table = _table(
        config, store, key, value, kind, window_size, retention, history_retention, topic
    )
    plan = ReadPlan(
        config,
        table,
        position=position,
        as_of_ms=None if as_of is None else time_ms_of(as_of),
        history=history,
        is_partitioned=partitioned,
        memory_bytes=memory_bytes,
    )
    return load(spark, plan)


def read_changes(
    spark: SparkSession,
    config: StreamsConfig,
    store: str,
    *,
    key: Serde[Any],
    value: Serde[Any],
    kind: StoreShape = "key-value",
    window_size: timedelta | None = None,
    topic: str | None = None,
    starting_offsets: str = "earliest",
) -> DataFrame:
    """Return a streaming DataFrame of a store's changes.

    The DataFrame has a row per changelog record. A row without a value is a deletion. The rows of a
    partition are ordered by `offset`. Records that compaction has removed from the changelog are
    not included.

    Args:
        config: the settings, as for `read_store`.
        kind: `key-value`, `window`, `session` or `versioned`.
        window_size: the window size of a window store.
        topic: a topic to read instead of the store's changelog.
        starting_offsets: `earliest`, `latest`, or a position from `position_of`. A query with a
            checkpoint continues from the checkpoint.

    Raises:
        ConfigError: an argument is missing or inconsistent.
        UnknownTopicError: the store has no changelog, or the application has never been started.

    Example:
        >>> serdes = {"key": STRING, "value": LONG}  # doctest: +SKIP
        >>> changes = read_changes(spark, config, "counts", **serdes)  # doctest: +SKIP
        >>> changes.writeStream.format("console").start()  # doctest: +SKIP
    """
    day = timedelta(days=1)
    table = _table(config, store, key, value, kind, window_size, day, day, topic)
    return load(spark, ReadPlan(config, table, starting_offsets=starting_offsets), stream=True)


def _table(
    config: StreamsConfig,
    store: str,
    key: Serde[Any],
    value: Serde[Any],
    kind: StoreShape,
    window_size: timedelta | None,
    retention: timedelta | None,
    history_retention: timedelta | None,
    topic: str | None,
) -> StoreTable:
    if kind not in SHAPES:
        raise ConfigError(f"kind is {kind!r}, but must be one of {', '.join(SHAPES)}.")
    for name, serde in (("key", key), ("value", value)):
        if not isinstance(serde, Serde):
            raise ConfigError(
                f"{name}= must be a Serde, but is {serde!r}. Use a serde from millstream.serdes, "
                "for example STRING."
            )
    times = StoreTimes()
    if kind == "window":
        times = StoreTimes(
            window_size_ms=_required_ms(store, kind, "window_size", window_size),
            lookback_ms=lookback_of(_required_ms(store, kind, "retention", retention)),
        )
    elif kind == "session":
        retention_ms = _required_ms(store, kind, "retention", retention)
        times = StoreTimes(lookback_ms=lookback_of(retention_ms))
    elif kind == "versioned":
        history_ms = _required_ms(store, kind, "history_retention", history_retention)
        times = StoreTimes(history_ms=history_ms, segment_ms=default_segment_ms(history_ms))
    topic = topic or f"{config.application_id}-{store}-changelog"
    return StoreTable(store, topic, kind, key, value, times)


def _required_ms(store: str, kind: str, name: str, given: timedelta | None) -> int:
    if given is None:
        raise ConfigError(
            f"Store {store} is a {kind} store, which requires {name}=. If you have the "
            "application's KafkaStreams object, streams.dataframe(store) sets it automatically."
        )
    return milliseconds(f"Store {store}", name, given)


_SOURCES: Final = ("changelog", "owners")


def store_dataframe(
    session: Callable[[], SparkSession],
    topology: Topology,
    config: StreamsConfig,
    store: str,
    queries: Callable[[], StateQueries],
    *,
    source: str,
    position: str | None,
    as_of: datetime | None,
    history: bool,
) -> DataFrame:
    """Return a snapshot of a store; see `KafkaStreams.dataframe`."""
    if source not in _SOURCES:
        raise ConfigError(f"source is {source!r}, but must be {' or '.join(map(repr, _SOURCES))}.")
    table = table_of(topology, config, store)
    if source == "owners":
        if position is not None or as_of is not None or history:
            raise ConfigError(
                "source='owners' reads the current content of a store: position, as_of and history "
                "require the changelog. Omit source."
            )
        is_global = store in topology.global_stores
        return query_owners(session(), table, queries(), is_global=is_global)
    check_is_logged(topology, store)
    plan = ReadPlan(
        config,
        table,
        position=position,
        as_of_ms=None if as_of is None else time_ms_of(as_of),
        history=history,
        # The topic of a global table is not necessarily partitioned by key.
        is_partitioned=store not in topology.global_stores,
    )
    return load(session(), plan)


def changes_dataframe(
    session: Callable[[], SparkSession],
    topology: Topology,
    config: StreamsConfig,
    store: str,
    starting_offsets: str,
) -> DataFrame:
    """Return a streaming DataFrame of a store's changes.

    See `KafkaStreams.changes_dataframe`.
    """
    table = table_of(topology, config, store)
    check_is_logged(topology, store)
    plan = ReadPlan(config, table, starting_offsets=starting_offsets)
    return load(session(), plan, stream=True)

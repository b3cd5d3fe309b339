"""Stores of any application as DataFrames, with serdes and settings given as objects."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from millstream.config import StreamsConfig
from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.lake.options import time_ms_of
from millstream.lake.plan import DEFAULT_MEMORY_BYTES, ReadPlan
from millstream.lake.reading import load
from millstream.lake.store_table import SHAPES, StoreTable, Times, reach_of
from millstream.serdes import Serde
from millstream.state.builders.versioned import default_segment_ms
from millstream.state.queries.codec import Shape

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_store(
    spark: SparkSession,
    config: StreamsConfig,
    store: str,
    *,
    key: Serde[Any],
    value: Serde[Any],
    kind: Shape = "key-value",
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
    """A snapshot of a store, read from its changelog. No application needs to run.

    The position is fixed by this call: the end of each partition, open transactions left out.

    Args:
        spark: where it is read.
        config: `application_id`, how the cluster is reached, and who reads. It is not shown in
            the query's plan.
        store: the store's name.
        key: the serde of its keys.
        value: the serde of its values.
        kind: `key-value`, `window`, `session` or `versioned`.
        window_size: how long the windows of a window store are.
        retention: how long a window or session store keeps what it has.
        history_retention: how far back a versioned store keeps versions.
        topic: what is read instead of the store's changelog: the topic of a global table, or of
            a table whose changelog is its input.
        position: of an earlier snapshot, as `position_of` tells it, to have that again.
        as_of: of a versioned store: the versions of that time, instead of the latest.
        history: of a versioned store: all versions that it has, with the times of each.
        partitioned: whether keys lie in the partitions where Kafka's default partitioner puts
            them; False where another one wrote the topic that reaches the store. A filter on the
            key reads one partition only where it is True.
        memory_bytes: what the last records of a partition may take in the memory of a task;
            what is beyond goes to disk.

    Raises:
        ConfigError: something is missing or does not fit together.
        UnknownTopicError: the store has no changelog, or the application has never been started.
        BrokerUnavailableError: no broker answers.

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
    kind: Shape = "key-value",
    window_size: timedelta | None = None,
    topic: str | None = None,
    starting_offsets: str = "earliest",
) -> DataFrame:
    """A streaming DataFrame of a store's changes: each record of its changelog is a row.

    A row without a value is a deletion. Within a partition rows come in the order of `offset`.
    What compaction has taken out of the changelog does not come any more.

    Args:
        spark: where it is read.
        config: as for `read_store`.
        store: the store's name.
        key: the serde of its keys.
        value: the serde of its values.
        kind: `key-value`, `window`, `session` or `versioned`.
        window_size: how long the windows of a window store are.
        topic: what is read instead of the store's changelog.
        starting_offsets: `earliest`, `latest`, or a position as `position_of` tells it. A query
            that has a checkpoint goes on from there.

    Raises:
        ConfigError: something is missing or does not fit together.
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
    kind: Shape,
    window_size: timedelta | None,
    retention: timedelta | None,
    history_retention: timedelta | None,
    topic: str | None,
) -> StoreTable:
    if kind not in SHAPES:
        raise ConfigError(f"A store cannot be of kind {kind!r}; there are {', '.join(SHAPES)}.")
    for name, serde in (("key", key), ("value", value)):
        if not isinstance(serde, Serde):
            raise ConfigError(
                f"{name}= needs a Serde, but got {serde!r}. Take one from millstream.serdes, for "
                "example STRING."
            )
    times = Times()
    if kind == "window":
        times = Times(
            window_size_ms=_needed_ms(store, kind, "window_size", window_size),
            reach_ms=reach_of(_needed_ms(store, kind, "retention", retention)),
        )
    elif kind == "session":
        times = Times(reach_ms=reach_of(_needed_ms(store, kind, "retention", retention)))
    elif kind == "versioned":
        history_ms = _needed_ms(store, kind, "history_retention", history_retention)
        times = Times(history_ms=history_ms, segment_ms=default_segment_ms(history_ms))
    topic = topic or f"{config.application_id}-{store}-changelog"
    return StoreTable(store, topic, kind, key, value, times)


def _needed_ms(store: str, kind: str, name: str, given: timedelta | None) -> int:
    if given is None:
        raise ConfigError(
            f"Store {store} is a {kind} store: give {name}=, which decides what it shows. Where "
            "the topology is at hand, streams.dataframe() knows it."
        )
    return milliseconds(f"Store {store}", name, given)

"""History from a table of the lake before a topic: the same topology over both.

The table's rows become records of a topic of their own, beside the one that goes on from them. Both
are placed alike, so that a task reads the same partition of the two, and of several partitions a
task always takes the record with the smallest timestamp first (KIP-353, KIP-695).
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.clock import Deadline, SystemClock
from millstream.config import StreamsConfig
from millstream.config_checks import transaction_timeout_ms
from millstream.errors import ConfigError, StreamsError, UnknownTopicError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.operators.arrow import imported_pyarrow
from millstream.record import TopicPartition
from millstream.serdes import Serde
from millstream.spark.sessions.connectors import require
from millstream.structured.arrow_map import map_in_arrow
from millstream.structured.lake.iceberg_reader import read_iceberg
from millstream.structured.rows import WIRE_SCHEMA, Encode, Serdes
from millstream.structured.sending import SENT_SCHEMA, Batch, SendOnce, Target
from millstream.topology.options.lake import STREAM_COLUMNS, LakeFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("millstream")

#: How many records of each partition are one transaction at most.
_CHUNK: Final = 100_000
_TIMEOUT_MS: Final = 60_000
_LEAST_TRANSACTION_MS: Final = 60_000
_LOOK_MS: Final = 200
_NEVER: Final = {"retention.ms": "-1", "cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True)
class Backfilled:
    """What a backfill has done.

    Args:
        records: how many rows became records; 0 if all was done before.
        offsets: from where on the application reads the topic, by partition.

    Example:
        >>> done = Backfilled(records=1_200, offsets={0: 700, 1: 500})
        >>> f"{done.records} rows; partition 0 goes on at {done.offsets[0]}"
        '1200 rows; partition 0 goes on at 700'
    """

    records: int
    offsets: Mapping[int, int]


def backfill(
    spark: SparkSession,
    path: str,
    *,
    format: LakeFormat,
    topic: str,
    into: str,
    key: Serde[Any],
    value: Serde[Any],
    config: StreamsConfig,
) -> Backfilled:
    """Put the rows of a table before a topic, for an application that has not started yet.

    The table must have been written by `KStream.to_lake` from the records of that very topic: none
    left out, changed, or put under another key. Its rows become records of the topic `into`, in the
    order of their timestamps within each partition, and the application's group gets the offsets
    of `topic` that come after the last rows. The application reads both with
    `builder.stream([into, topic])`.

    Whoever calls it again after a crash gets the same: as long as the group has no offsets, `into`
    is made anew; once it has, nothing is done any more. So a program may call it at each start.

    Args:
        spark: a session that has the format.
        path: the folder of the table.
        format: how it is written down.
        topic: what the application reads after the table.
        into: the topic for the history. It is deleted and made anew. Its records are kept for ever:
            delete it once the application has read it.
        key: the serde of keys.
        value: the serde of values.
        config: the application's settings.

    Raises:
        ConfigError: the table has no columns that say where its rows came from.
        UnknownTopicError: the topic does not exist.
        StreamsError: the application has already begun to read the topic without the history, runs
            at present, or the topic has lost records that the table does not have.

    Example:
        >>> backfill(  # doctest: +SKIP
        ...     spark, "/lake/clicks", format="delta", topic="clicks", into="clicks-history",
        ...     key=STRING, value=JSON, config=config,
        ... )
    """
    settings = librdkafka_settings(config, "admin", f"{config.application_id}-backfill")
    admin = GroupAdmin(settings, replication_factor=config.replication_factor)
    try:
        places = _places(admin, topic)
        committed = admin.committed_offsets(config.application_id, places)
        if any(offset is not None for offset in committed.values()):
            return _done_before(admin, committed, topic, into, config)
        rows = _read(spark, path, format, topic)
        offsets = _matching(rows, topic, admin.beginning_offsets(places), path)
        _make_anew(admin, into, len(places))
        records = _write(rows, offsets, into, key, value, config)
        # Last: whoever finds these knows that the history is whole.
        admin.commit(config.application_id, offsets, _TIMEOUT_MS)
    finally:
        admin.close()
    return Backfilled(records, {place.partition: offset for place, offset in offsets.items()})


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


def _places(admin: GroupAdmin, topic: str) -> list[TopicPartition]:
    counts = admin.partition_counts([topic])
    if topic not in counts:
        raise UnknownTopicError(f"The topic {topic!r} does not exist.")
    return [TopicPartition(topic, number) for number in range(counts[topic])]


def _done_before(
    admin: GroupAdmin,
    committed: Mapping[TopicPartition, int | None],
    topic: str,
    into: str,
    config: StreamsConfig,
) -> Backfilled:
    if into not in admin.partition_counts([into]):
        raise StreamsError(
            f"The application {config.application_id!r} has already begun to read {topic!r}, and "
            f"there is no {into!r} before it. Reset it (`millstream reset`), or leave the backfill "
            "out."
        )
    known = {place.partition: offset for place, offset in committed.items() if offset is not None}
    return Backfilled(0, known)


def _read(spark: SparkSession, path: str, format: LakeFormat, topic: str) -> DataFrame:
    rows = read_table(spark, path, format)
    missing = [name for name in STREAM_COLUMNS if name not in rows.columns]
    if missing:
        raise ConfigError(
            f"The table {path} has no columns {', '.join(missing)}, which say where its rows came "
            "from: only what KStream.to_lake has written can come before a topic."
        )
    return rows.where(rows["_topic"] == topic).select(*STREAM_COLUMNS)


def _matching(
    rows: DataFrame, topic: str, beginnings: Mapping[TopicPartition, int], path: str
) -> dict[TopicPartition, int]:
    """Where the topic goes on: after the last row of each partition."""
    from pyspark.sql import functions

    last = rows.groupBy("_partition").agg(functions.max("_offset").alias("last")).collect()
    ends = {TopicPartition(topic, row["_partition"]): row["last"] + 1 for row in last}
    unknown = sorted(place.partition for place in ends.keys() - beginnings.keys())
    if unknown:
        raise StreamsError(
            f"The table {path} has rows of the partitions {unknown} of {topic!r}, which has "
            f"{len(beginnings)} partitions: it is not the topic that the rows came from."
        )
    for place, beginning in beginnings.items():
        end = ends.get(place, 0)
        if end < beginning:
            raise StreamsError(
                f"The records {end} to {beginning - 1} of {topic}, partition {place.partition}, "
                f"are neither in the table {path} nor in the topic any more."
            )
    return {place: ends.get(place, beginning) for place, beginning in beginnings.items()}


def _make_anew(admin: GroupAdmin, topic: str, partitions: int) -> None:
    deadline = Deadline(SystemClock(), _TIMEOUT_MS)
    if topic in admin.partition_counts([topic]):
        admin.delete_topics([topic])
        while topic in admin.partition_counts([topic]) and not deadline.passed:
            SystemClock().sleep_ms(_LOOK_MS)
    admin.create_topics([(topic, partitions, _NEVER)], deadline.remaining_ms(_TIMEOUT_MS))


def _write(
    rows: DataFrame,
    offsets: Mapping[TopicPartition, int],
    into: str,
    key: Serde[Any],
    value: Serde[Any],
    config: StreamsConfig,
) -> int:
    """Write the rows that come before the offsets, in steps of a transaction for each partition."""
    from pyspark.sql import Window, functions

    session, partitions = rows.sparkSession, len(offsets)
    ends = session.createDataFrame(
        [(place.partition, offset) for place, offset in offsets.items()],
        "_partition int, _end bigint",
    )
    order = Window.partitionBy("_partition").orderBy("timestamp", "_offset")
    placed = (
        # Rows that have come since then are records of the topic.
        rows.join(functions.broadcast(ends), "_partition")
        .where("_offset < _end")
        # A task for each partition: Spark's own number starts as many Python processes.
        .repartition(partitions, "_partition")
        .withColumn("_row", functions.row_number().over(order) - 1)
    )
    encode = EncodePlaced(Encode(Serdes(into, into, key, value), partitions))
    shown = placed.selectExpr(
        "key", "value", "unix_millis(timestamp) AS timestamp_ms", "headers", "_partition", "_row"
    )
    # What is read once is what is counted and written: the table goes on growing.
    wire = map_in_arrow(shown, encode.run, WIRE_SCHEMA).persist()
    try:
        found = wire.agg(functions.max("row").alias("last"), functions.count("*").alias("all"))
        told = found.collect()[0]
        batches = 0 if told["last"] is None else told["last"] // _CHUNK + 1
        run = uuid.uuid4().hex
        for number in range(batches):
            chunk = wire.where(functions.floor(functions.col("row") / _CHUNK) == number)
            ordered = chunk.repartitionById(partitions, "partition").sortWithinPartitions(
                "partition", "row"
            )
            batch = Batch(number, run, f"{into}-backfill", into)
            send = SendOnce(_target(into, config), batch)
            map_in_arrow(ordered, send.run, SENT_SCHEMA).collect()
            logger.info("%s: step %d of %d is written", into, number + 1, batches)
        return int(told["all"])
    finally:
        wire.unpersist()


class EncodePlaced:
    """Encodes rows and leaves each in the partition and at the place that it has.

    Args:
        encode: makes the bytes.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode

    def run(self, batches: Any) -> Any:
        """Record batches of pyarrow to such of `WIRE_SCHEMA`; for `mapInArrow`."""
        arrow = imported_pyarrow("A backfill")
        for keys, values, batch in self._encode.records(batches):
            yield arrow.RecordBatch.from_arrays(
                [
                    batch.column("_partition").cast(arrow.int32()),
                    arrow.array([0] * len(values), arrow.int32()),
                    batch.column("_row").cast(arrow.int64()),
                    arrow.array(keys, arrow.binary()),
                    arrow.array(values, arrow.binary()),
                    batch.column("timestamp_ms"),
                    batch.column("headers"),
                ],
                names=["partition", "task", "row", "key", "value", "timestamp_ms", "headers"],
            )


def _target(topic: str, config: StreamsConfig) -> Target:
    settings = librdkafka_settings(config, "producer", f"{config.application_id}-backfill")
    settings["transaction.timeout.ms"] = max(transaction_timeout_ms(config), _LEAST_TRANSACTION_MS)
    return Target(topic, settings, max(_TIMEOUT_MS, config.task_timeout_ms))

"""Makes the rows of a lake table the history of a topic.

One topology processes the history and the topic. The rows become records of a separate topic. Both
topics are partitioned in the same way, so that a task reads the same partition of both topics. A
task always processes the record with the smallest timestamp first (KIP-353, KIP-695).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.clock import Deadline, SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.lake.history_rows import (
    TIMEOUT_MS,
    HistoryEncoder,
    number_rows,
    resume_offsets,
    rows_before,
    write_in_steps,
)
from millstream.dataframes.lake.lake_tables import read_table
from millstream.dataframes.row_conversion import StageSerdes
from millstream.errors import ConfigError, StreamsError, UnknownTopicError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TopicPartition
from millstream.serdes import Serde
from millstream.spark.sessions.session import use_driver_python
from millstream.topology.options.lake import STREAM_COLUMNS, LakeFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_POLL_INTERVAL_MS: Final = 200
_KEEP_FOREVER: Final = {"retention.ms": "-1", "cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True)
class Backfilled:
    """The result of a backfill.

    Args:
        records: the number of rows that became records; 0 if an earlier call did the backfill.
        offsets: the offsets at which the application starts to read the topic, by partition.

    Example:
        >>> done = Backfilled(records=1_200, offsets={0: 700, 1: 500})
        >>> f"{done.records} rows; partition 0 continues at {done.offsets[0]}"
        '1200 rows; partition 0 continues at 700'
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
    """Make the rows of a table the history of a topic.

    The history is for an application that has not started yet. The table must have been written by
    `KStream.to_lake` from all records of the topic, without changes to keys or values. Its rows
    become records of the topic `into`, ordered by timestamp within each partition. For the
    application's group, the function commits the offsets of `topic` after the last rows. The
    application reads both topics with `builder.stream([into, topic])`.

    The function may be called at each start of a program and after a crash. If the group has no
    committed offsets, the function recreates `into`; otherwise, it does nothing.

    Args:
        spark: a session that supports the format.
        path: the folder of the table.
        topic: the topic that the application reads after the table.
        into: the topic for the history, which is deleted and recreated. Its records are kept
            forever, so delete the topic once the application has read it.
        config: the application's settings.

    Raises:
        ConfigError: the table lacks the columns with the origin of its rows.
        UnknownTopicError: the topic does not exist.
        StreamsError: the application is running or has already read the topic without the history;
            or the topic has deleted records that are not in the table.

    Example:
        >>> backfill(  # doctest: +SKIP
        ...     spark, "/lake/clicks", format="delta", topic="clicks", into="clicks-history",
        ...     key=STRING, value=JSON, config=config,
        ... )
    """
    use_driver_python(spark)
    settings = librdkafka_settings(config, "admin", f"{config.application_id}-backfill")
    admin = GroupAdmin(settings, replication_factor=config.replication_factor)
    try:
        topic_partitions = _partitions(admin, topic)
        committed = admin.committed_offsets(config.application_id, topic_partitions)
        if any(offset is not None for offset in committed.values()):
            return _previous_result(admin, committed, topic, into, config)
        rows = _read(spark, path, format, topic)
        offsets = resume_offsets(
            rows,
            topic,
            admin.beginning_offsets(topic_partitions),
            admin.end_offsets(topic_partitions),
            path,
        )
        _recreate_topic(admin, into, len(topic_partitions))
        records = _write(rows, offsets, into, key, value, config)
        # The last step, because these offsets mark the history as complete.
        admin.commit(config.application_id, offsets, TIMEOUT_MS)
    finally:
        admin.close()
    return Backfilled(records, {tp.partition: offset for tp, offset in offsets.items()})


def _partitions(admin: GroupAdmin, topic: str) -> list[TopicPartition]:
    counts = admin.partition_counts([topic])
    if topic not in counts:
        raise UnknownTopicError(f"The topic {topic!r} does not exist.")
    return [TopicPartition(topic, number) for number in range(counts[topic])]


def _previous_result(
    admin: GroupAdmin,
    committed: Mapping[TopicPartition, int | None],
    topic: str,
    into: str,
    config: StreamsConfig,
) -> Backfilled:
    if into not in admin.partition_counts([into]):
        raise StreamsError(
            f"The application {config.application_id!r} has already read {topic!r}, but the topic "
            f"{into!r} does not exist. Reset the application (`millstream reset`), or omit the "
            "backfill."
        )
    offsets = {tp.partition: offset for tp, offset in committed.items() if offset is not None}
    return Backfilled(0, offsets)


def _read(spark: SparkSession, path: str, format: LakeFormat, topic: str) -> DataFrame:
    rows = read_table(spark, path, format)
    missing = [name for name in STREAM_COLUMNS if name not in rows.columns]
    if missing:
        raise ConfigError(
            f"The table {path} lacks the columns {', '.join(missing)}, which contain the origin of "
            "its rows. A backfill requires a table that KStream.to_lake has written."
        )
    return rows.where(rows["_topic"] == topic).select(*STREAM_COLUMNS)


def _recreate_topic(admin: GroupAdmin, topic: str, partitions: int) -> None:
    deadline = Deadline(SystemClock(), TIMEOUT_MS)
    if topic in admin.partition_counts([topic]):
        admin.delete_topics([topic])
        while topic in admin.partition_counts([topic]) and not deadline.passed:
            SystemClock().sleep_ms(_POLL_INTERVAL_MS)
    admin.create_topics([(topic, partitions, _KEEP_FOREVER)], deadline.remaining_ms(TIMEOUT_MS))


def _write(
    rows: DataFrame,
    offsets: Mapping[TopicPartition, int],
    into: str,
    key: Serde[Any],
    value: Serde[Any],
    config: StreamsConfig,
) -> int:
    shown = rows_before(rows, offsets).selectExpr(
        "key", "value", "unix_millis(timestamp) AS timestamp_ms", "headers", "_partition", "_offset"
    )
    encode = HistoryEncoder(StageSerdes(into, into, key, value), len(offsets), by_key=False)
    found = number_rows(shown, into, len(offsets), encode)
    try:
        return write_in_steps(found, into, uuid.uuid4().hex, config)
    finally:
        found.release()

"""History from a table of the lake before a topic: the same topology over both.

The table's rows become records of a topic of their own, beside the one that goes on from them. Both
are placed alike, so that a task reads the same partition of the two, and of several partitions a
task always takes the record with the smallest timestamp first (KIP-353, KIP-695).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.clock import Deadline, SystemClock
from millstream.config import StreamsConfig
from millstream.errors import ConfigError, StreamsError, UnknownTopicError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition
from millstream.serdes import Serde
from millstream.spark.sessions.session import use_this_python
from millstream.structured.lake.history_rows import (
    TIMEOUT_MS,
    EncodeRows,
    matching_offsets,
    numbered,
    rows_before,
    send_in_steps,
)
from millstream.structured.lake.tables import read_table
from millstream.structured.rows import Serdes
from millstream.topology.options.lake import STREAM_COLUMNS, LakeFormat

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    use_this_python(spark)
    settings = librdkafka_settings(config, "admin", f"{config.application_id}-backfill")
    admin = GroupAdmin(settings, replication_factor=config.replication_factor)
    try:
        places = _places(admin, topic)
        committed = admin.committed_offsets(config.application_id, places)
        if any(offset is not None for offset in committed.values()):
            return _done_before(admin, committed, topic, into, config)
        rows = _read(spark, path, format, topic)
        offsets = matching_offsets(
            rows, topic, admin.beginning_offsets(places), admin.end_offsets(places), path
        )
        _make_anew(admin, into, len(places))
        records = _write(rows, offsets, into, key, value, config)
        # Last: whoever finds these knows that the history is whole.
        admin.commit(config.application_id, offsets, TIMEOUT_MS)
    finally:
        admin.close()
    return Backfilled(records, {place.partition: offset for place, offset in offsets.items()})


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


def _make_anew(admin: GroupAdmin, topic: str, partitions: int) -> None:
    deadline = Deadline(SystemClock(), TIMEOUT_MS)
    if topic in admin.partition_counts([topic]):
        admin.delete_topics([topic])
        while topic in admin.partition_counts([topic]) and not deadline.passed:
            SystemClock().sleep_ms(_LOOK_MS)
    admin.create_topics([(topic, partitions, _NEVER)], deadline.remaining_ms(TIMEOUT_MS))


def _write(
    rows: DataFrame,
    offsets: Mapping[TopicPartition, int],
    into: str,
    key: Serde[Any],
    value: Serde[Any],
    config: StreamsConfig,
) -> int:
    """Write the rows that come before the offsets."""
    shown = rows_before(rows, offsets).selectExpr(
        "key", "value", "unix_millis(timestamp) AS timestamp_ms", "headers", "_partition", "_offset"
    )
    encode = EncodeRows(Serdes(into, into, key, value), len(offsets), by_key=False)
    found = numbered(shown, into, len(offsets), encode)
    try:
        return send_in_steps(found, into, uuid.uuid4().hex, config)
    finally:
        found.release()

"""The rows of a table as records of a topic of their own: each in its partition, at its place.

The order within a partition is that of the timestamps, then of the offsets where the table has
some, then of the bytes. So rows that are read again are numbered alike.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.config import EXACTLY_ONCE_V2, StreamsConfig
from millstream.config_checks import transaction_timeout_ms
from millstream.errors import StreamsError
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.operators.arrow import imported_pyarrow
from millstream.record import TopicPartition
from millstream.structured.arrow_map import map_in_arrow
from millstream.structured.rows import WIRE_SCHEMA, Encode, Serdes
from millstream.structured.sending import SENT_SCHEMA, Batch, SendOnce, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("millstream")

#: How many records of each partition are one transaction at most.
CHUNK: Final = 100_000
TIMEOUT_MS: Final = 60_000
_LEAST_TRANSACTION_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Numbered:
    """Rows that are ready to be written, and kept by Spark until `release`.

    Args:
        wire: of `WIRE_SCHEMA`.
        partitions: how many the topic has that they go into.
        counts: how many rows each partition has, by its number; none where it has none.
    """

    wire: DataFrame
    partitions: int
    counts: Mapping[int, int]

    def release(self) -> None:
        """They are not needed any more."""
        self.wire.unpersist()


def matching_offsets(
    rows: DataFrame,
    topic: str,
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    path: str,
) -> dict[TopicPartition, int]:
    """Where a topic goes on: after the last row of each partition.

    Args:
        rows: those of the topic, with `_partition` and `_offset`.
        topic: the topic.
        beginnings: the offset of its first record, for each partition.
        ends: the offset after its last record.
        path: of the table.

    Raises:
        StreamsError: the rows are not of this topic, or it has lost records that they lack.
    """
    from pyspark.sql import functions

    last = rows.groupBy("_partition").agg(functions.max("_offset").alias("last")).collect()
    found = {TopicPartition(topic, row["_partition"]): row["last"] + 1 for row in last}
    unknown = sorted(place.partition for place in found.keys() - beginnings.keys())
    if unknown:
        raise StreamsError(
            f"The table {path} has rows of the partitions {unknown} of {topic!r}, which has "
            f"{len(beginnings)} partitions: it is not the topic that the rows came from."
        )
    for place, beginning in beginnings.items():
        end = found.get(place, 0)
        if end < beginning:
            raise StreamsError(
                f"The records {end} to {beginning - 1} of {topic}, partition {place.partition}, "
                f"are neither in the table {path} nor in the topic any more."
            )
        if end > max(beginning, ends[place]):
            raise StreamsError(
                f"The table {path} has rows up to offset {end - 1} of {topic}, partition "
                f"{place.partition}, which ends at {ends[place]}: the topic was made anew since. "
                "Its records are not those that the rows came from."
            )
    return {place: found.get(place, beginning) for place, beginning in beginnings.items()}


def rows_before(rows: DataFrame, offsets: Mapping[TopicPartition, int]) -> DataFrame:
    """The rows with lesser offsets: those that have come since then are records of the topic."""
    from pyspark.sql import functions

    ends = rows.sparkSession.createDataFrame(
        [(place.partition, offset) for place, offset in offsets.items()],
        "_partition int, _end bigint",
    )
    return rows.join(functions.broadcast(ends), "_partition").where("_offset < _end")


def numbered(shown: DataFrame, into: str, partitions: int, encode: EncodeRows) -> Numbered:
    """Encode rows, put each in its partition, and number them there.

    Args:
        shown: has `key`, `value`, `timestamp_ms`, `headers`, `_partition` and `_offset`.
        into: the topic that they go into.
        partitions: how many it has.
        encode: makes records of them.

    Raises:
        StreamsError: a row has no timestamp.
    """
    from pyspark.sql import Window, functions

    order = Window.partitionBy("partition").orderBy("timestamp_ms", "row", "key", "value")
    wire = (
        map_in_arrow(shown, encode.run, WIRE_SCHEMA)
        # A task for each partition: Spark's own number starts as many Python processes.
        .repartition(partitions, "partition")
        .withColumn("row", functions.row_number().over(order).cast("bigint") - 1)
        # What is read once is what is counted and written: a table may go on growing.
        .persist()
    )
    no_time = functions.count_if(functions.col("timestamp_ms").isNull())
    grouped = wire.groupBy("partition").agg(functions.count("*").alias("all"), no_time.alias("no"))
    told = grouped.collect()
    found = Numbered(wire, partitions, {row["partition"]: row["all"] for row in told})
    timeless = sum(row["no"] for row in told)
    if timeless:
        found.release()
        raise StreamsError(
            f"{timeless} rows for {into} have no timestamp, so that they have no place in the "
            "order of events. Give an expression that is never null."
        )
    return found


def send_in_steps(
    rows: Numbered, into: str, run: str, config: StreamsConfig, *, chunk: int = CHUNK
) -> int:
    """Write rows, in steps of a transaction for each partition. What was written before under the
    same run is not written again.

    Args:
        rows: what to write.
        into: the topic.
        run: names this writing of just these rows.
        config: the application's settings.
        chunk: how many records a transaction has at most.

    Returns:
        How many were written now.
    """
    from pyspark.sql import functions

    steps = -(-max(rows.counts.values(), default=0) // chunk)
    written = 0
    for number in range(steps):
        step = rows.wire.where(functions.floor(functions.col("row") / chunk) == number)
        ordered = step.repartitionById(rows.partitions, "partition").sortWithinPartitions(
            "partition", "row"
        )
        send = SendOnce(target_of(into, config), Batch(number, run, marks_of(into), into))
        sent = map_in_arrow(ordered, send.run, SENT_SCHEMA).collect()
        written += sum(row["records"] for row in sent)
        logger.info("%s: step %d of %d is written", into, number + 1, steps)
    return written


def marks_of(into: str) -> str:
    """The group under which the steps that are done are noted."""
    return f"{into}-backfill"


def target_of(topic: str, config: StreamsConfig) -> Target:
    """The topic, for producers of transactions."""
    # Whatever the application's own guarantee is; how often that commits is no matter here.
    in_transactions = config.replace(processing_guarantee=EXACTLY_ONCE_V2, commit_interval_ms=100)
    settings = librdkafka_settings(in_transactions, "producer", f"{config.application_id}-backfill")
    settings["transaction.timeout.ms"] = max(transaction_timeout_ms(config), _LEAST_TRANSACTION_MS)
    timeout_ms = max(TIMEOUT_MS, config.task_timeout_ms)
    return Target(topic, settings, timeout_ms, config.speedups)


class EncodeRows:
    """Encodes rows; `row` of what comes out is the `_offset` that went in.

    Args:
        serdes: of the topic that is written.
        partitions: how many that has.
        by_key: whether keys decide about the partition; otherwise `_partition` does.
    """

    def __init__(self, serdes: Serdes, partitions: int, *, by_key: bool) -> None:
        self._encode = Encode(serdes, partitions)
        self._by_key = by_key

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Record batches of pyarrow to such of `WIRE_SCHEMA`; for `mapInArrow`."""
        arrow = imported_pyarrow("A backfill")
        for keys, values, batch in self._encode.records(batches):
            places = (
                arrow.array(self._encode.places(keys, values), arrow.int32())
                if self._by_key
                else batch.column("_partition").cast(arrow.int32())
            )
            yield arrow.RecordBatch.from_arrays(
                [
                    places,
                    arrow.array([0] * len(values), arrow.int32()),
                    batch.column("_offset").cast(arrow.int64()),
                    arrow.array(keys, arrow.binary()),
                    arrow.array(values, arrow.binary()),
                    batch.column("timestamp_ms"),
                    batch.column("headers"),
                ],
                names=["partition", "task", "row", "key", "value", "timestamp_ms", "headers"],
            )

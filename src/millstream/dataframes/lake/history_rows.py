"""Reads a lake table as the history of a topology, and numbers its records.

The records are intended for a separate topic. Within a partition, records are ordered by timestamp,
then by offset if the table has offsets, and then by the bytes of keys and values. Therefore, rows
that are read again get the same numbers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from millstream.config.streams_config import EXACTLY_ONCE_V2, StreamsConfig
from millstream.dataframes.kafka_writer import (
    SENT_SCHEMA,
    ExactlyOnceWriter,
    OutputTopic,
    QueryBatch,
    output_topic,
)
from millstream.dataframes.lake.lake_tables import read_table
from millstream.dataframes.row_conversion import (
    HEADERS_TYPE,
    WIRE_SCHEMA,
    RowEncoder,
    StageSerdes,
    map_in_arrow,
)
from millstream.errors import ConfigError, SparkError, StreamsError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.operators.arrow import import_pyarrow
from millstream.record import TopicPartition
from millstream.spark.jobs import short_reason
from millstream.topology.options.lake import STREAM_COLUMNS, HistoryColumns, LakeHistory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("millstream")

#: The maximum number of records per partition in one transaction.
CHUNK: Final = 100_000
TIMEOUT_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class NumberedRows:
    """Encoded and numbered rows of `WIRE_SCHEMA`.

    Spark caches the rows until `release` is called.
    """

    wire: DataFrame
    #: The number of partitions of the target topic.
    partitions: int
    #: The number of rows by partition, without empty partitions.
    counts: Mapping[int, int]

    def release(self) -> None:
        self.wire.unpersist()


def resume_offsets(
    rows: DataFrame,
    topic: str,
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    path: str,
) -> dict[TopicPartition, int]:
    """Return the offset at which each partition continues after its last row.

    The rows have `_partition` and `_offset`. Raises a `StreamsError` if the rows are from another
    topic, if the topic has been recreated, or if it has deleted records that are not in the table.
    """
    from pyspark.sql import functions

    last = rows.groupBy("_partition").agg(functions.max("_offset").alias("last")).collect()
    found = {TopicPartition(topic, row["_partition"]): row["last"] + 1 for row in last}
    unknown = sorted(tp.partition for tp in found.keys() - beginnings.keys())
    if unknown:
        raise StreamsError(
            f"The table {path} has rows of the partitions {unknown} of {topic!r}, which only has "
            f"{len(beginnings)} partitions, so the rows must be from another topic."
        )
    for tp, beginning in beginnings.items():
        end = found.get(tp, 0)
        if end < beginning:
            raise StreamsError(
                f"The records {end} to {beginning - 1} of {topic}, partition {tp.partition}, "
                f"are neither in the table {path} nor in the topic: the topic has deleted them."
            )
        if end > max(beginning, ends[tp]):
            raise StreamsError(
                f"The table {path} has rows up to offset {end - 1} of {topic}, partition "
                f"{tp.partition}, which ends at {ends[tp]}: the topic has been recreated, "
                "and its records are not those in the table."
            )
    return {tp: found.get(tp, beginning) for tp, beginning in beginnings.items()}


def rows_before(rows: DataFrame, offsets: Mapping[TopicPartition, int]) -> DataFrame:
    """Return the rows below the offsets.

    The application reads later records from the topic.
    """
    from pyspark.sql import functions

    ends = rows.sparkSession.createDataFrame(
        [(tp.partition, offset) for tp, offset in offsets.items()], "_partition int, _end bigint"
    )
    return rows.join(functions.broadcast(ends), "_partition").where("_offset < _end")


def number_rows(
    shown: DataFrame, into: str, partitions: int, encode: HistoryEncoder
) -> NumberedRows:
    """Encode and partition rows, and number them within each partition.

    The rows have `key`, `value`, `timestamp_ms`, `headers`, `_partition` and `_offset`. Raises a
    `StreamsError` if a row has no timestamp.
    """
    from pyspark.sql import Window, functions

    order = Window.partitionBy("partition").orderBy("timestamp_ms", "row", "key", "value")
    wire = (
        map_in_arrow(shown, encode.run, WIRE_SCHEMA)
        # One task per partition: each task starts a process, and Spark's default is more tasks.
        .repartition(partitions, "partition")
        .withColumn("row", functions.row_number().over(order).cast("bigint") - 1)
        # The table is read only once, so that the counts match the written rows even if it grows.
        .persist()
    )
    no_time = functions.count_if(functions.col("timestamp_ms").isNull())
    grouped = wire.groupBy("partition").agg(functions.count("*").alias("all"), no_time.alias("no"))
    collected = grouped.collect()
    found = NumberedRows(wire, partitions, {row["partition"]: row["all"] for row in collected})
    without_time = sum(row["no"] for row in collected)
    if without_time:
        found.release()
        raise StreamsError(
            f"{without_time} rows for {into} have no timestamp, so they cannot be ordered. Use a "
            "timestamp expression that is never null."
        )
    return found


def write_in_steps(
    rows: NumberedRows, into: str, run: str, config: StreamsConfig, *, chunk: int = CHUNK
) -> int:
    """Write rows in steps, with one transaction per step and partition.

    `run` identifies these rows; steps that have already been written with the same `run` are
    skipped. `chunk` is the maximum number of records in a transaction. Returns the number of
    records that this call has written.
    """
    from pyspark.sql import functions

    steps = -(-max(rows.counts.values(), default=0) // chunk)
    written = 0
    for number in range(steps):
        step = rows.wire.where(functions.floor(functions.col("row") / chunk) == number)
        placed = step.repartitionById(rows.partitions, "partition")
        ordered = placed.sortWithinPartitions("partition", "row")
        batch = QueryBatch(number, run, steps_group(into), into)
        send = ExactlyOnceWriter(transactional_output(into, config), batch)
        sent = map_in_arrow(ordered, send.run, SENT_SCHEMA).collect()
        written += sum(row["records"] for row in sent)
        logger.info("%s: wrote step %d of %d", into, number + 1, steps)
    return written


def steps_group(into: str) -> str:
    """Return the group in which finished steps are committed."""
    return f"{into}-backfill"


def transactional_output(topic: str, config: StreamsConfig) -> OutputTopic:
    # Independent of the application's processing guarantee and commit interval.
    in_transactions = config.replace(processing_guarantee=EXACTLY_ONCE_V2, commit_interval_ms=100)
    return output_topic(topic, in_transactions, f"{config.application_id}-backfill")


class HistoryEncoder:
    """Encodes rows. The output's `row` is the input's `_offset`.

    The rows are partitioned by key, or by `_partition`.
    """

    def __init__(self, serdes: StageSerdes, partitions: int, *, by_key: bool) -> None:
        self._encode = RowEncoder(serdes, partitions)
        self._by_key = by_key

    def run(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Encode pyarrow record batches as batches of `WIRE_SCHEMA`, in `mapInArrow`."""
        arrow = import_pyarrow("A backfill")
        for keys, values, batch in self._encode.records(batches):
            target_partitions = (
                arrow.array(self._encode.partitions_of(keys, values), arrow.int32())
                if self._by_key
                else batch.column("_partition").cast(arrow.int32())
            )
            yield arrow.RecordBatch.from_arrays(
                [
                    target_partitions,
                    arrow.array([0] * len(values), arrow.int32()),
                    batch.column("_offset").cast(arrow.int64()),
                    arrow.array(keys, arrow.binary()),
                    arrow.array(values, arrow.binary()),
                    batch.column("timestamp_ms"),
                    batch.column("headers"),
                ],
                names=["partition", "task", "row", "key", "value", "timestamp_ms", "headers"],
            )


#: SQL expressions that convert the types of event times to milliseconds since the epoch.
_MILLIS: Final = {
    "timestamp": "unix_millis(timestamp)",
    "timestamp_ntz": "unix_millis(CAST(timestamp AS TIMESTAMP))",
    "date": "unix_millis(CAST(timestamp AS TIMESTAMP))",
    "long": "timestamp",
}
_NO_HEADERS: Final = f"CAST(NULL AS {HEADERS_TYPE})"


class HistoryTable:
    """The rows of a history, selected by offsets or by time.

    A selection by offsets contains the rows of the topic `then` in a table from `to_lake`, in their
    original partitions. A selection by time contains all rows, or the rows before a time,
    partitioned by key. Raises a `ConfigError` if the table cannot be read, lacks a column, or does
    not determine where the topic continues.
    """

    def __init__(self, session: SparkSession, history: LakeHistory) -> None:
        self._history = history
        table = self._read(session)
        from_stream = all(name in table.columns for name in STREAM_COLUMNS)
        self._by_offsets = history.then is not None and history.then_from_ms is None
        if self._by_offsets:
            self._check_has_offsets(table)
            table = table.where(table["_topic"] == str(history.then))
        origin = ["headers", "_partition", "_offset"]
        if not from_stream:
            defaults = (_NO_HEADERS, "0", "CAST(0 AS BIGINT)")
            origin = [f"{each} AS {name}" for each, name in zip(defaults, origin, strict=True)]
        self._rows = self._select_columns(table, origin)

    def resume(self, admin: GroupAdmin, partitions: int) -> dict[int, int]:
        """Return the offsets at which the topic continues after the table.

        The result is empty if no topic follows the table. Raises the errors of `resume_offsets`.
        """
        then, from_ms = self._history.then, self._history.then_from_ms
        if then is None:
            return {}
        topic_partitions = [TopicPartition(then, number) for number in range(partitions)]
        beginnings = admin.beginning_offsets(topic_partitions)
        # Fetched before the lookup by time, so that a record that arrives between the two requests
        # is not skipped.
        ends = admin.end_offsets(topic_partitions)
        if from_ms is None:
            found = resume_offsets(self._rows, then, beginnings, ends, self._history.path)
            return {tp.partition: offset for tp, offset in found.items()}
        at = admin.offsets_at(topic_partitions, from_ms)
        offsets: dict[int, int] = {}
        for tp in topic_partitions:
            offset = at.get(tp)
            if offset is not None and offset == beginnings[tp] > 0:
                raise StreamsError(
                    f"{then}, partition {tp.partition}, has deleted its records before offset "
                    f"{offset}, some of which may be later than then_from and would be lost. Pass "
                    "a later time, up to which the table is complete."
                )
            offsets[tp.partition] = ends[tp] if offset is None else offset
        return offsets

    def numbered_rows(self, into: str, partitions: int, resume: dict[int, int]) -> NumberedRows:
        """Return the rows as numbered records for the topic `into`.

        `resume` is the result of the method `resume`, from this or an earlier start.
        """
        history, rows = self._history, self._rows
        if self._by_offsets:
            assert history.then is not None
            offsets = {TopicPartition(history.then, each): end for each, end in resume.items()}
            rows = rows_before(rows, offsets)
        elif history.then_from_ms is not None:
            rows = rows.where(rows["timestamp_ms"] < history.then_from_ms)
        serdes = StageSerdes(history.name, into, history.key, history.value)
        names = ("key", "value", "timestamp_ms", "headers", "_partition", "_offset")
        encode = HistoryEncoder(serdes, partitions, by_key=not self._by_offsets)
        return number_rows(rows.select(*names), into, partitions, encode)

    def _read(self, session: SparkSession) -> DataFrame:
        history = self._history
        try:
            return read_table(session, history.path, history.format)
        except Exception as error:
            reason = error.message if isinstance(error, SparkError) else short_reason(error)
            raise self._config_error(
                f"the table {history.path} cannot be read as {history.format}: {reason}"
            ) from error

    def _check_has_offsets(self, table: DataFrame) -> None:
        history = self._history
        missing = [name for name in STREAM_COLUMNS if name not in table.columns]
        if missing:
            raise self._config_error(
                f"the table {history.path} lacks the columns {', '.join(missing)}, which "
                f"KStream.to_lake writes, and which determine where {history.then!r} continues. "
                "Pass then_from= to use the rows before that time, and the topic after that time."
            )
        if history.columns.key != HistoryColumns().key:
            raise self._config_error(
                f"key_column={history.columns.key!r} changes the keys of the rows, but the rows "
                "stay in their original partitions. Omit key_column, or pass then_from=."
            )

    def _select_columns(self, table: DataFrame, origin: list[str]) -> DataFrame:
        columns = self._history.columns
        try:
            shown = table.selectExpr(
                f"({columns.key}) AS key",
                f"({columns.value}) AS value",
                f"({columns.timestamp}) AS timestamp",
                *origin,
            )
            kind = shown.schema["timestamp"].dataType.typeName()
            if kind in _MILLIS:
                return shown.selectExpr("*", f"{_MILLIS[kind]} AS timestamp_ms")
        except StreamsError:
            raise
        except Exception as error:
            raise self._config_error(
                f"the table {self._history.path} has the columns {', '.join(table.columns)}, which "
                f"do not match key_column={columns.key!r}, value_column={columns.value!r}, "
                f"timestamp={columns.timestamp!r}: {short_reason(error)}"
            ) from error
        raise self._config_error(
            f"timestamp={columns.timestamp!r} has the type {kind}. Use a timestamp, a date, or "
            "milliseconds since the epoch (bigint)."
        )

    def _config_error(self, problem: str) -> ConfigError:
        history = self._history
        return ConfigError(
            f"The history {history.name!r} cannot be read: {problem}",
            declared_at=history.declared_at or None,
        )

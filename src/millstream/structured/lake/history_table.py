"""A table of the lake as the history of a topology: its rows, and where the topic goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ConfigError, SparkError, StreamsError
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.record import TopicPartition
from millstream.structured.account import reason_told
from millstream.structured.lake.history_rows import (
    EncodeRows,
    Numbered,
    matching_offsets,
    numbered,
    rows_before,
)
from millstream.structured.lake.tables import read_table
from millstream.structured.rows import HEADERS_TYPE, Serdes
from millstream.topology.options.history import HistoryColumns, LakeHistory
from millstream.topology.options.lake import STREAM_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What makes milliseconds since the epoch of the types that an event time may have.
_MILLIS: Final = {
    "timestamp": "unix_millis(timestamp)",
    "timestamp_ntz": "unix_millis(CAST(timestamp AS TIMESTAMP))",
    "date": "unix_millis(CAST(timestamp AS TIMESTAMP))",
    "long": "timestamp",
}
_NO_HEADERS: Final = f"CAST(NULL AS {HEADERS_TYPE})"


class HistoryTable:
    """The rows of a history, in one of two ways.

    By offsets: those of the topic `then` in a table that `to_lake` has written, each in the
    partition that it came from. By time: all rows, or those before a time, placed by key.

    Args:
        session: reads the table.
        history: which table, and which columns.

    Raises:
        ConfigError: there is no such table, it lacks a column, or it does not say where the topic
            goes on.
    """

    def __init__(self, session: SparkSession, history: LakeHistory) -> None:
        self._history = history
        table = self._read(session)
        from_stream = all(name in table.columns for name in STREAM_COLUMNS)
        self._by_offsets = history.then is not None and history.then_from_ms is None
        if self._by_offsets:
            self._check_has_offsets(table)
            table = _of_topic(table, str(history.then))
        origin = ["headers", "_partition", "_offset"]
        if not from_stream:
            nothing = (_NO_HEADERS, "0", "CAST(0 AS BIGINT)")
            origin = [f"{each} AS {name}" for each, name in zip(nothing, origin, strict=True)]
        self._rows = self._shown(table, origin)

    def resume(self, admin: GroupAdmin, partitions: int) -> dict[int, int]:
        """Where the topic goes on after the table, by partition; nothing if none comes after it.

        Raises:
            StreamsError: the topic has lost records that the table does not have, or it is not the
                one that the rows came from.
        """
        then, from_ms = self._history.then, self._history.then_from_ms
        if then is None:
            return {}
        places = [TopicPartition(then, number) for number in range(partitions)]
        beginnings = admin.beginning_offsets(places)
        # Before the question for a time: what comes meanwhile is later than that.
        ends = admin.end_offsets(places)
        if from_ms is None:
            found = matching_offsets(self._rows, then, beginnings, ends, self._history.path)
            return {place.partition: offset for place, offset in found.items()}
        at = admin.offsets_at(places, from_ms)
        offsets: dict[int, int] = {}
        for place in places:
            offset = at.get(place)
            if offset is not None and offset == beginnings[place] > 0:
                raise StreamsError(
                    f"{then}, partition {place.partition}, has lost its records before offset "
                    f"{offset}, which may be later than then_from: some records would be in "
                    "neither. Give a later time, up to which the table is complete."
                )
            offsets[place.partition] = ends[place] if offset is None else offset
        return offsets

    def numbered(self, into: str, partitions: int, resume: dict[int, int]) -> Numbered:
        """The rows as records for the topic.

        Args:
            into: the topic that they are written into.
            partitions: how many it has.
            resume: what `resume` gave, now or at an earlier start.
        """
        history, rows = self._history, self._rows
        if self._by_offsets:
            assert history.then is not None
            offsets = {TopicPartition(history.then, each): end for each, end in resume.items()}
            rows = rows_before(rows, offsets)
        elif history.then_from_ms is not None:
            rows = rows.where(rows["timestamp_ms"] < history.then_from_ms)
        serdes = Serdes(history.name, into, history.key, history.value)
        names = ("key", "value", "timestamp_ms", "headers", "_partition", "_offset")
        encode = EncodeRows(serdes, partitions, by_key=not self._by_offsets)
        return numbered(rows.select(*names), into, partitions, encode)

    def _read(self, session: SparkSession) -> DataFrame:
        history = self._history
        try:
            return read_table(session, history.path, history.format)
        except Exception as error:
            told = error.message if isinstance(error, SparkError) else reason_told(error)
            raise self._refused(
                f"the table {history.path} cannot be read as {history.format}: {told}"
            ) from error

    def _check_has_offsets(self, table: DataFrame) -> None:
        history = self._history
        missing = [name for name in STREAM_COLUMNS if name not in table.columns]
        if missing:
            raise self._refused(
                f"the table {history.path} has no columns {', '.join(missing)}, which would say "
                f"where {history.then!r} goes on, as tables of KStream.to_lake do. Give "
                "then_from=: rows count before that time, the topic from it on."
            )
        if history.columns.key != HistoryColumns().key:
            raise self._refused(
                f"key_column={history.columns.key!r} gives rows other keys than their records "
                "had, but they stay in their partitions. Leave it out, or give then_from=."
            )

    def _shown(self, table: DataFrame, origin: list[str]) -> DataFrame:
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
                return shown.withColumn("timestamp_ms", _expression(_MILLIS[kind]))
        except StreamsError:
            raise
        except Exception as error:
            raise self._refused(
                f"the table {self._history.path} has the columns {', '.join(table.columns)}, but "
                f"key_column={columns.key!r}, value_column={columns.value!r}, "
                f"timestamp={columns.timestamp!r} are asked for: {reason_told(error)}"
            ) from error
        raise self._refused(
            f"timestamp={columns.timestamp!r} has the type {kind}. Give a timestamp, a date, or "
            "whole milliseconds since the epoch (bigint)."
        )

    def _refused(self, problem: str) -> ConfigError:
        history = self._history
        return ConfigError(
            f"The history {history.name!r} cannot be read: {problem}",
            declared_at=history.declared_at or None,
        )


def _of_topic(table: DataFrame, topic: str) -> DataFrame:
    from pyspark.sql import functions

    return table.where(functions.col("_topic") == functions.lit(topic))


def _expression(sql: str) -> Any:
    from pyspark.sql import functions

    return functions.expr(sql)

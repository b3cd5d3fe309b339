"""Options of lake tables, which are written by a stage or read before a topic."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Literal, get_args

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.topology.argument_checks import check_serdes
from millstream.topology.call_site import call_site
from millstream.topology.naming import checked_name

LakeFormat = Literal["parquet", "delta", "iceberg"]

#: The columns that `KStream.to_lake` writes.
STREAM_COLUMNS: Final = ("key", "value", "timestamp", "headers", "_topic", "_partition", "_offset")
#: The columns that `KTable.to_lake` writes.
TABLE_COLUMNS: Final = ("key", "value", "timestamp")

_FORMATS: Final[dict[str, LakeFormat]] = {name: name for name in get_args(LakeFormat)}
_ALIASED: Final = re.compile(r"(?s)\s*(.*?)\s+as\s+(\w+)\s*", re.IGNORECASE)
_COLUMN_PATH: Final = re.compile(r"\s*(?:\w+\s*\.\s*)*(\w+)\s*")
_FUNCTION_CALL: Final = re.compile(r"(?s)\s*(\w+)\s*\(.*\)\s*")


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column by which the files of a table are partitioned."""

    name: str
    #: The column as a Spark SQL expression of the other columns; equal to the name for an existing
    #: column.
    expression: str


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A lake table that is written by a stage."""

    path: str
    format: LakeFormat
    partition_by: tuple[PartitionColumn, ...] = ()
    #: Whether a row contains the latest value of its key; otherwise, each record is appended as a
    #: row.
    upserts: bool = False
    #: The maximum number of files that a micro-batch writes per partition of the table.
    files_per_batch: int = 1
    #: Compact small files after this number of micro-batches; 0 for never.
    compact_every: int = 0

    @property
    def description(self) -> str:
        return f"{self.format}: {self.path}"


def lake_table(
    path: object,
    format: object,
    partition_by: Sequence[str],
    *,
    upserts: bool,
    files_per_batch: int,
    compact_every: int,
) -> LakeTable:
    """Return a table with validated options.

    Raises:
        TopologyError: an option is not valid, or the format does not support it.
    """
    site = call_site()
    error = partial(TopologyError, declared_at=site)
    table_format = checked_format("to_lake", format)
    if not str(path).strip():
        raise error("to_lake() needs the path of a table, but got ''.")
    if upserts and format == "parquet":
        raise error(
            "A table cannot be written to the lake as Parquet: Parquet files are only ever added, "
            "so a new value of a key could not replace the previous one. Use "
            'format="delta" or "iceberg", or write every change with '
            "table.to_stream().to_lake(...)."
        )
    if upserts and format == "iceberg" and partition_by:
        raise error(
            "A table that is written to Iceberg cannot be partitioned: a key whose row moves to "
            'another partition would appear twice. Leave partition_by out, or use format="delta".'
        )
    if compact_every and format != "delta":
        raise error(
            f"compact_every={compact_every} is for Delta only. Leave compact_every out, and "
            "limit the number of files with files_per_batch and the trigger's interval."
        )
    for name, number, minimum in (
        ("files_per_batch", files_per_batch, 1),
        ("compact_every", compact_every, 0),
    ):
        if isinstance(number, bool) or not isinstance(number, int) or number < minimum:
            raise error(f"to_lake({name}={number!r}): pass an integer of at least {minimum}.")
    if isinstance(partition_by, str):
        raise error(
            f"to_lake(partition_by={partition_by!r}): pass a list of columns, "
            f"[{partition_by!r}] for one column."
        )
    columns = tuple(_partition_column(column, upserts, site) for column in partition_by)
    return LakeTable(str(path), table_format, columns, upserts, files_per_batch, compact_every)


def checked_format(operation: str, format: object) -> LakeFormat:
    """Return the format if it is supported.

    Raises:
        TopologyError: the format is not supported.
    """
    found = _FORMATS.get(str(format))
    if found is None:
        raise TopologyError(
            f"{operation}(format={format!r}): there is no such format. Use one of "
            f"{', '.join(_FORMATS)}.",
            declared_at=call_site(),
        )
    return found


def _partition_column(column: object, upserts: bool, site: str) -> PartitionColumn:
    """Parse a partition column.

    Examples are `value.country`, `date(timestamp)` and `year(timestamp) AS year`.
    """
    if isinstance(column, str):
        named = _ALIASED.fullmatch(column)
        expression = named[1] if named else column.strip()
        found = _COLUMN_PATH.fullmatch(expression) or _FUNCTION_CALL.fullmatch(expression)
        name = named[2] if named else found[1] if found else ""
        own = TABLE_COLUMNS if upserts else STREAM_COLUMNS
        if name and (name not in own or name == expression):
            return PartitionColumn(name, expression)
        if name in own:
            raise TopologyError(
                f"partition_by: {column!r} would be a second column called {name!r}. Give the "
                f'expression another name: "{expression} AS ...".',
                declared_at=site,
            )
    raise TopologyError(
        f"partition_by takes columns such as 'value.country' or 'date(timestamp)', but got "
        f'{column!r}. An expression needs a name: "... AS name".',
        declared_at=site,
    )


HISTORY_SUFFIX: Final = "-history-repartition"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """The columns, or Spark SQL expressions, that become the fields of a record."""

    key: str = "key"
    value: str = "value"
    timestamp: str = "timestamp"


@dataclass(frozen=True, slots=True)
class LakeHistory:
    """A lake table that is read as records before a topic."""

    name: str
    #: The undecorated name of the internal topic for the rows.
    topic: str
    path: str
    format: LakeFormat
    key: Serde[Any]
    value: Serde[Any]
    columns: HistoryColumns = HistoryColumns()
    then: str | None = None
    #: The time at which the topic takes over from the table; None if the offsets in the table
    #: define where the topic continues, or if no topic follows.
    then_from_ms: int | None = None
    #: The partition count of the internal topic if no topic follows; None to use the partition
    #: count of the following topic.
    partitions: int | None = None
    declared_at: str = field(default="", compare=False)

    @property
    def description(self) -> str:
        """The format and path of the table, such as `delta: /lake/clicks`."""
        return f"{self.format}: {self.path}"


def lake_history(
    name: str,
    path: object,
    format: object,
    *,
    key: Serde[Any],
    value: Serde[Any],
    columns: HistoryColumns,
    then: str | None,
    then_from: object,
    partitions: object,
) -> LakeHistory:
    """Return a history with validated options.

    Raises:
        TopologyError: an option is not valid, or contradicts another option.
        TypeError: `key` or `value` is not a Serde.
    """
    site = call_site()
    error = partial(TopologyError, declared_at=site)
    check_serdes("stream_from_lake", key=key, value=value)
    if key is None or value is None:
        raise error(
            "stream_from_lake() needs the serdes of keys and values, since it writes the rows as "
            "records. Pass key= and value=."
        )
    if not str(path).strip():
        raise error("stream_from_lake() needs the path of a table, but got ''.")
    for parameter, expression in (
        ("key_column", columns.key),
        ("value_column", columns.value),
        ("timestamp", columns.timestamp),
    ):
        if not isinstance(expression, str) or not expression.strip():
            raise error(
                f"stream_from_lake({parameter}={expression!r}): pass the name of a column, or a "
                "Spark SQL expression."
            )
    if then is not None:
        checked_name(then)
    return LakeHistory(
        name,
        checked_name(f"{name}{HISTORY_SUFFIX}"),
        str(path),
        checked_format("stream_from_lake", format),
        key,
        value,
        columns,
        then,
        _time_ms(then_from, then, site),
        _partitions(partitions, then, site),
        site,
    )


def _time_ms(then_from: object, then: str | None, site: str) -> int | None:
    if then_from is None:
        return None
    if not isinstance(then_from, datetime):
        raise TopologyError(
            f"stream_from_lake(then_from={then_from!r}): pass a datetime. Rows before this time "
            "and records of the topic from this time on are used.",
            declared_at=site,
        )
    if then is None:
        raise TopologyError(
            "stream_from_lake(then_from=...) is the time from which a topic is read, but there is "
            "no topic. Pass then=, or leave then_from out.",
            declared_at=site,
        )
    time = then_from if then_from.tzinfo is not None else then_from.replace(tzinfo=UTC)
    return (time - _EPOCH) // timedelta(milliseconds=1)


def _partitions(partitions: object, then: str | None, site: str) -> int | None:
    if partitions is None:
        return None if then is not None else 1
    if then is not None:
        raise TopologyError(
            f"stream_from_lake(partitions={partitions!r}): the history has as many partitions as "
            f"{then!r}. Leave partitions out.",
            declared_at=site,
        )
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise TopologyError(
            f"stream_from_lake(partitions={partitions!r}): pass an integer of at least 1.",
            declared_at=site,
        )
    return partitions

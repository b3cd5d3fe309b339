"""Where a stream or a table goes in the lake, and how."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site

LakeFormat = Literal["parquet", "delta", "iceberg"]

#: The columns of every table that `to_lake` writes.
STREAM_COLUMNS: Final = ("key", "value", "timestamp", "headers", "_topic", "_partition", "_offset")
TABLE_COLUMNS: Final = ("key", "value", "timestamp")

_FORMATS: Final[dict[str, LakeFormat]] = {name: name for name in get_args(LakeFormat)}
_NAMED: Final = re.compile(r"(?s)\s*(.*?)\s+as\s+(\w+)\s*", re.IGNORECASE)
_PATH: Final = re.compile(r"\s*(?:\w+\s*\.\s*)*(\w+)\s*")
_CALL: Final = re.compile(r"(?s)\s*(\w+)\s*\(.*\)\s*")


@dataclass(frozen=True, slots=True)
class PartitionColumn:
    """A column by whose values the files of a table lie apart.

    Args:
        name: the column's.
        expression: in Spark SQL, what it is of the others; the name itself for one of them.
    """

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table of the lake that a stage writes.

    Args:
        path: the folder of the table, or a URL that Spark's Hadoop knows.
        format: how it is written down.
        partition_by: by what its files lie apart.
        upserts: whether a row stands for the last value of its key; otherwise each record is one.
        files_per_batch: how many files a micro-batch writes at most, for each partition of it.
        compact_every: after so many micro-batches small files are made large ones; 0 for never.
    """

    path: str
    format: LakeFormat
    partition_by: tuple[PartitionColumn, ...] = ()
    upserts: bool = False
    files_per_batch: int = 1
    compact_every: int = 0

    @property
    def description(self) -> str:
        """Of what kind it is and where it lies."""
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
    """A checked table.

    Raises:
        TopologyError: one of them is not what it should be, or the format cannot do it.
    """
    site = call_site()
    checked_format = known_format("to_lake", format)
    if not str(path).strip():
        raise TopologyError("to_lake() needs the path of a table, but got ''.", declared_at=site)
    if upserts and format == "parquet":
        raise TopologyError(
            "A table cannot go to the lake as Parquet: files of Parquet are only ever added, so "
            "the last value of a key could not take the place of the one before. Give "
            'format="delta" or "iceberg", or write every change with '
            "table.to_stream().to_lake(...).",
            declared_at=site,
        )
    if upserts and format == "iceberg" and partition_by:
        raise TopologyError(
            "A table that goes to Iceberg cannot be partitioned: a key whose row moves to another "
            'partition would be there twice. Leave partition_by out, or give format="delta".',
            declared_at=site,
        )
    if compact_every and format != "delta":
        raise TopologyError(
            f"compact_every={compact_every} is for Delta only. Leave it out, and let "
            "files_per_batch and the trigger's interval bound the files.",
            declared_at=site,
        )
    for name, number, least in (
        ("files_per_batch", files_per_batch, 1),
        ("compact_every", compact_every, 0),
    ):
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise TopologyError(
                f"to_lake({name}={number!r}): give a whole number of at least {least}.",
                declared_at=site,
            )
    if isinstance(partition_by, str):
        raise TopologyError(
            f"to_lake(partition_by={partition_by!r}): give a list of columns, "
            f"[{partition_by!r}] for one.",
            declared_at=site,
        )
    columns = tuple(_partition_column(given, upserts, site) for given in partition_by)
    return LakeTable(
        str(path),
        checked_format,
        columns,
        upserts,
        files_per_batch,
        compact_every,
    )


def known_format(operation: str, format: object) -> LakeFormat:
    """The format itself, if there is one of that name.

    Raises:
        TopologyError: there is none.
    """
    found = _FORMATS.get(str(format))
    if found is None:
        raise TopologyError(
            f"{operation}(format={format!r}): there is no such format. Take one of "
            f"{', '.join(_FORMATS)}.",
            declared_at=call_site(),
        )
    return found


def _partition_column(given: object, upserts: bool, site: str) -> PartitionColumn:
    """`value.country`, `date(timestamp)`, or with a name: `year(timestamp) AS year`."""
    if isinstance(given, str):
        named = _NAMED.fullmatch(given)
        expression = named[1] if named else given.strip()
        found = _PATH.fullmatch(expression) or _CALL.fullmatch(expression)
        name = named[2] if named else found[1] if found else ""
        own = TABLE_COLUMNS if upserts else STREAM_COLUMNS
        if name and (name not in own or name == expression):
            return PartitionColumn(name, expression)
        if name in own:
            raise TopologyError(
                f"partition_by: {given!r} would be another column called {name!r}. Name it: "
                f'"{expression} AS ...".',
                declared_at=site,
            )
    raise TopologyError(
        f"partition_by takes columns such as 'value.country' or 'date(timestamp)', but got "
        f'{given!r}. Name an expression: "... AS name".',
        declared_at=site,
    )

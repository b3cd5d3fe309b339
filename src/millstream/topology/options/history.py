"""A table of the lake that comes before a topic, or stands alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.topology.arguments import checked_serdes
from millstream.topology.call_site import call_site
from millstream.topology.naming import checked_name
from millstream.topology.options.lake import LakeFormat, known_format

HISTORY_SUFFIX: Final = "-history-repartition"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """What of a row becomes the record, each a column or an expression of Spark SQL.

    Args:
        key: the key.
        value: the value.
        timestamp: the event time.
    """

    key: str = "key"
    value: str = "value"
    timestamp: str = "timestamp"


@dataclass(frozen=True, slots=True)
class LakeHistory:
    """A table whose rows are read as records before a topic.

    Args:
        name: the user's, or that of the source node.
        topic: the internal topic that the rows are written into, undecorated.
        path: the folder of the table, or a URL that Spark's Hadoop knows.
        format: how it is written down.
        key: the serde of keys.
        value: the serde of values.
        columns: what of a row becomes the record.
        then: the topic that comes after it; None for none.
        then_from_ms: rows count before this time and the topic counts from it on; None if the
            table says by its offsets where the topic goes on, or no topic comes.
        partitions: how many the internal topic has, if no topic comes; None for those of the topic.
        declared_at: file and line of the user's program.
    """

    name: str
    topic: str
    path: str
    format: LakeFormat
    key: Serde[Any]
    value: Serde[Any]
    columns: HistoryColumns = HistoryColumns()
    then: str | None = None
    then_from_ms: int | None = None
    partitions: int | None = None
    declared_at: str = field(default="", compare=False)

    @property
    def description(self) -> str:
        """Of what kind the table is and where it lies: `delta: /lake/clicks`."""
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
    """A checked history.

    Raises:
        TopologyError: one of them is not what it should be, or does not go with another.
        TypeError: a serde is none.
    """
    site = call_site()
    checked_serdes("stream_from_lake", key=key, value=value)
    if key is None or value is None:
        raise TopologyError(
            "stream_from_lake() needs the serdes of keys and values, since it writes the rows as "
            "records: give key= and value=.",
            declared_at=site,
        )
    if not str(path).strip():
        raise TopologyError(
            "stream_from_lake() needs the path of a table, but got ''.", declared_at=site
        )
    for what, expression in (
        ("key_column", columns.key),
        ("value_column", columns.value),
        ("timestamp", columns.timestamp),
    ):
        if not isinstance(expression, str) or not expression.strip():
            raise TopologyError(
                f"stream_from_lake({what}={expression!r}): give the name of a column, or an "
                "expression of Spark SQL.",
                declared_at=site,
            )
    if then is not None:
        checked_name(then)
    return LakeHistory(
        name,
        checked_name(f"{name}{HISTORY_SUFFIX}"),
        str(path),
        known_format("stream_from_lake", format),
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
            f"stream_from_lake(then_from={then_from!r}): give a datetime: rows count before it, "
            "the topic counts from it on.",
            declared_at=site,
        )
    if then is None:
        raise TopologyError(
            "stream_from_lake(then_from=...) says from when on the topic counts, but there is "
            "none: give then=, or leave it out.",
            declared_at=site,
        )
    moment = then_from if then_from.tzinfo is not None else then_from.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _partitions(partitions: object, then: str | None, site: str) -> int | None:
    if partitions is None:
        return None if then is not None else 1
    if then is not None:
        raise TopologyError(
            f"stream_from_lake(partitions={partitions!r}): the history has as many partitions as "
            f"{then!r}. Leave it out.",
            declared_at=site,
        )
    if isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1:
        raise TopologyError(
            f"stream_from_lake(partitions={partitions!r}): give a whole number of at least 1.",
            declared_at=site,
        )
    return partitions

"""Invalid lake tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bad_inputs.case import Case, Family, Raises, check_start, ms
from bad_inputs.nulls import TEXT
from millstream.errors import ConfigError, TopologyError


def stream(id: str, description: str, text: str, **given: Any) -> Case:
    """Create a case that writes a stream to a lake table."""
    arguments = {"path": "/lake/t", "name": "t", **given}
    path = arguments.pop("path")
    return Case(
        id,
        description,
        check_start(lambda b: b.stream("in", **TEXT).to_lake(path, **arguments)),
        Raises(TopologyError, [text, "bad_inputs/lake.py:"]),
    )


def table(id: str, description: str, text: str, **given: Any) -> Case:
    """Create a case that writes a table to a lake table."""
    return Case(
        id,
        description,
        check_start(lambda b: b.table("in", **TEXT).to_lake("/lake/t", **{"name": "t", **given})),
        Raises(TopologyError, [text, "bad_inputs/lake.py:"]),
    )


def history(
    id: str, description: str, text: str, *, error: Any = TopologyError, **given: Any
) -> Case:
    """Create a case that reads a lake table."""
    settings = given.pop("settings", {})
    arguments: dict[str, Any] = {"path": "/lake/t", "format": "delta", "name": "t", **TEXT, **given}
    path = arguments.pop("path")
    return Case(
        id,
        description,
        check_start(lambda b: b.stream_from_lake(path, **arguments).to("out"), **settings),
        Raises(error, [text, "bad_inputs/lake.py:"]),
    )


LAKE = Family(
    "Lake tables",
    "Rejected by `to_lake` and `stream_from_lake` at the line of the call: see "
    "[Lake tables](lake.md).",
    [
        stream("path", "no path", "needs the path of a table", path=""),
        stream("format", "an unknown format", "no such format", format="orc"),
        stream("name", "no name", "needs a name", name=""),
        stream(
            "text",
            "text instead of a list of columns",
            "pass a list of columns",
            partition_by="value",
        ),
        stream(
            "expression",
            "an expression without a name",
            "An expression needs a name",
            partition_by=["_offset % 4"],
        ),
        stream(
            "column",
            "a partition column with the name of another column",
            "would be a second column called 'timestamp'",
            partition_by=["timestamp(_topic)"],
        ),
        stream(
            "real-time",
            "real-time mode",
            "cannot write to a table in real time",
            trigger=ms.Trigger.real_time(),
        ),
        stream("files", "zero files per batch", "at least 1", files_per_batch=0),
        stream(
            "compaction",
            "compaction of a format other than Delta",
            "is for Delta only",
            format="iceberg",
            compact_every=10,
        ),
        stream(
            "trigger",
            "text instead of a trigger",
            "takes a Trigger",
            trigger="1 minute",
        ),
        table(
            "parquet",
            "a KTable as Parquet",
            "Parquet files are only ever added",
            format="parquet",
        ),
        table(
            "iceberg-partitions",
            "a KTable as a partitioned Iceberg table",
            "cannot be partitioned",
            format="iceberg",
            partition_by=["value"],
        ),
        history("history-format", "history in an unknown format", "no such format", format="csv"),
        history("history-path", "history without a path", "needs the path of a table", path=""),
        history("history-serde", "history without a serde", "needs the serdes", value=None),
        history("history-column", "a column name that is not text", "timestamp=3", timestamp=3),
        history(
            "history-time",
            "text as then_from",
            "pass a datetime",
            then="in",
            then_from="2026-01-02",
        ),
        history(
            "history-time-alone",
            "then_from without a topic",
            "but there is no topic",
            then_from=datetime(2026, 1, 2, tzinfo=UTC),
        ),
        history(
            "history-partitions",
            "a different number of partitions than the topic",
            "as many partitions as 'in'",
            then="in",
            partitions=4,
        ),
        history(
            "history-idle",
            "tasks that do not wait for the history",
            "would not wait for the history 't'",
            error=ConfigError,
            then="in",
            settings={"max_task_idle_ms": -1},
        ),
    ],
)

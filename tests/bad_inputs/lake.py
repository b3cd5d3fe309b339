"""Tables of the lake that cannot be."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bad_inputs.case import Case, Family, Refused, ms, started
from bad_inputs.nulls import TEXT
from millstream.errors import ConfigError, TopologyError


def stream(id: str, what: str, told: str, **given: Any) -> Case:
    """A stream that goes to the lake so."""
    arguments = {"path": "/lake/t", "name": "t", **given}
    path = arguments.pop("path")
    return Case(
        id,
        what,
        started(lambda b: b.stream("in", **TEXT).to_lake(path, **arguments)),
        Refused(TopologyError, [told, "bad_inputs/lake.py:"]),
    )


def table(id: str, what: str, told: str, **given: Any) -> Case:
    """A table that goes to the lake so."""
    return Case(
        id,
        what,
        started(lambda b: b.table("in", **TEXT).to_lake("/lake/t", **{"name": "t", **given})),
        Refused(TopologyError, [told, "bad_inputs/lake.py:"]),
    )


def history(id: str, what: str, told: str, *, error: Any = TopologyError, **given: Any) -> Case:
    """A table that is read so."""
    settings = given.pop("settings", {})
    arguments: dict[str, Any] = {"path": "/lake/t", "format": "delta", "name": "t", **TEXT, **given}
    path = arguments.pop("path")
    return Case(
        id,
        what,
        started(lambda b: b.stream_from_lake(path, **arguments).to("out"), **settings),
        Refused(error, [told, "bad_inputs/lake.py:"]),
    )


LAKE = Family(
    "Tables of the lake",
    "What `to_lake` and `stream_from_lake` refuse in the line that is wrong: see "
    "[the lake](lake.md).",
    [
        stream("path", "no path", "needs the path of a table", path=""),
        stream("format", "a format that there is not", "no such format", format="orc"),
        stream("name", "no name", "needs a name", name=""),
        stream(
            "text",
            "a text in place of a list of columns",
            "give a list of columns",
            partition_by="value",
        ),
        stream(
            "expression",
            "an expression without a name",
            "Name an expression",
            partition_by=["_offset % 4"],
        ),
        stream(
            "column",
            "a partition that is called like a column of the table",
            "would be another column called 'timestamp'",
            partition_by=["timestamp(_topic)"],
        ),
        stream(
            "real-time",
            "real time",
            "cannot write to a table in real time",
            trigger=ms.Trigger.real_time(),
        ),
        stream("files", "no file", "at least 1", files_per_batch=0),
        stream(
            "compaction",
            "a compaction of another format than Delta",
            "is for Delta only",
            format="iceberg",
            compact_every=10,
        ),
        stream(
            "trigger",
            "a text in place of a trigger",
            "takes a Trigger",
            trigger="1 minute",
        ),
        table(
            "parquet",
            "a table, whose rows change, as Parquet",
            "files of Parquet are only ever added",
            format="parquet",
        ),
        table(
            "iceberg-partitions",
            "a table in Iceberg with partitions",
            "cannot be partitioned",
            format="iceberg",
            partition_by=["value"],
        ),
        history("history-format", "history of no format", "no such format", format="csv"),
        history("history-path", "history without a path", "needs the path of a table", path=""),
        history("history-serde", "history without a serde", "needs the serdes", value=None),
        history("history-column", "a column that is no text", "timestamp=3", timestamp=3),
        history(
            "history-time",
            "a text in place of the time from which on a topic counts",
            "give a datetime",
            then="in",
            then_from="2026-01-02",
        ),
        history(
            "history-time-alone",
            "such a time, and no topic",
            "but there is none",
            then_from=datetime(2026, 1, 2, tzinfo=UTC),
        ),
        history(
            "history-partitions",
            "other partitions for a history than its topic has",
            "as many partitions as 'in'",
            then="in",
            partitions=4,
        ),
        history(
            "history-idle",
            "tasks that do not wait for the history before a topic",
            "would not wait for the history 't'",
            error=ConfigError,
            then="in",
            settings={"max_task_idle_ms": -1},
        ),
    ],
)

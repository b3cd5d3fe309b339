"""Records without a key or without a value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from bad_inputs.case import (
    Accepted,
    Case,
    Dropped,
    Family,
    Filtered,
    Input,
    Outcome,
    Raises,
    ms,
    process,
    serdes,
)
from millstream.errors import ProcessingError

TEXT = {"key": serdes.STRING, "value": serdes.STRING}
NEAR = ms.JoinWindows(timedelta(seconds=1))
SECOND = timedelta(seconds=1)
KEPT = ms.Materialized("kept", value=serdes.STRING)


def both(one: Any, other: Any) -> str:
    return f"{one}+{other}"


def one_more(key: Any, value: Any, count: Any) -> Any:
    return f"{count}{value}"


def text(table: Any) -> None:
    """Write a table or a stream as strings."""
    stream = table.to_stream() if hasattr(table, "to_stream") else table
    stream.map(lambda key, value: (str(key), str(value))).to("out", **TEXT)


def key_case(
    id: str,
    description: str,
    operation: Callable[[Any, Any], Any],
    outcome: Outcome,
    *before: Input,
) -> Case:
    """Create a case in which a stream operation processes a record without a key."""

    def build(builder: Any) -> None:
        text(operation(builder.stream("in", **TEXT), builder))

    return Case(id, description, process(build, *before, Input(key=None)), outcome)


def value_case(
    id: str,
    description: str,
    operation: Callable[[Any, Any], Any],
    outcome: Outcome,
    *before: Input,
) -> Case:
    """Create a case in which a stream operation processes a record without a value."""

    def build(builder: Any) -> None:
        text(operation(builder.stream("in", **TEXT), builder))

    return Case(id, description, process(build, *before, Input(value=None)), outcome)


def table(builder: Any) -> Any:
    return builder.table("changes", **TEXT)


def other(builder: Any) -> Any:
    return builder.stream("other", **TEXT)


def by_foreign_key(builder: Any) -> None:
    left, right = builder.table("in", **TEXT), builder.table("changes", **TEXT)
    text(left.join(right, both, foreign_key=lambda value: None))


def global_join(key: Any) -> Callable[[Any, Any], Any]:
    return lambda stream, builder: stream.join(
        builder.global_table("world", **TEXT), both, key_selector=lambda k, v: key
    )


def windows(groups: Any) -> Any:
    return groups.windowed_by(ms.TimeWindows(SECOND))


class Puts(ms.Processor):  # type: ignore[misc]
    """Stores each record under its key."""

    def process(self, record: Any) -> None:
        self.context.get_state_store("kept").put(record.key, record.value)


def puts(builder: Any) -> None:
    store = ms.Stores.key_value_builder(
        ms.Stores.in_memory_key_value("kept"), key=serdes.STRING, value=serdes.STRING
    )
    builder.add_state_store(store)
    builder.stream("in", **TEXT).process(Puts, stores=["kept"])


def no_table_key(builder: Any) -> None:
    text(builder.table("in", **TEXT))


def tombstone(builder: Any) -> None:
    text(builder.table("in", **TEXT))


def regrouped(key: Any, value: Any) -> Callable[[Any], None]:
    def build(builder: Any) -> None:
        groups = builder.table("in", **TEXT).group_by(
            lambda k, v: (key, value), key=serdes.STRING, value=serdes.STRING
        )
        text(groups.count())

    return build


KEYS = Family(
    "Records without a key",
    "If an operation needs the key, the record is dropped.",
    [
        key_case("count", "count()", lambda s, b: s.group_by_key().count(), Dropped(1, [])),
        key_case("reduce", "reduce()", lambda s, b: s.group_by_key().reduce(both), Dropped(1, [])),
        key_case(
            "aggregate",
            "aggregate()",
            lambda s, b: s.group_by_key().aggregate(str, one_more, store=KEPT),
            Dropped(1, []),
        ),
        key_case(
            "windows",
            "count() in windows",
            lambda s, b: windows(s.group_by_key()).count(),
            Dropped(1, []),
        ),
        key_case(
            "sliding",
            "count() in sliding windows",
            lambda s, b: s.group_by_key().windowed_by(ms.SlidingWindows(SECOND)).count(),
            Dropped(1, []),
        ),
        key_case(
            "sessions",
            "count() in sessions",
            lambda s, b: s.group_by_key().windowed_by(ms.SessionWindows(SECOND)).count(),
            Dropped(1, []),
        ),
        key_case(
            "cogroup",
            "cogroup()",
            lambda s, b: s.group_by_key().cogroup(one_more).aggregate(str, store=KEPT),
            Dropped(1, []),
        ),
        key_case(
            "group-by",
            "group_by() that returns None",
            lambda s, b: s.group_by(lambda k, v: None, key=serdes.STRING).count(),
            Filtered(),
        ),
        key_case("to-table", "to_table()", lambda s, b: s.to_table(), Dropped(1, [])),
        Case("table", "table()", process(no_table_key, Input(key=None)), Dropped(1, [])),
        key_case(
            "join",
            "a stream joined with a stream",
            lambda s, b: s.join(other(b), both, NEAR),
            Dropped(1, []),
        ),
        key_case(
            "left-join",
            "a stream left-joined with a stream",
            lambda s, b: s.left_join(other(b), both, NEAR),
            Accepted([("None", "v+None")]),
        ),
        key_case(
            "outer-join",
            "a stream outer-joined with a stream",
            lambda s, b: s.outer_join(other(b), both, NEAR),
            Accepted([("None", "v+None")]),
        ),
        key_case(
            "table-join",
            "a stream joined with a table",
            lambda s, b: s.join(table(b), both),
            Dropped(1, []),
        ),
        key_case(
            "left-table-join",
            "a stream left-joined with a table",
            lambda s, b: s.left_join(table(b), both),
            Accepted([("None", "v+None")]),
        ),
        key_case(
            "global-join",
            "a stream joined with a global table, with None as the table's key",
            global_join(None),
            Dropped(1, []),
        ),
        Case(
            "foreign-key",
            "a table joined by a foreign key that is None",
            process(by_foreign_key, Input()),
            Dropped(1, []),
        ),
        Case(
            "regrouped",
            "a table grouped by None",
            process(regrouped(None, "x"), Input()),
            Filtered(),
        ),
        key_case("repartition", "repartition()", lambda s, b: s.repartition(), Filtered()),
        key_case(
            "map", "map_values()", lambda s, b: s.map_values(str.upper), Accepted([("None", "V")])
        ),
        Case(
            "store",
            "put() to a store of a processor",
            process(puts, Input(key=None)),
            Raises(ProcessingError, ["Store kept needs a key", "Filter out records without a key"]),
        ),
    ],
)

VALUES = Family(
    "Records without a value",
    "In tables, these records are deletions. Joins of streams, and aggregations without windows, "
    "drop them.",
    [
        value_case("count", "count()", lambda s, b: s.group_by_key().count(), Dropped(1, [])),
        value_case(
            "reduce", "reduce()", lambda s, b: s.group_by_key().reduce(both), Dropped(1, [])
        ),
        value_case(
            "aggregate",
            "aggregate()",
            lambda s, b: s.group_by_key().aggregate(str, one_more, store=KEPT),
            Dropped(1, []),
        ),
        value_case(
            "windows",
            "count() in windows",
            lambda s, b: windows(s.group_by_key()).count(),
            Accepted([("[k@0/1000]", "1")]),
        ),
        value_case(
            "join",
            "a stream joined with a stream",
            lambda s, b: s.join(other(b), both, NEAR),
            Dropped(1, []),
        ),
        value_case(
            "left-join",
            "a stream left-joined with a stream",
            lambda s, b: s.left_join(other(b), both, NEAR),
            Dropped(1, []),
        ),
        value_case(
            "table-join",
            "a stream joined with a table",
            lambda s, b: s.join(table(b), both),
            Dropped(1, []),
            Input(topic="changes"),
        ),
        value_case(
            "left-table-join",
            "a stream left-joined with a table",
            lambda s, b: s.left_join(table(b), both),
            Dropped(1, []),
            Input(topic="changes"),
        ),
        value_case(
            "to-table",
            "to_table() deletes",
            lambda s, b: s.to_table(),
            Accepted([("k", "v"), ("k", "None")]),
            Input(),
        ),
        Case(
            "tombstone",
            "table() deletes",
            process(tombstone, Input(), Input(None)),
            Accepted([("k", "v"), ("k", "None")]),
        ),
        value_case(
            "map",
            "map_values() gets None",
            lambda s, b: s.map_values(str),
            Accepted([("k", "None")]),
        ),
        value_case(
            "filter",
            "a function that expects text gets None",
            lambda s, b: s.filter(lambda k, v: v.startswith("a")),
            Raises(ProcessingError, ["AttributeError", "processing_exception_handler"]),
        ),
        Case(
            "regrouped",
            "a table grouped with None as the value",
            process(regrouped("k", None), Input()),
            Filtered(),
        ),
    ],
)

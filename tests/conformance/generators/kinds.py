"""The result of each operation of a scenario: a stream or a table, with types of keys and values.

Random changes of a scenario need it: a store of longs accepts no strings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from conformance.vendored.interpret import LONG, STR, Ex, T, agg_type, join_type, proc_types, typ

Op = dict[str, Any]

_SAME = {"filter", "filter_not", "peek", "merge", "repartition", "to_table", "suppress"}


@dataclass(frozen=True)
class Kind:
    """The result of an operation.

    Attributes:
        category: stream, table, global, grouped, cogrouped or windowed (grouped in windows).
        key: the type of its keys.
        value: the type of its values.
        window: the window of its keys, now or after the aggregation.
        of_table: whether it is a grouped table.
    """

    category: str
    key: T
    value: T
    window: Op | None = None
    of_table: bool = False

    @property
    def is_text(self) -> bool:
        """Whether keys and values are strings."""
        return {self.key.n, self.value.n} == {"string"}


def parents_of(op: Op) -> list[str]:
    """The ids of an operation's inputs."""
    parents = op.get("from", [])
    return [parents] if isinstance(parents, str) else list(parents)


def ids_of(op: Op) -> list[str]:
    """The ids of an operation's results; a split has several."""
    if op["op"] in ("to", "foreach"):
        return []
    if op["op"] != "split":
        return [op["id"]] if "id" in op else []
    return [part["id"] for part in [*op["branches"], *filter(None, [op.get("default")])]]


def kinds_of(ops: list[Op]) -> dict[str, Kind]:
    """The kinds of all results, by id."""
    kinds: dict[str, Kind] = {}
    for op in ops:
        kinds.update(_results(op, [kinds[parent] for parent in parents_of(op)]))
    return kinds


def _results(op: Op, parents: list[Kind]) -> Iterator[tuple[str, Kind]]:
    name = op["op"]
    if name in ("stream", "table", "global_table"):
        category = name.removesuffix("_table")
        yield op["id"], Kind(category, typ(op.get("key")), typ(op.get("value")))
    elif parents:
        kind = _derived(op, parents)
        for result_id in ids_of(op):
            yield result_id, kind


def _derived(op: Op, parents: list[Kind]) -> Kind:
    name, first = op["op"], parents[0]
    key, value = first.key, first.value
    if name in _SAME:
        category = "table" if name == "to_table" else first.category
        return Kind(category, key, value, first.window)
    if name in ("process", "process_values"):
        new_key, value = proc_types(op["processor"], key, value)
        return Kind("stream", new_key if name == "process" else key, value)
    if name == "join":
        return Kind(
            first.category, key, join_type(op.get("joiner", "plus"), value, parents[1].value)
        )
    if name in ("count", "reduce", "aggregate"):
        return _aggregated(op, first)
    if name == "windowed_by":
        return Kind(
            "windowed" if first.category == "grouped" else first.category, key, value, op["window"]
        )
    if name in ("group_by_key", "group_by"):
        return _grouped(op, first)
    if name == "cogroup":
        return Kind("cogrouped", key, agg_type(op["adders"][-1], value))
    if name == "transform_values":
        return Kind("table", key, STR, first.window)
    return _mapped(op, first)


def _mapped(op: Op, first: Kind) -> Kind:
    name, key, value = op["op"], first.key, first.value
    if name == "map":
        keys, values = Ex(op.get("key", "k"), key, value), Ex(op.get("value", "v"), key, value)
        return Kind("stream", keys.t, values.t)
    if name == "map_values":
        return Kind(first.category, key, Ex(op["value"], key, value).t, first.window)
    if name == "flat_map_values":
        return Kind("stream", key, Ex(op["values"], key, value).t)
    if name == "flat_map":
        element = Ex(op["values"], key, value).t
        return Kind("stream", Ex(op.get("key", "k"), key, element).t, element)
    if name == "select_key":
        return Kind("stream", Ex(op["key"], key, value).t, value)
    if name == "to_stream":
        return Kind("stream", Ex(op["key"], key, value).t if "key" in op else key, value)
    return Kind("stream", key, value)


def _grouped(op: Op, first: Kind) -> Kind:
    key, value = first.key, first.value
    if op["op"] == "group_by":
        new = Ex(op["key"], key, value).t
        if first.category == "table":
            return Kind("grouped", new, Ex(op.get("value", "v"), key, value).t, of_table=True)
        key = new
    return Kind("grouped", key, value)


def _aggregated(op: Op, first: Kind) -> Kind:
    value = first.value
    if op["op"] == "count":
        value = LONG
    elif op["op"] == "aggregate" and first.category != "cogrouped":
        value = agg_type(op["adder"], value)
    window, key = first.window, first.key
    if window is not None:
        session = window["type"] == "session"
        key = T("sw", key) if session else T("tw", key, window.get("size", 0))
    return Kind("table", key, value, window)

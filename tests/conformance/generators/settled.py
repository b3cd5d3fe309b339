"""The parts of a random topology that must not depend on the record caches.

A cache only passes on the last of several updates of a key. Operations that count updates, keep
them apart or depend on their order see the difference: a count of a table's changes, or their
concatenation. Everything else ends up the same.

There are two exceptions. A join of tables with deleted rows reads the cached rows of the other
side, and receives no update for a row that was added and deleted between two flushes (in Kafka
Streams as well). And without a cache, the update of a session does not contain the old value, so a
filter drops the deletion of a row (likewise).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

Op = dict[str, Any]

#: Operators on streams that keep keys and emit one record for each record.
_ONE_TO_ONE = {"map_values", "peek"}
_STATELESS = {
    *_ONE_TO_ONE,
    "filter",
    "filter_not",
    "map",
    "flat_map_values",
    "flat_map",
    "select_key",
    "merge",
    "split",
    "repartition",
    "process",
    "process_values",
    "to",
}
_AGGREGATIONS = {"count", "reduce", "aggregate"}
#: Processor stores with caches that still contain entries that the store has dropped.
_EXPIRING = {"window", "timestamped_window", "session"}


class Independence(enum.IntEnum):
    """How far a stream or a table is independent of the caches."""

    NONE = 0
    #: The last value of each key is independent.
    LAST_VALUE = 1
    #: Every record is independent.
    EXACT = 2


class CacheIndependence:
    """Determines how far the operations of a scenario are independent of the caches.

    Args:
        ops: the operations of the scenario.
        deletions: whether the events contain null values.

    Attributes:
        levels: the independence of each op, by id.
        sinks: the independence of each output topic.
        stores: the named DSL stores with independent contents.
    """

    def __init__(self, ops: Sequence[Op], *, deletions: bool) -> None:
        self.levels: dict[str, Independence] = {}
        self.sinks: dict[str, Independence] = {}
        self.stores: set[str] = set()
        self._tables: set[str] = set()
        #: Session windows, and tables of them with changes that may lack the old value.
        self._of_sessions: set[str] = set()
        #: Tables with values that are up to date at any time, independent of the caches.
        self._current: set[str] = set()
        #: Streams with null values, and tables with deleted rows.
        self._deleting: set[str] = set()
        self._deletions = deletions
        self._kinds = {op["store"]["name"]: op["store"] for op in ops if op["op"] == "add_store"}
        self._dependent_stores = {name for name, store in self._kinds.items() if _expires(store)}
        while True:
            known = set(self._dependent_stores)
            for op in ops:
                if op["op"] != "add_store":
                    self._classify(op)
            if known == self._dependent_stores:
                break

    def _classify(self, op: Op) -> None:
        parents = op.get("from", [])
        parents = parents if isinstance(parents, list) else [parents]
        least = min((self.levels[parent] for parent in parents), default=Independence.EXACT)
        if not parents and self._deletions:
            self._deleting.add(op["id"])
        level = self._after(op, parents, least)
        for name in op.get("stores", ()):
            if level is not Independence.EXACT:
                self._dependent_stores.add(name)
        for node in _ids(op):
            self.levels[node] = level
            if _deletes(op) or not self._deleting.isdisjoint(parents):
                self._deleting.add(node)
        if op["op"] == "to":
            self.sinks[op["topic"]] = min(level, self.sinks.get(op["topic"], level))
        store = op.get("store") or {}
        if level is not Independence.NONE and "name" in store and store.get("kind") != "versioned":
            self.stores.add(store["name"])

    def _after(self, op: Op, parents: Sequence[str], least: Independence) -> Independence:
        kind = op["op"]
        if kind in ("stream", "global_table"):
            return Independence.EXACT
        if kind == "table":
            return self._table(op, Independence.LAST_VALUE, current=True)
        if kind in ("group_by_key", "group_by", "windowed_by", "cogroup"):
            if op.get("window", {}).get("type") == "session":
                self._of_sessions.add(op["id"])
            if self._tables.issuperset(parents):
                self._tables.add(op["id"])
            return least
        if kind in _AGGREGATIONS:
            return self._aggregation(op, parents, least)
        if kind == "to_table":
            return self._table(
                op,
                Independence(min(least, Independence.LAST_VALUE)),
                current=least is Independence.EXACT,
            )
        if kind == "to_stream":
            return Independence(min(least, Independence.LAST_VALUE))
        if kind == "join":
            return self._join(op, parents, least)
        if self._tables.issuperset(parents):
            return self._table_op(op, parents, least)
        if kind not in _STATELESS or self._dependent_stores.intersection(op.get("stores", ())):
            return Independence.NONE
        if least is Independence.EXACT or kind in (*_ONE_TO_ONE, "to"):
            return least
        return Independence.NONE

    def _table_op(self, op: Op, parents: Sequence[str], least: Independence) -> Independence:
        if op["op"] not in ("filter", "filter_not", "map_values"):
            return Independence.NONE
        store = op.get("store") or {}
        if store.get("kind") == "versioned":
            return Independence.NONE
        if not store and not self._of_sessions.isdisjoint(parents):
            self._of_sessions.add(op["id"])
            if op["op"] != "map_values" and not self._deleting.isdisjoint(parents):
                return self._table(op, Independence.NONE, current=False)
        return self._table(op, least, current=not store and self._current.issuperset(parents))

    def _aggregation(self, op: Op, parents: Sequence[str], least: Independence) -> Independence:
        if self._tables.issuperset(parents):
            # A group that is added and removed between two commits has no row, not even a zero.
            return self._table(op, Independence.NONE, current=False)
        if not self._of_sessions.isdisjoint(parents):
            self._of_sessions.add(op["id"])
        of_all = least is Independence.EXACT
        return self._table(
            op, Independence.LAST_VALUE if of_all else Independence.NONE, current=of_all
        )

    def _join(self, op: Op, parents: Sequence[str], least: Independence) -> Independence:
        left, right = parents
        if left in self._tables:
            versioned = (op.get("store") or {}).get("kind") == "versioned"
            if versioned or not self._deleting.isdisjoint(parents):
                least = Independence.NONE
            return self._table(op, least, current=False)
        if right not in self._tables:
            return least if least is Independence.EXACT else Independence.NONE
        is_exact = self.levels[left] is Independence.EXACT and right in self._current
        return Independence.EXACT if is_exact else Independence.NONE

    def _table(self, op: Op, level: Independence, *, current: bool) -> Independence:
        self._tables.add(op["id"])
        if current and level is not Independence.NONE:
            self._current.add(op["id"])
        return level


def _ids(op: Op) -> list[str]:
    branches = [*op.get("branches", ()), *filter(None, [op.get("default")])]
    ids = [branch["id"] for branch in branches if isinstance(branch, Mapping)]
    return [op["id"], *ids] if "id" in op else ids


def _deletes(op: Op) -> bool:
    """Whether an operation may produce null values from other values."""
    how = " ".join(
        str(op.get(part)) for part in ("value", "values", "adder", "joiner", "processor")
    )
    if op["op"] == "aggregate":
        how += str(op.get("adders"))
    return op["op"] in ("filter", "filter_not") or "null" in how or "del" in how


def _expires(store: Mapping[str, Any]) -> bool:
    return bool(store.get("caching")) and store.get("kind") in _EXPIRING

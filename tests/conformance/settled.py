"""Which parts of a random topology must not depend on the record caches, and how far.

A cache passes on the last of several changes of a key. What counts changes, keeps them apart or
depends on their order sees that: a count of a table's changes, or a string of them. All else ends
up the same.

But for joins of tables whose rows come and go: a join sees of the other side what its cache holds,
and is not told of a row that came and went there between two flushes (in Kafka Streams as well).
And for filters of sessions that go: without a cache the change of a session does not say what was
there before, and a filter tells nothing of a row that it knows neither before nor after (likewise).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

Op = dict[str, Any]

#: Operators on streams that keep keys and give one record for one.
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
#: Stores of processors in which a cache keeps what the store itself forgets.
_FORGETFUL = {"window", "timestamped_window", "session"}


class Sure(enum.IntEnum):
    """How far a stream or a table is independent of the caches."""

    NOT = 0
    #: The last value of each key is.
    SETTLED = 1
    #: Every record is.
    EXACT = 2


class Settled:
    """The ops of a scenario, as far as they are independent of the caches.

    Args:
        ops: of the scenario.
        deletions: whether there are null values among its events.

    Attributes:
        sure: by the ids of ops, how far.
        sinks: by output topic, how far.
        stores: the named stores of the DSL whose contents are.
    """

    def __init__(self, ops: Sequence[Op], *, deletions: bool) -> None:
        self.sure: dict[str, Sure] = {}
        self.sinks: dict[str, Sure] = {}
        self.stores: set[str] = set()
        self._tables: set[str] = set()
        #: Session windows, and tables of them whose changes may not say what was there before.
        self._of_sessions: set[str] = set()
        #: Tables whose value of a key is known at any time, whatever the caches hold back.
        self._current: set[str] = set()
        #: Streams with null values, tables whose rows may go.
        self._deleting: set[str] = set()
        self._deletions = deletions
        self._kinds = {op["store"]["name"]: op["store"] for op in ops if op["op"] == "add_store"}
        self._unsure_stores = {name for name, store in self._kinds.items() if _forgets(store)}
        while True:
            known = set(self._unsure_stores)
            for op in ops:
                if op["op"] != "add_store":
                    self._look_at(op)
            if known == self._unsure_stores:
                break

    def _look_at(self, op: Op) -> None:
        parents = op.get("from", [])
        parents = parents if isinstance(parents, list) else [parents]
        least = min((self.sure[parent] for parent in parents), default=Sure.EXACT)
        if not parents and self._deletions:
            self._deleting.add(op["id"])
        sure = self._after(op, parents, least)
        for name in op.get("stores", ()):
            if sure is not Sure.EXACT:
                self._unsure_stores.add(name)
        for node in _ids(op):
            self.sure[node] = sure
            if _deletes(op) or not self._deleting.isdisjoint(parents):
                self._deleting.add(node)
        if op["op"] == "to":
            self.sinks[op["topic"]] = min(sure, self.sinks.get(op["topic"], sure))
        store = op.get("store") or {}
        if sure is not Sure.NOT and "name" in store and store.get("kind") != "versioned":
            self.stores.add(store["name"])

    def _after(self, op: Op, parents: Sequence[str], least: Sure) -> Sure:
        kind = op["op"]
        if kind in ("stream", "global_table"):
            return Sure.EXACT
        if kind == "table":
            return self._table(op, Sure.SETTLED, current=True)
        if kind in ("group_by_key", "group_by", "windowed_by", "cogroup"):
            if op.get("window", {}).get("type") == "session":
                self._of_sessions.add(op["id"])
            if self._tables.issuperset(parents):
                self._tables.add(op["id"])
            return least
        if kind in _AGGREGATIONS:
            return self._aggregation(op, parents, least)
        if kind == "to_table":
            return self._table(op, Sure(min(least, Sure.SETTLED)), current=least is Sure.EXACT)
        if kind == "to_stream":
            return Sure(min(least, Sure.SETTLED))
        if kind == "join":
            return self._join(op, parents, least)
        if self._tables.issuperset(parents):
            return self._table_op(op, parents, least)
        if kind not in _STATELESS or self._unsure_stores.intersection(op.get("stores", ())):
            return Sure.NOT
        if least is Sure.EXACT or kind in (*_ONE_TO_ONE, "to"):
            return least
        return Sure.NOT

    def _table_op(self, op: Op, parents: Sequence[str], least: Sure) -> Sure:
        if op["op"] not in ("filter", "filter_not", "map_values"):
            return Sure.NOT
        store = op.get("store") or {}
        if store.get("kind") == "versioned":
            return Sure.NOT
        if not store and not self._of_sessions.isdisjoint(parents):
            self._of_sessions.add(op["id"])
            if op["op"] != "map_values" and not self._deleting.isdisjoint(parents):
                return self._table(op, Sure.NOT, current=False)
        return self._table(op, least, current=not store and self._current.issuperset(parents))

    def _aggregation(self, op: Op, parents: Sequence[str], least: Sure) -> Sure:
        if self._tables.issuperset(parents):
            # Of a group that came and went between two commits not even a zero stays.
            return self._table(op, Sure.NOT, current=False)
        if not self._of_sessions.isdisjoint(parents):
            self._of_sessions.add(op["id"])
        of_all = least is Sure.EXACT
        return self._table(op, Sure.SETTLED if of_all else Sure.NOT, current=of_all)

    def _join(self, op: Op, parents: Sequence[str], least: Sure) -> Sure:
        left, right = parents
        if left in self._tables:
            versioned = (op.get("store") or {}).get("kind") == "versioned"
            if versioned or not self._deleting.isdisjoint(parents):
                least = Sure.NOT
            return self._table(op, least, current=False)
        if right not in self._tables:
            return least if least is Sure.EXACT else Sure.NOT
        is_sure = self.sure[left] is Sure.EXACT and right in self._current
        return Sure.EXACT if is_sure else Sure.NOT

    def _table(self, op: Op, sure: Sure, *, current: bool) -> Sure:
        self._tables.add(op["id"])
        if current and sure is not Sure.NOT:
            self._current.add(op["id"])
        return sure


def _ids(op: Op) -> list[str]:
    branches = [*op.get("branches", ()), *filter(None, [op.get("default")])]
    ids = [branch["id"] for branch in branches if isinstance(branch, Mapping)]
    return [op["id"], *ids] if "id" in op else ids


def _deletes(op: Op) -> bool:
    """Whether null values may come of others that are none."""
    how = " ".join(
        str(op.get(part)) for part in ("value", "values", "adder", "joiner", "processor")
    )
    if op["op"] == "aggregate":
        how += str(op.get("adders"))
    return op["op"] in ("filter", "filter_not") or "null" in how or "del" in how


def _forgets(store: Mapping[str, Any]) -> bool:
    return bool(store.get("caching")) and store.get("kind") in _FORGETFUL

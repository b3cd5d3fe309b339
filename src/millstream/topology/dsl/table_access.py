"""Access to tables for downstream operations: reading rows, and requesting old values.

Whether a table has a store, and whether its changes contain old values, may depend on operations
that are added later. Each `KTable` therefore holds a `TableAccess`, which passes such requests up
the graph while the program is still being written (Kafka Streams: `KTableImpl.valueGetterSupplier`
and `enableSendingOldValues`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from millstream.operators.tables.value_getter import (
    GetterSupplier,
    JoinedGetterSupplier,
    StoreGetterSupplier,
)
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.table_nodes import LazyTableGraphNode, TableGraphNode


class TableAccess:
    """Access to a table: reading its rows, and requesting old values in its changes."""

    def getter(self) -> GetterSupplier:
        """Return the getter of the table. This may materialize the table."""
        raise NotImplementedError

    def send_old_values(self, force: bool) -> bool:
        """Add old values to the changes, if possible; return whether they contain them.

        Args:
            force: whether to materialize the table if this is necessary.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class StoredTable(TableAccess):
    """The result of an aggregation, which always has a store."""

    store: str
    nodes: Sequence[TableGraphNode]

    def getter(self) -> GetterSupplier:
        return StoreGetterSupplier(self.store)

    def send_old_values(self, force: bool) -> bool:
        for node in self.nodes:
            node.send_old_values = True
        return True


@dataclass(frozen=True, slots=True, eq=False)
class SourceTable(TableAccess):
    """A table with a named store, or with a store that is created if an operation needs it."""

    node: LazyTableGraphNode

    def getter(self) -> GetterSupplier:
        self.node.materialized = True
        return StoreGetterSupplier(self.node.store_name)

    def send_old_values(self, force: bool) -> bool:
        if not force and not self.node.materialized:
            return False
        self.node.materialized = True
        self.node.send_old_values = True
        return True


@dataclass(frozen=True, slots=True, eq=False)
class DerivedTable(TableAccess):
    """A filtered or mapped table: with its own store, or computed from another table."""

    node: TableGraphNode
    parent: TableAccess
    computed: Callable[[GetterSupplier], GetterSupplier]
    store: str | None

    def getter(self) -> GetterSupplier:
        if self.store is not None:
            return StoreGetterSupplier(self.store)
        return self.computed(self.parent.getter())

    def send_old_values(self, force: bool) -> bool:
        # Without a store, old values are computed from those of the parent.
        if self.store is None and not self.parent.send_old_values(force):
            return False
        self.node.send_old_values = True
        return True


@dataclass(frozen=True, slots=True, eq=False)
class JoinedTable(TableAccess):
    """A join of two tables by their keys: with its own store, or computed from both tables."""

    merger: TableGraphNode
    sides: tuple[TableGraphNode, TableGraphNode]
    tables: tuple[TableAccess, TableAccess]
    computed: Callable[[GetterSupplier, GetterSupplier], JoinedGetterSupplier]
    store: str | None

    def getter(self) -> GetterSupplier:
        if self.store is not None:
            return StoreGetterSupplier(self.store)
        return self.computed(self.tables[0].getter(), self.tables[1].getter())

    def send_old_values(self, force: bool) -> bool:
        for table in self.tables:
            table.send_old_values(True)
        for node in (*self.sides, self.merger):
            node.send_old_values = True
        return True


@dataclass(frozen=True, slots=True)
class TablePart:
    """The state of a `KTable`: its position in the graph, and the access to its rows."""

    part: StreamPart
    access: TableAccess
    #: None if the table has no store or the name of its store is generated.
    queryable_store_name: str | None

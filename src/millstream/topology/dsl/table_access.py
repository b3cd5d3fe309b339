"""Access of downstream operations to the rows and old values of tables.

A downstream operation may require that a table has a store, or that its changes contain old values.
Each `KTable` therefore has a `TableAccess`, which forwards these requests to the upstream tables
while the topology is being built (Kafka Streams: `KTableImpl.valueGetterSupplier` and
`enableSendingOldValues`).
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
        """Request old values in changes; return whether the changes will contain them.

        Args:
            force: whether to materialize a table if old values are not available otherwise.
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
    """A table whose store is named, or is created if an operation needs it."""

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
    """A filtered or mapped table, with its own store or computed from another table."""

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
    """A join of two tables by key, with its own store or computed from both tables."""

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

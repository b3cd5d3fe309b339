"""What a table can tell to the operations behind it: how to read it, and what it replaced.

Whether a table keeps a store, and whether its changes tell what they replace, may depend on what
is done with it later. So each `KTable` holds a `TableInner`, which passes such wishes up the graph
while the program is still being written (Kafka Streams: `KTableImpl.valueGetterSupplier` and
`enableSendingOldValues`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millstream.operators.tables.value_getter import GetterSupplier, JoinedGetter, StoreGetter
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.table_nodes import LazyTableGraphNode, TableGraphNode


class TableInner:
    """How a table is read, and how it is made to tell what its changes replace."""

    def getter(self) -> GetterSupplier:
        """Whatever reads the table. Asking for it may give the table a store."""
        raise NotImplementedError

    def send_old_values(self, force: bool) -> bool:
        """Let changes tell what they replace, if that is possible.

        Args:
            force: give a table a store if it takes one to know.

        Returns:
            Whether they will.
        """
        raise NotImplementedError


class StoredTable(TableInner):
    """A table that always has a store: that of an aggregation.

    Args:
        store: the name of the store.
        nodes: those that write it, one for each group that is aggregated.
    """

    def __init__(self, store: str, *nodes: TableGraphNode) -> None:
        self._store = store
        self._nodes = nodes

    def getter(self) -> GetterSupplier:
        """Reads the store."""
        return StoreGetter(self._store)

    def send_old_values(self, force: bool) -> bool:
        """The store knows what a change replaces."""
        for node in self._nodes:
            node.send_old_values = True
        return True


class SourceTable(TableInner):
    """A table that has a store if it was given one, or once somebody needs it.

    Args:
        node: the node that writes the store.
    """

    def __init__(self, node: LazyTableGraphNode) -> None:
        self._node = node

    def getter(self) -> GetterSupplier:
        """Reads the store, which there is from now on."""
        self._node.materialized = True
        return StoreGetter(self._node.store_name)

    def send_old_values(self, force: bool) -> bool:
        """Only a store knows what a change replaces."""
        if not force and not self._node.materialized:
            return False
        self._node.materialized = True
        self._node.send_old_values = True
        return True


class DerivedTable(TableInner):
    """A filtered or mapped table: with a store of its own, or computed from another table.

    Args:
        node: its node.
        parent: the table that it is computed from.
        computed: makes the getter of this table from that of the other.
        store: the name of its own store, if it has one.
    """

    def __init__(
        self,
        node: TableGraphNode,
        parent: TableInner,
        computed: Callable[[GetterSupplier], GetterSupplier],
        store: str | None,
    ) -> None:
        self._node = node
        self._parent = parent
        self._computed = computed
        self._store = store

    def getter(self) -> GetterSupplier:
        """Reads the own store, or the table that this one is computed from."""
        if self._store is not None:
            return StoreGetter(self._store)
        return self._computed(self._parent.getter())

    def send_old_values(self, force: bool) -> bool:
        """Without a store, what a change replaces is computed from what it replaced above."""
        if self._store is None and not self._parent.send_old_values(force):
            return False
        self._node.send_old_values = True
        return True


class JoinedTable(TableInner):
    """A join of two tables by their keys.

    Args:
        merger: the node that brings the results of both sides together.
        sides: the nodes that join the changes of either table.
        tables: the two tables.
        computed: makes the getter of the join from those of the tables.
        store: the name of its own store, if it has one.
    """

    def __init__(
        self,
        merger: TableGraphNode,
        sides: tuple[TableGraphNode, TableGraphNode],
        tables: tuple[TableInner, TableInner],
        computed: Callable[[GetterSupplier, GetterSupplier], JoinedGetter],
        store: str | None,
    ) -> None:
        self._merger = merger
        self._sides = sides
        self._tables = tables
        self._computed = computed
        self._store = store

    def getter(self) -> GetterSupplier:
        """Reads the own store, or both tables."""
        if self._store is not None:
            return StoreGetter(self._store)
        return self._computed(self._tables[0].getter(), self._tables[1].getter())

    def send_old_values(self, force: bool) -> bool:
        """What a change replaces is joined from what it replaced in the table that changed."""
        for table in self._tables:
            table.send_old_values(True)
        for node in (*self._sides, self._merger):
            node.send_old_values = True
        return True


@dataclass(frozen=True, slots=True)
class TablePart:
    """What a `KTable` is made of.

    Args:
        part: the node that it comes out of, and what is known about its records.
        inner: how it is read.
        queryable_store_name: the store in which it can be queried; None if it has none, or one
            without a name of the user's.
    """

    part: StreamPart
    inner: TableInner
    queryable_store_name: str | None

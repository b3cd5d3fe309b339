"""Joins of two tables by their keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from millstream.operators.joins.table_join import Side
from millstream.operators.tables.value_getter import JoinedGetterSupplier
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import check_same_builder
from millstream.topology.dsl.table_access import JoinedTable, TablePart
from millstream.topology.logical.graph_nodes import is_versioned
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.naming import suffixed_name
from millstream.topology.operations.tables import TableJoin, TableJoinMerge
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized
from millstream.topology.physical.topology import Topology

#: For each DSL method, how rows of this table and of the other table without a partner are handled.
_SIDES: dict[str, tuple[Side, Side]] = {
    "join": ("inner", "inner"),
    "left_join": ("left", "right"),
    "outer_join": ("outer", "outer"),
}


def join_by_key(
    this: TablePart,
    other: TablePart,
    joiner: Callable[[Any, Any], Any],
    operation: str,
    store: StoreChoice,
    name: str | None,
) -> TablePart:
    """Return the join of two tables by their keys.

    As in Kafka Streams, numbers are taken first by the store (if `store=` is set but contains no
    name), then by the merge node, the node of this table, and the node of the other table.
    """
    part, names = this.part, this.part.graph.names
    check_same_builder(part.graph, other.part.graph, "joined")
    choice = None if store is None else materialized(store)
    key_serde, builder = part.key_serde, None
    if choice is not None:
        builder = key_value_builder(
            choice, names, "KTABLE-MERGE-", key_serde=key_serde, value_serde=None
        )
        key_serde = builder.key_serde
    store_name = None if builder is None else builder.name
    merger = names.processor("KTABLE-MERGE-", name)
    part.graph.copartition(part.sources.united(other.part.sources))
    this_side, other_side = _SIDES[operation]
    if this_side != "inner":
        this.access.send_old_values(True)
    if this_side == "outer":
        other.access.send_old_values(True)
    this_getter, other_getter = this.access.getter(), other.access.getter()
    node = _JoinGraphNode(
        name=merger,
        declared_at=call_site(),
        operation=TableJoinMerge(store=store_name),
        output_versioned=choice is not None and choice.is_versioned,
        store_builder=builder,
        value_serde=None if builder is None else builder.value_serde,
        store_name_generated=choice is not None and choice.store_name is None,
        this_side=TableGraphNode(
            name=suffixed_name(names, name, "-join-this", "KTABLE-JOINTHIS-"),
            declared_at=call_site(),
            operation=TableJoin(other_getter, joiner, this_side),
            store_names=other_getter.stores,
        ),
        other_side=TableGraphNode(
            name=suffixed_name(names, name, "-join-other", "KTABLE-JOINOTHER-"),
            declared_at=call_site(),
            operation=TableJoin(this_getter, joiner, other_side, from_right=True),
            store_names=this_getter.stores,
        ),
    )
    part.graph.attach(node, part.node, other.part.node)
    return _joined_table(this, other, joiner, operation, node, key_serde)


def _joined_table(
    this: TablePart,
    other: TablePart,
    joiner: Callable[[Any, Any], Any],
    operation: str,
    node: _JoinGraphNode,
    key_serde: Serde[Any] | None,
) -> TablePart:
    builder = node.store_builder
    store_name = None if builder is None else builder.name
    computed = partial(
        JoinedGetterSupplier,
        joiner=joiner,
        needs_left=operation != "outer_join",
        needs_right=operation == "join",
    )
    part = replace(
        this.part,
        node=node,
        key_serde=key_serde,
        value_serde=node.value_serde,
        sources=this.part.sources.united(other.part.sources),
        repartition_required=False,
    )
    sides, tables = (node.this_side, node.other_side), (this.access, other.access)
    return TablePart(part, JoinedTable(node, sides, tables, computed, store_name), store_name)


@dataclass(eq=False, slots=True, kw_only=True)
class _JoinGraphNode(TableGraphNode):
    """A join of two tables: a node for the changes of each table, and a merge node."""

    this_side: TableGraphNode
    other_side: TableGraphNode
    value_serde: Serde[Any] | None

    def write(self, topology: Topology) -> None:
        # A table that is joined with itself is the only parent.
        sides = ((self.this_side, self.parents[0]), (self.other_side, self.parents[-1]))
        for side, table in sides:
            operation = side.complete_operation()
            assert isinstance(operation, TableJoin)
            operation = replace(operation, versioned=is_versioned(table))
            topology._add_operation(side.name, operation, table.name, side.declared_at)
        names = [side.name for side, _ in sides]
        topology._add_operation(self.name, self.complete_operation(), names, self.declared_at)
        for side, _ in sides:
            topology.connect_processor_and_state_stores(side.name, *side.store_names)
        if self.store_builder is not None:
            topology.add_state_store(
                self.store_builder, self.name, generated_name=self.store_name_generated
            )

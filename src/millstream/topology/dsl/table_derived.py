"""The table of an operation that computes rows from rows: filters, maps, transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from millstream.operators.tables.value_getter import GetterSupplier
from millstream.topology.call_site import call_site
from millstream.topology.dsl.table_part import DerivedTable, TablePart
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.operations.operation import KeepableTableOperation
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized


def derived_table(
    table: TablePart,
    prefix: str,
    store: StoreChoice,
    name: str | None,
    operation: KeepableTableOperation,
    getter: Callable[[GetterSupplier], GetterSupplier],
    *,
    keeps_values: bool = False,
    other_stores: tuple[str, ...] = (),
) -> TablePart:
    """The table of an operation that computes rows from rows.

    Follows Kafka Streams: it has a store only if that has a name; without one, `store=` takes a
    number all the same, except in `transform_values`.

    Args:
        table: what it is computed from.
        prefix: of the generated name of its node.
        store: where it is kept.
        name: of the operation.
        operation: what computes it, still without a store.
        getter: how it is read if it is not kept.
        keeps_values: whether it is a filter, so that its values are those of the other table.
        other_stores: the names of those that the operator uses.

    Raises:
        TopologyError: the store cannot be had.
    """
    part, names = table.part, table.part.graph.names
    value_serde = part.value_serde if keeps_values else None
    key_serde, builder, versioned = part.key_serde, None, None
    if store is not None:
        choice = materialized(store)
        versioned = choice.is_versioned
        if choice.store_name is not None:
            builder = key_value_builder(
                choice, names, prefix, key_serde=key_serde, value_serde=value_serde
            )
        elif prefix != "KTABLE-TRANSFORMVALUES-":
            names.store(prefix)
        key_serde = key_serde if choice.key is None else choice.key
        value_serde = value_serde if choice.value is None else choice.value
    kept_in = None if builder is None else builder.name
    node = TableGraphNode(
        name=names.processor(prefix, name),
        declared_at=call_site(),
        operation=replace(operation, store=kept_in),
        output_versioned=versioned,
        store_builder=builder,
        store_names=other_stores,
    )
    part.graph.attach(node, part.node)
    if keeps_values and table.inner.send_old_values(False):
        # A filter that knows what a change replaces leaves out deletions of nothing.
        node.send_old_values = True
    kept = replace(part, node=node, key_serde=key_serde, value_serde=value_serde)
    return TablePart(kept, DerivedTable(node, table.inner, getter, kept_in), kept_in)

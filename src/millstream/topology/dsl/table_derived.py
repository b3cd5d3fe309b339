"""Tables derived from a stream, or computed row by row from another table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.operators.tables.value_getter import GetterSupplier
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_access import DerivedTable, SourceTable, TablePart
from millstream.topology.logical.table_nodes import LazyTableGraphNode, TableGraphNode
from millstream.topology.operations.operation import MaterializableOperation
from millstream.topology.operations.tables import TableSource
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized


def to_table(
    part: StreamPart,
    *,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    store: StoreChoice,
    name: str | None,
) -> TablePart:
    """Return the table that a stream's records define.

    Raises:
        TopologyError: the store is not valid, or the name is not legal.
    """
    names = part.graph.names
    node_name = names.processor("KSTREAM-TOTABLE-", name)
    choice = materialized(store)
    builder = key_value_builder(
        choice,
        names,
        "KSTREAM-TOTABLE-",
        key_serde=part.key_serde if key is None else key,
        value_serde=part.value_serde if value is None else value,
    )
    if part.repartition_required:
        # The topic uses the serdes of the store.
        part = part.with_serdes(builder.key_serde, builder.value_serde)
        repartition = part.repartition_node(node_name, generated=name is None)
        part.graph.attach(repartition, part.node)
        part = part.repartitioned(repartition)
    node = LazyTableGraphNode(
        name=node_name,
        declared_at=call_site(),
        operation=TableSource(),
        lazy_store=builder,
        store_name_generated=choice.store_name is None,
        materialized=choice.store_name is not None,
        output_versioned=choice.is_versioned,
    )
    part.graph.attach(node, part.node)
    table = replace(part, node=node, key_serde=builder.key_serde, value_serde=builder.value_serde)
    return TablePart(table, SourceTable(node), choice.store_name)


def derived_table(
    table: TablePart,
    prefix: str,
    store: StoreChoice,
    name: str | None,
    operation: MaterializableOperation,
    getter: Callable[[GetterSupplier], GetterSupplier],
    *,
    keeps_values: bool = False,
    other_stores: tuple[str, ...] = (),
) -> TablePart:
    """Return a table that is computed row by row from another table.

    As in Kafka Streams, the table has a store only if `store=` contains a name. A `store=` without
    a name still takes a number, except in `transform_values`.

    Args:
        getter: called with the getter of the parent; returns the getter of the table if the table
            has no store.
        keeps_values: whether the operation is a filter, which does not change values.

    Raises:
        TopologyError: the store is not valid.
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
    store_name = None if builder is None else builder.name
    node = TableGraphNode(
        name=names.processor(prefix, name),
        declared_at=call_site(),
        operation=replace(operation, store=store_name),
        output_versioned=versioned,
        store_builder=builder,
        store_names=other_stores,
    )
    part.graph.attach(node, part.node)
    if keeps_values and table.access.send_old_values(False):
        # With old values, a filter can skip deletions of rows that did not exist.
        node.send_old_values = True
    derived = replace(part, node=node, key_serde=key_serde, value_serde=value_serde)
    return TablePart(derived, DerivedTable(node, table.access, getter, store_name), store_name)

"""A stream taken for the changes of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_part import SourceTable, TablePart
from millstream.topology.logical.repartition import repartition_node
from millstream.topology.logical.table_nodes import LazyTableGraphNode
from millstream.topology.operations.tables import TableSource
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized
from millstream.topology.physical.source_names import SourceNames


def to_table(
    part: StreamPart,
    *,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    store: StoreChoice,
    name: str | None,
) -> TablePart:
    """The table whose changes the records of a stream are.

    Args:
        part: the stream.
        key: the serde of the keys; None for that of the stream.
        value: the serde of the values; None for that of the stream.
        store: where the table is kept.
        name: of the operation.

    Raises:
        TopologyError: the store cannot be had, or the name is not legal.
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
    placed = _placed_by_key(part, builder.key_serde, builder.value_serde, node_name, name)
    node = LazyTableGraphNode(
        name=node_name,
        declared_at=call_site(),
        operation=TableSource(),
        lazy_store=builder,
        store_name_generated=choice.store_name is None,
        materialized=choice.store_name is not None,
        output_versioned=choice.is_versioned,
    )
    part.graph.attach(node, placed.node)
    kept = replace(placed, node=node, key_serde=builder.key_serde, value_serde=builder.value_serde)
    return TablePart(kept, SourceTable(node), choice.store_name)


def _placed_by_key(
    part: StreamPart,
    key_serde: Serde[Any] | None,
    value_serde: Serde[Any] | None,
    node_name: str,
    name: str | None,
) -> StreamPart:
    """The stream after repartitioning, if keys may have changed."""
    if not part.repartition_required:
        return part
    node = repartition_node(
        part.graph.names,
        node_name,
        key_serde=key_serde,
        value_serde=value_serde,
        declared_at=call_site(),
        generated=name is None,
    )
    part.graph.attach(node, part.node)
    return replace(part, node=node, sources=SourceNames([node.name]), repartition_required=False)

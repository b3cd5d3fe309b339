"""The table of an aggregation of a grouped stream, by key alone or by key and window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.grouping import Grouping
from millstream.topology.dsl.table_part import StoredTable, TablePart
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.operations.operation import TableOperation
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    TableStoreBuilder,
    key_value_builder,
    materialized,
)
from millstream.topology.options.materialized_windows import WindowedStoreBuilder


def aggregated_table(
    grouping: Grouping,
    prefix: str,
    choice: Materialized[Any, Any],
    name: str | None,
    operation: Callable[[str], TableOperation],
    value_serde: Serde[Any] | None,
) -> TablePart:
    """The table of an aggregation by key. Numbers go to its store, its node, its repartitioning.

    Args:
        grouping: what is aggregated.
        prefix: of the node's name.
        choice: what the user said about the store.
        name: the user's name for the node.
        operation: what the node does, from the name of the store.
        value_serde: of the aggregates, unless the user chose one.
    """
    graph = grouping.part.graph
    builder = key_value_builder(
        choice,
        graph.names,
        prefix,
        key_serde=grouping.part.key_serde,
        value_serde=value_serde,
    )
    node = TableGraphNode(
        name=graph.names.processor(prefix, name),
        declared_at=call_site(),
        operation=operation(builder.name),
        output_versioned=choice.is_versioned,
        store_builder=builder,
        store_name_generated=choice.store_name is None,
    )
    return _table(grouping, choice, node, builder, builder.key_serde)


def windowed_table(
    grouping: Grouping,
    prefix: str,
    choice: Materialized[Any, Any],
    name: str | None,
    *,
    builder: WindowedStoreBuilder,
    operation: TableOperation,
    key_serde: Serde[Any],
    grace_ms: int,
) -> TablePart:
    """The table of an aggregation by windows. Numbers go to its node and its repartitioning.

    Args:
        grouping: what is aggregated.
        prefix: of the node's name.
        choice: what the user said about the store.
        name: the user's name for the node.
        builder: of the store, which has its name already.
        operation: what the node does.
        key_serde: of the windowed keys.
        grace_ms: how long after its end a window may still change.
    """
    node = TableGraphNode(
        name=grouping.part.graph.names.processor(prefix, name),
        declared_at=call_site(),
        operation=operation,
        store_builder=builder,
        store_name_generated=choice.store_name is None,
        grace_ms=grace_ms,
    )
    return _table(grouping, choice, node, builder, key_serde)


def _table(
    grouping: Grouping,
    choice: Materialized[Any, Any],
    node: TableGraphNode,
    builder: TableStoreBuilder | WindowedStoreBuilder,
    key_serde: Serde[Any] | None,
) -> TablePart:
    """Place the node after the grouping, which may have to repartition for it."""
    placed = grouping.placed_by_key(builder.name, store_name_generated=node.store_name_generated)
    grouping.part.graph.attach(node, placed.node)
    part = replace(placed, node=node, key_serde=key_serde, value_serde=builder.value_serde)
    return TablePart(part, StoredTable(builder.name, node), choice.store_name)


def count_choice(grouping: Grouping, store: StoreChoice) -> Materialized[Any, Any]:
    """Where counts are kept.

    Args:
        grouping: what is counted.
        store: what the user said.
    """
    choice = materialized(store)
    if store is not None and choice.store_name is None:
        # Follows Kafka Streams: count(Materialized) without a name takes two numbers.
        grouping.part.graph.names.store("KSTREAM-AGGREGATE-")
    return choice

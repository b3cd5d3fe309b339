"""Aggregations of grouped and cogrouped streams, by key or by key and window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

from millstream.operators.aggregates.cached_loops import Aggregator
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart, check_same_builder
from millstream.topology.dsl.table_access import StoredTable, TablePart
from millstream.topology.logical.graph_nodes import (
    GraphNode,
    OperatorGraphNode,
    RepartitionGraphNode,
)
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.operations.aggregations import SessionAggregation, WindowedAggregation
from millstream.topology.operations.operation import TableOperation
from millstream.topology.operations.streams import PassThrough
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    TableStoreBuilder,
    WindowedStoreBuilder,
    key_value_builder,
    materialized,
    session_builder,
    window_builder,
)
from millstream.topology.options.windows import AnyWindows, SessionWindows
from millstream.topology.physical.java_order import SourceNames
from millstream.topology.physical.windowed_serdes import session_windowed_serde, time_windowed_serde
from millstream.windowed import Windowed


class Grouping:
    """A grouped stream.

    If it has a name, its aggregations share one repartition topic.
    """

    def __init__(self, part: StreamPart, name: str | None) -> None:
        self.part = part
        self.name = name
        self._repartition: RepartitionGraphNode | None = None

    def repartition_node(
        self, store_name: str, *, store_name_generated: bool
    ) -> RepartitionGraphNode:
        """Return a new repartition node, which uses three numbers for generated names."""
        return self.part.repartition_node(
            self.name or store_name, generated=self.name is None and store_name_generated
        )

    def repartitioned(self, store_name: str, *, store_name_generated: bool) -> StreamPart:
        """Return the stream, repartitioned if its keys may have changed."""
        part = self.part
        if not part.repartition_required:
            return part
        node = self.repartition_node(store_name, store_name_generated=store_name_generated)
        if self._repartition is None or self.name is None:
            self._repartition = node
        part.graph.attach(self._repartition, part.node)
        return part.repartitioned(self._repartition)


def aggregated_table(
    grouping: Grouping,
    prefix: str,
    choice: Materialized[Any, Any],
    name: str | None,
    operation: Callable[[str], TableOperation],
    value_serde: Serde[Any] | None,
) -> TablePart:
    """Return the table of an aggregation by key.

    Generated names are numbered in this order: the store, the node and the repartition node.

    Args:
        operation: called with the name of the store; returns the operation of the node.
    """
    graph = grouping.part.graph
    builder = key_value_builder(
        choice, graph.names, prefix, key_serde=grouping.part.key_serde, value_serde=value_serde
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
    windows: AnyWindows,
    operation: Callable[..., WindowedAggregation | SessionAggregation],
    value_serde: Serde[Any] | None,
    emit_final: bool,
) -> TablePart:
    """Return the table of an aggregation by key and window.

    Generated names are numbered in this order: the store, the node and the repartition node.

    Args:
        operation: called with the name of the store, `windows` and `emit_final`; returns the
            operation of the node.
    """
    builder, key_serde, grace_ms = _windowed_store(
        grouping.part, choice, prefix, windows, value_serde, emit_final
    )
    node = TableGraphNode(
        name=grouping.part.graph.names.processor(prefix, name),
        declared_at=call_site(),
        operation=operation(builder.name, windows=windows, emit_final=emit_final),
        store_builder=builder,
        store_name_generated=choice.store_name is None,
        grace_ms=grace_ms,
    )
    return _table(grouping, choice, node, builder, key_serde)


def _windowed_store(
    part: StreamPart,
    choice: Materialized[Any, Any],
    prefix: str,
    windows: AnyWindows,
    value_serde: Serde[Any] | None,
    emit_final: bool,
) -> tuple[WindowedStoreBuilder, Serde[Windowed[Any]], int]:
    """Return the store, the serde of its keys, and the grace period of the windows.

    For sessions, the grace period includes the inactivity gap.
    """
    names, key = part.graph.names, part.key_serde
    if isinstance(windows, SessionWindows):
        store = session_builder(choice, names, prefix, windows, key, value_serde, emit_final)
        return store, session_windowed_serde(store.key_serde), windows.retention_ms
    builder = window_builder(choice, names, prefix, windows, key, value_serde, emit_final)
    return builder, time_windowed_serde(builder.key_serde, windows.size_ms), windows.grace_ms


def _table(
    grouping: Grouping,
    choice: Materialized[Any, Any],
    node: TableGraphNode,
    builder: TableStoreBuilder | WindowedStoreBuilder,
    key_serde: Serde[Any] | None,
) -> TablePart:
    """Attach the node to the stream, and return the node's table.

    The stream is repartitioned if needed.
    """
    grouped = grouping.repartitioned(builder.name, store_name_generated=node.store_name_generated)
    grouping.part.graph.attach(node, grouped.node)
    part = replace(grouped, node=node, key_serde=key_serde, value_serde=builder.value_serde)
    return TablePart(part, StoredTable(builder.name, [node]), choice.store_name)


def count_materialized(grouping: Grouping, store: StoreChoice) -> Materialized[Any, Any]:
    choice = materialized(store)
    if store is not None and choice.store_name is None:
        # As in Kafka Streams, count(Materialized) without a store name uses up two numbers.
        grouping.part.graph.names.store("KSTREAM-AGGREGATE-")
    return choice


COGROUP_PREFIX = "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"


class Cogrouping:
    """Grouped streams with the same keys, each with its own aggregator.

    The key serde of the first stream is used for the aggregates.
    """

    def __init__(self, grouping: Grouping, aggregator: Aggregator) -> None:
        self.first = grouping.part
        self._aggregators: dict[Grouping, Aggregator] = {grouping: aggregator}
        # For each grouped stream, the node that provides its records after repartitioning. All
        # aggregations of this object share these nodes.
        self._input_nodes: dict[Grouping, GraphNode] = {}

    def add(self, grouping: Grouping, aggregator: Aggregator) -> None:
        """Add another grouped stream.

        Raises:
            TopologyError: the stream belongs to another builder.
        """
        check_same_builder(self.first.graph, grouping.part.graph, "cogrouped")
        self._aggregators[grouping] = aggregator

    def aggregated(
        self,
        choice: Materialized[Any, Any],
        name: str | None,
        builder: TableStoreBuilder | WindowedStoreBuilder,
        operation: Callable[[Aggregator], TableOperation],
        key_serde: Serde[Any] | None,
        grace_ms: int | None = None,
    ) -> TablePart:
        """Return the aggregated table.

        The table has one node per grouped stream, a shared store, and a merge node. Generated names
        are numbered in this order: the repartition nodes, then the other nodes.

        Args:
            operation: called with the aggregator of a grouped stream; returns the operation of its
                node.
            grace_ms: how long after its end a window may still change; None if there are no
                windows.
        """
        graph = self.first.graph
        generated = choice.store_name is None
        self._repartition_groups(builder.name, store_name_generated=generated)
        site = call_site()
        nodes: list[TableGraphNode] = []
        for number, (grouping, aggregator) in enumerate(self._aggregators.items()):
            explicit = None if name is None else f"{name}-cogroup-agg-{number}"
            node = TableGraphNode(
                name=graph.names.processor(COGROUP_PREFIX, explicit),
                declared_at=site,
                operation=operation(aggregator),
                output_versioned=choice.is_versioned,
                store_builder=builder if number == 0 else None,
                store_name_generated=generated,
                store_names=() if number == 0 else (builder.name,),
                grace_ms=grace_ms,
            )
            graph.attach(node, self._input_nodes[grouping])
            nodes.append(node)
        explicit = None if name is None else f"{name}-cogroup-merge"
        merge = OperatorGraphNode(
            name=graph.names.processor(_MERGE, explicit), declared_at=site, operation=PassThrough()
        )
        graph.attach(merge, *nodes)
        sources = graph.alias_sources(merge.name, self._sources())
        part = StreamPart(graph, merge, key_serde, builder.value_serde, sources)
        return TablePart(part, StoredTable(builder.name, nodes), choice.store_name)

    def windowed(
        self,
        choice: Materialized[Any, Any],
        name: str | None,
        windows: AnyWindows,
        operation: Callable[[str, Aggregator], TableOperation],
    ) -> TablePart:
        """Return the table of an aggregation by key and window; see `aggregated`.

        Args:
            operation: called with the name of the store and the aggregator of a grouped stream;
                returns the operation of its node.
        """
        builder, key_serde, grace_ms = _windowed_store(
            self.first, choice, COGROUP_PREFIX, windows, None, False
        )
        group_operation = partial(operation, builder.name)
        return self.aggregated(choice, name, builder, group_operation, key_serde, grace_ms)

    def _repartition_groups(self, store_name: str, *, store_name_generated: bool) -> None:
        """Repartition the grouped streams whose keys may have changed."""
        graph = self.first.graph
        for grouping in self._aggregators:
            part = grouping.part
            if not part.repartition_required:
                self._input_nodes[grouping] = part.node
                continue
            node = grouping.repartition_node(store_name, store_name_generated=store_name_generated)
            if grouping not in self._input_nodes:
                graph.attach(node, part.node)
                self._input_nodes[grouping] = node
        # As in Kafka Streams, the sources before repartitioning are co-partitioned.
        input_sources = [each.part.sources.in_order for each in self._input_nodes]
        graph.copartition(SourceNames(chain.from_iterable(input_sources)))

    def _sources(self) -> SourceNames:
        sources = SourceNames([])
        for grouping, node in self._input_nodes.items():
            part = grouping.part
            own = SourceNames([node.name]) if part.repartition_required else part.sources
            sources = sources.united(own)
        return sources

"""Several groups aggregated together, on one store."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from millstream.operators.aggregates.cached_loops import Aggregator
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.grouping import Grouping
from millstream.topology.dsl.stream_part import StreamPart, check_same_builder
from millstream.topology.dsl.table_part import StoredTable, TablePart
from millstream.topology.logical.graph_nodes import GraphNode, OperatorGraphNode
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.operations.operation import TableOperation
from millstream.topology.operations.streams import PassThrough
from millstream.topology.options.materialized import Materialized, TableStoreBuilder
from millstream.topology.options.materialized_windows import WindowedStoreBuilder
from millstream.topology.physical.source_names import SourceNames

COGROUP_PREFIX = "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"


class Cogrouping:
    """Groups of equal keys, each with its own aggregator.

    Args:
        grouping: the first one, whose serdes are those of the aggregates' keys.
        aggregator: its aggregator.
    """

    def __init__(self, grouping: Grouping, aggregator: Aggregator) -> None:
        self.first = grouping.part
        self._aggregators: dict[Grouping, Aggregator] = {grouping: aggregator}
        # Where records of each group come from once they are placed by key; shared by all
        # aggregations of this object.
        self._placed: dict[Grouping, GraphNode] = {}

    def add(self, grouping: Grouping, aggregator: Aggregator) -> None:
        """Let another group take part.

        Raises:
            TopologyError: it belongs to another builder.
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
        """One node for each group, all on one store, and one that brings their results together.

        Numbers go to the repartitioning of the groups, then to the nodes.

        Args:
            choice: what the user said about the store.
            name: the user's name for the operation.
            builder: of the store, which has its name already.
            operation: what the node of a group does, from its aggregator.
            key_serde: of the table's keys.
            grace_ms: how long after its end a window may still change; None without windows.
        """
        graph = self.first.graph
        generated = choice.store_name is None
        self._place_by_key(builder.name, store_name_generated=generated)
        site = call_site()
        nodes: list[TableGraphNode] = []
        for number, (grouping, aggregator) in enumerate(self._aggregators.items()):
            given = None if name is None else f"{name}-cogroup-agg-{number}"
            node = TableGraphNode(
                name=graph.names.processor(COGROUP_PREFIX, given),
                declared_at=site,
                operation=operation(aggregator),
                output_versioned=choice.is_versioned,
                store_builder=builder if number == 0 else None,
                store_name_generated=generated,
                store_names=() if number == 0 else (builder.name,),
                grace_ms=grace_ms,
            )
            graph.attach(node, self._placed[grouping])
            nodes.append(node)
        given = None if name is None else f"{name}-cogroup-merge"
        merge = OperatorGraphNode(
            name=graph.names.processor(_MERGE, given), declared_at=site, operation=PassThrough()
        )
        graph.attach(merge, *nodes)
        sources = graph.stand_in(merge.name, self._sources())
        part = StreamPart(graph, merge, key_serde, builder.value_serde, sources)
        return TablePart(part, StoredTable(builder.name, *nodes), choice.store_name)

    def _place_by_key(self, store_name: str, *, store_name_generated: bool) -> None:
        """Repartition the groups whose keys may have changed."""
        graph = self.first.graph
        for grouping in self._aggregators:
            part = grouping.part
            if not part.repartition_required:
                self._placed[grouping] = part.node
                continue
            node = grouping.repartition_node(store_name, store_name_generated=store_name_generated)
            if grouping not in self._placed:
                graph.attach(node, part.node)
                self._placed[grouping] = node
        # Follows Kafka Streams: these are the topics before repartitioning.
        placed = [each.part.sources.in_order for each in self._placed]
        graph.copartition(SourceNames(chain.from_iterable(placed)))

    def _sources(self) -> SourceNames:
        """The sources from which the tasks of the aggregation read."""
        read = SourceNames([])
        for grouping, node in self._placed.items():
            part = grouping.part
            own = SourceNames([node.name]) if part.repartition_required else part.sources
            read = read.united(own)
        return read

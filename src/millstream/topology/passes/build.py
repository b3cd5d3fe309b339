"""From the logical graph to the physical topology: all passes, in Kafka Streams' order.

Sources that read the same topics are merged, the graph is optimized if that was asked for, and its
nodes write themselves into a `Topology`: each after its parents, otherwise in the order of
attaching. That order decides the numbers of sub-topologies, so it is Kafka Streams' own
(`InternalStreamsBuilder`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from itertools import islice

from millstream.config_optimization import (
    MERGE_REPARTITION_TOPICS,
    REUSE_KTABLE_SOURCE_TOPICS,
    SINGLE_STORE_SELF_JOIN,
)
from millstream.topology.logical.graph import LogicalGraph
from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.logical_plan import LogicalNode, LogicalPlan
from millstream.topology.passes.merge_repartitions import merge_repartition_topics
from millstream.topology.passes.merge_sources import merge_sources
from millstream.topology.passes.null_keys import let_null_keys_pass
from millstream.topology.passes.self_join import single_store_self_joins
from millstream.topology.passes.source_changelogs import reuse_source_topics
from millstream.topology.physical.nodes import ProcessorNode
from millstream.topology.physical.topology import Topology


def build_topology(graph: LogicalGraph, optimizations: frozenset[str]) -> Topology:
    """The physical topology of a graph, to which nothing can be added afterwards.

    Args:
        graph: what the user's program says; the passes change it, so it is built once.
        optimizations: by their names; they are applied in Kafka Streams' order.

    Raises:
        TopologyError: the graph contradicts itself.
    """
    merged = merge_sources(graph.root)
    moved: dict[str, str] = {}
    if MERGE_REPARTITION_TOPICS in optimizations:
        moved = merge_repartition_topics(graph.nodes, graph.names)
    if SINGLE_STORE_SELF_JOIN in optimizations:
        single_store_self_joins(graph.nodes)
    if REUSE_KTABLE_SOURCE_TOPICS in optimizations:
        reuse_source_topics(graph.nodes)
    let_null_keys_pass(graph.root)
    topology = Topology(graph.processor_wrapper)
    topology.optimizations = optimizations
    order = in_writing_order(graph.root)
    written = {node: _written(node, topology) for node in order}
    for sources, site in graph.copartitioned:
        true = {merged.get(name, name) for name in graph.true_sources(sources)}
        topology._copartition(
            sorted({moved.get(name, name) for name in true}),
            listed=[moved.get(name, name) for name in sources.in_order],
            declared_at=site,
        )
    topology._check_copartition()
    topology._logical_plan = _plan(written, topology)
    graph.is_built = True
    return topology


def _written(node: GraphNode, topology: Topology) -> tuple[str, ...]:
    """Let a node write itself; the names of the physical nodes that it became."""
    nodes, stores = len(topology.nodes), len(topology.global_stores)
    node.write(topology)
    added = list(islice(reversed(topology.nodes), len(topology.nodes) - nodes))[::-1]
    for store in islice(reversed(topology.global_stores), len(topology.global_stores) - stores):
        filled = topology.global_stores[store]
        added += [filled.source.name, filled.processor.name]
    return tuple(added)


def _plan(written: Mapping[GraphNode, tuple[str, ...]], topology: Topology) -> LogicalPlan:
    """What is kept of the nodes, once all stores are connected.

    Args:
        written: the nodes, each with the names of the physical ones that it became.
        topology: the topology of these.
    """
    processors = {
        node.name: node
        for node in (
            *topology.nodes.values(),
            *(filled.processor for filled in topology.global_stores.values()),
        )
        if isinstance(node, ProcessorNode)
    }
    kept = []
    for node, physical in written.items():
        if node.kind is None:
            continue
        own = [processors[name] for name in physical if name in processors]
        stores = dict.fromkeys(store for processor in own for store in processor.stores)
        kept.append(
            LogicalNode(
                node.kind,
                node.name,
                parents=tuple(parent.name for parent in node.parents if parent.kind is not None),
                operations=tuple(processor.operation for processor in own),
                physical=physical,
                stores=(node.name,) if node.kind == "store" else tuple(stores),
                topics=tuple(
                    topic for topic in node.read_topics if topic not in topology.internal_topics
                ),
                changes_key=node.changes_key,
                changes_value=node.changes_value,
                merges=node.merges,
                takes_null_keys=node.takes_null_keys,
                grace_ms=node.grace_ms,
                output_versioned=node.output_versioned,
                declared_at=node.declared_at,
            )
        )
    return LogicalPlan(tuple(kept))


def in_writing_order(root: GraphNode) -> list[GraphNode]:
    """The nodes that can be reached, in the order in which they become physical ones."""
    ordered: dict[GraphNode, None] = {}
    queue: list[tuple[int, int, GraphNode]] = [(root.priority, 0, root)]
    offered = 0
    while queue:
        node = heapq.heappop(queue)[2]
        # A node with several parents is offered by each, and its turn is after the last one's.
        if node in ordered or not all(parent in ordered for parent in node.parents):
            continue
        ordered[node] = None
        for child in node.children:
            offered += 1
            heapq.heappush(queue, (child.priority, offered, child))
    return list(ordered)

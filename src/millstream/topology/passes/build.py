"""From the logical graph to the physical topology: all passes, in Kafka Streams' order.

Sources that read the same topics are merged, the graph is optimized if that was asked for, and its
nodes write themselves into a `Topology`: each after its parents, otherwise in the order of
attaching. That order decides the numbers of sub-topologies, so it is Kafka Streams' own
(`InternalStreamsBuilder`).
"""

from __future__ import annotations

import heapq

from millstream.config_optimization import (
    MERGE_REPARTITION_TOPICS,
    REUSE_KTABLE_SOURCE_TOPICS,
    SINGLE_STORE_SELF_JOIN,
)
from millstream.topology.logical.graph import LogicalGraph
from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.passes.merge_repartitions import merge_repartition_topics
from millstream.topology.passes.merge_sources import merge_sources
from millstream.topology.passes.null_keys import let_null_keys_pass
from millstream.topology.passes.self_join import single_store_self_joins
from millstream.topology.passes.source_changelogs import reuse_source_topics
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
    topology = Topology()
    topology.optimizations = optimizations
    for node in in_writing_order(graph.root):
        node.write(topology)
    for sources, site in graph.copartitioned:
        true = {merged.get(name, name) for name in graph.true_sources(sources)}
        topology._copartition(
            sorted({moved.get(name, name) for name in true}),
            listed=[moved.get(name, name) for name in sources.in_order],
            declared_at=site,
        )
    topology._check_copartition()
    graph.is_built = True
    return topology


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

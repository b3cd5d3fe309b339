"""Creates the physical topology: runs all passes in the order of Kafka Streams.

Sources that read the same topics are merged, the requested optimizations are applied, and the nodes
are written into a `Topology`: each after its parents, and otherwise in the order in which they were
attached. This order determines the numbers of sub-topologies, so it follows Kafka Streams
(`InternalStreamsBuilder`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from itertools import islice

from millstream.config.validation import (
    MERGE_REPARTITION_TOPICS,
    REUSE_KTABLE_SOURCE_TOPICS,
    SINGLE_STORE_SELF_JOIN,
)
from millstream.topology.logical.graph_nodes import (
    GraphNode,
    RepartitionGraphNode,
    SourceGraphNode,
    StreamStreamJoinGraphNode,
)
from millstream.topology.logical.logical_graph import LogicalGraph
from millstream.topology.logical.table_nodes import TableSourceGraphNode
from millstream.topology.logical_plan import LogicalNode, LogicalPlan
from millstream.topology.passes.merge_repartitions import merge_repartition_topics
from millstream.topology.physical.nodes import ProcessorNode
from millstream.topology.physical.topology import Topology


def build_topology(graph: LogicalGraph, optimizations: frozenset[str]) -> Topology:
    """Return the physical topology of a graph.

    Nothing can be added to the graph afterwards. The passes change the graph, so it can only be
    built once.

    Raises:
        TopologyError: the graph is inconsistent.
    """
    merged = merge_sources(graph.root)
    moved: dict[str, str] = {}
    if MERGE_REPARTITION_TOPICS in optimizations:
        moved = merge_repartition_topics(graph.nodes, graph.names)
    if SINGLE_STORE_SELF_JOIN in optimizations:
        single_store_self_joins(graph.nodes)
    if REUSE_KTABLE_SOURCE_TOPICS in optimizations:
        reuse_source_topics(graph.nodes)
    allow_null_keys(graph.root)
    topology = Topology(graph.processor_wrapper)
    topology.optimizations = optimizations
    order = write_order(graph.root)
    written = {node: _write_node(node, topology) for node in order}
    for sources, site in graph.copartitioned:
        resolved = {merged.get(name, name) for name in graph.resolve_sources(sources)}
        topology._copartitioned.add(
            sorted({moved.get(name, name) for name in resolved}),
            [moved.get(name, name) for name in sources.in_order],
            site,
        )
    topology._copartitioned.check()
    topology._logical_plan = _logical_plan_of(written, topology)
    graph.is_built = True
    return topology


def _write_node(node: GraphNode, topology: Topology) -> tuple[str, ...]:
    """Write a node into the topology; return the names of its physical nodes."""
    nodes, stores = len(topology.nodes), len(topology.global_stores)
    node.write(topology)
    added = list(islice(reversed(topology.nodes), len(topology.nodes) - nodes))[::-1]
    for store in islice(reversed(topology.global_stores), len(topology.global_stores) - stores):
        global_store = topology.global_stores[store]
        added += [global_store.source.name, global_store.processor.name]
    return tuple(added)


def _logical_plan_of(
    written: Mapping[GraphNode, tuple[str, ...]], topology: Topology
) -> LogicalPlan:
    """Return the logical plan. All stores must be connected already."""
    processors = {
        node.name: node
        for node in (
            *topology.nodes.values(),
            *(store.processor for store in topology.global_stores.values()),
        )
        if isinstance(node, ProcessorNode)
    }
    logical_nodes = []
    for node, physical in written.items():
        if node.kind is None:
            continue
        own = [processors[name] for name in physical if name in processors]
        stores = dict.fromkeys(store for processor in own for store in processor.stores)
        logical_nodes.append(
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
                is_merge=node.is_merge,
                accepts_null_keys=node.accepts_null_keys,
                grace_ms=node.grace_ms,
                output_versioned=node.output_versioned,
                declared_at=node.declared_at,
            )
        )
    return LogicalPlan(tuple(logical_nodes))


def write_order(root: GraphNode) -> list[GraphNode]:
    """Return the reachable nodes in the order in which they are written."""
    ordered: dict[GraphNode, None] = {}
    queue: list[tuple[int, int, GraphNode]] = [(root.priority, 0, root)]
    sequence = 0
    while queue:
        node = heapq.heappop(queue)[2]
        # A node with several parents is queued by each of them, and written after the last one.
        if node in ordered or not all(parent in ordered for parent in node.parents):
            continue
        ordered[node] = None
        for child in node.children:
            sequence += 1
            heapq.heappush(queue, (child.priority, sequence, child))
    return list(ordered)


def merge_sources(root: GraphNode) -> dict[str, str]:
    """Merge sources of the same topics.

    Returns the replacement of each removed source. Follows Kafka Streams
    (`InternalStreamsBuilder.mergeDuplicateSourceNodes`).

    Raises:
        TopologyError: two sources of the same topics have different options.
    """
    replaced: dict[str, str] = {}
    kept: list[SourceGraphNode] = []
    for node in [each for each in root.children if isinstance(each, SourceGraphNode)]:
        same = next((earlier for earlier in kept if earlier.reads_same_topics(node)), None)
        if same is None:
            kept.append(node)
        else:
            same.merge_with(node)
            replaced[node.name] = same.name
    return replaced


def single_store_self_joins(attached: Iterable[GraphNode]) -> None:
    """Make joins of a stream with itself use a single store.

    This is the optimization `single.store.self.join`. As in Kafka Streams, it includes left and
    outer joins, which then have the results of an inner join. Sources and repartition nodes must be
    merged first.
    """
    for node in attached:
        if isinstance(node, StreamStreamJoinGraphNode) and len(node.parents) == 1:
            node.is_self_join = True
            node.parents[0].remove_child(node.windowed[1])


def reuse_source_topics(attached: Iterable[GraphNode]) -> None:
    """Restore all tables from their source topics (`reuse.ktable.source.topics`).

    The topics already contain every change, so the tables need no changelogs.
    """
    for node in attached:
        if isinstance(node, TableSourceGraphNode):
            node.topic_is_changelog = True


def allow_null_keys(root: GraphNode) -> None:
    """Make the repartition nodes above left and outer joins pass null keys (KIP-962).

    A record without a key belongs to no task, so a repartition node usually drops it. A left or
    outer join of a stream, however, has a result for such a record. The optimizations, which
    replace repartition nodes, must be applied first.
    """
    waiting = [node for node in _below(root) if node.accepts_null_keys]
    above = set(waiting)
    while waiting:
        for parent in waiting.pop().parents:
            if parent not in above:
                above.add(parent)
                waiting.append(parent)
            if isinstance(parent, RepartitionGraphNode):
                parent.passes_null_keys = True


def _below(root: GraphNode) -> set[GraphNode]:
    found = {root}
    waiting = [root]
    while waiting:
        for child in waiting.pop().children:
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found

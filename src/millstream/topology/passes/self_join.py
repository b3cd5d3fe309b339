"""Optimization: a stream that is joined with itself is kept once.

Kafka Streams' `single.store.self.join`.
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.logical.stream_join_node import StreamStreamJoinGraphNode


def single_store_self_joins(attached: Iterable[GraphNode]) -> None:
    """Let joins whose two sides are one and the same stream use one store, changing the graph.

    Follows Kafka Streams in that left and outer joins are among them, which then have the results
    of an inner join.

    Args:
        attached: all nodes of the graph, after sources and repartition nodes were merged.
    """
    for node in attached:
        if isinstance(node, StreamStreamJoinGraphNode) and len(node.parents) == 1:
            node.is_self_join = True
            node.parents[0].remove_child(node.windowed[1])

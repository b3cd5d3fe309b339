"""Sources that read the same topics become one: a topic is read once.

Follows Kafka Streams (`InternalStreamsBuilder.mergeDuplicateSourceNodes`).
"""

from __future__ import annotations

from millstream.topology.logical.graph_nodes import GraphNode, SourceGraphNode


def merge_sources(root: GraphNode) -> dict[str, str]:
    """Let sources of the same topics be one node, changing the graph.

    Args:
        root: the parent of all sources.

    Returns:
        The names of the sources that are gone, and the one that reads in each one's place.

    Raises:
        TopologyError: two sources want to read the same topics in different ways.
    """
    replaced: dict[str, str] = {}
    kept: list[SourceGraphNode] = []
    for node in list(root.children):
        if not isinstance(node, SourceGraphNode):
            continue
        for earlier in kept:
            if earlier.reads_the_same(node):
                earlier.absorb(node)
                replaced[node.name] = earlier.name
                break
        else:
            kept.append(node)
    return replaced

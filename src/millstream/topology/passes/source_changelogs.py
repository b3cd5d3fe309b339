"""Optimization: a table read from a topic is restored from the topic, and has no changelog.

The topic holds every change of the table already (Kafka Streams' `reuse.ktable.source.topics`).
"""

from __future__ import annotations

from collections.abc import Iterable

from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.logical.table_nodes import TableSourceGraphNode


def reuse_source_topics(attached: Iterable[GraphNode]) -> None:
    """Let the topics of all tables be their changelogs.

    Args:
        attached: all nodes of the graph.
    """
    for node in attached:
        if isinstance(node, TableSourceGraphNode):
            node.topic_is_changelog = True

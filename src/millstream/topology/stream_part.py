"""What streams, tables and groups have in common: a place in the logical graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.serdes import Serde
from millstream.topology.graph import LogicalGraph
from millstream.topology.graph_nodes import GraphNode
from millstream.topology.source_names import SourceNames


@dataclass(frozen=True, slots=True)
class StreamPart:
    """The node that a stream or table comes out of, and what is known about its records.

    Args:
        graph: the graph it belongs to.
        node: where the next operation attaches.
        key_serde: of its keys, if known; an operation that changes keys forgets it.
        value_serde: of its values, if known; an operation that changes values forgets it.
        sources: the names of the sources from which its tasks read, for co-partitioning.
        repartition_required: whether keys may have changed since the records were last placed
            by key, so that an operation by key must repartition first.
    """

    graph: LogicalGraph
    node: GraphNode
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    sources: SourceNames
    repartition_required: bool = False

    @property
    def name(self) -> str:
        """The name of the physical node whose output this is."""
        return self.node.name

"""The position of a stream, table or group in the logical graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.logical.graph_nodes import (
    GraphNode,
    RepartitionGraphNode,
    repartition_node,
)
from millstream.topology.logical.logical_graph import LogicalGraph
from millstream.topology.physical.java_order import SourceNames


@dataclass(frozen=True, slots=True)
class StreamPart:
    """The node of a stream or table, and the properties of its records.

    A serde is None if it is unknown: an operation that changes keys or values resets their serde.
    """

    graph: LogicalGraph
    node: GraphNode
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    #: The names of the sources that the stream's tasks read, for co-partitioning.
    sources: SourceNames
    #: Whether keys may have changed since the last repartitioning, so that an operation by key must
    #: repartition first.
    repartition_required: bool = False

    @property
    def name(self) -> str:
        return self.node.name

    def with_serdes(self, key: Serde[Any] | None, value: Serde[Any] | None) -> StreamPart:
        """Return a copy with other serdes; None keeps the current serde."""
        return replace(self, key_serde=key or self.key_serde, value_serde=value or self.value_serde)

    def repartition_node(self, base: str, *, generated: bool) -> RepartitionGraphNode:
        """Return a new, unattached node that repartitions the stream.

        See the function `repartition_node`.
        """
        return repartition_node(
            self.graph.names,
            base,
            key_serde=self.key_serde,
            value_serde=self.value_serde,
            declared_at=call_site(),
            generated=generated,
        )

    def repartitioned(self, node: RepartitionGraphNode) -> StreamPart:
        """Return the stream below a repartition node."""
        sources = SourceNames([node.name])
        return replace(self, node=node, sources=sources, repartition_required=False)

    def repr_as(self, kind: str, **details: object) -> str:
        """Return a repr with the node, the topics of its records, and the known serdes."""
        known = {
            "topics": topics_above(self.node),
            "key": self.key_serde,
            "value": self.value_serde,
            **details,
        }
        parts = [f"{name}={value!r}" for name, value in known.items() if value is not None]
        return f"{kind}({', '.join([repr(self.name), *parts])})"


def topics_above(*nodes: GraphNode) -> list[str]:
    """Return the topics or patterns of all sources above some nodes, in order."""
    topics: dict[str, None] = {}
    seen: dict[GraphNode, None] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen[node] = None
            topics.update(dict.fromkeys(node.read_topics))
            waiting.extend(reversed(node.parents))
    return list(topics)


def check_same_builder(graph: LogicalGraph, other: LogicalGraph, action: str) -> None:
    """Check that two streams or tables belong to the same builder.

    Args:
        action: the operation as a past participle for the error message, such as `joined`.

    Raises:
        TopologyError: the streams or tables belong to different builders.
    """
    if graph is not other:
        raise TopologyError(
            f"Only streams and tables of the same StreamsBuilder can be {action}. Create both with "
            "one builder.",
            declared_at=call_site(),
        )

"""What streams, tables and groups have in common: a place in the logical graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.logical.graph import LogicalGraph
from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.physical.source_names import SourceNames


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

    def shown(self, kind: str, **more: object) -> str:
        """A repr: the node, the topics that its records come from, and the serdes that are known.

        Args:
            kind: the class.
            more: what else is known; None is left out.
        """
        known = {
            "topics": topics_above(self.node),
            "key": self.key_serde,
            "value": self.value_serde,
            **more,
        }
        told = [f"{name}={value!r}" for name, value in known.items() if value is not None]
        return f"{kind}({', '.join([repr(self.name), *told])})"


def topics_above(*nodes: GraphNode) -> list[str]:
    """The topics, or their patterns, from which the records of some nodes come, in order."""
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


def check_same_builder(graph: LogicalGraph, other: LogicalGraph, what: str) -> None:
    """Refuse to bring streams and tables of two builders together.

    Args:
        graph: that of the one.
        other: that of the other.
        what: what was to be done, for example `joined`.

    Raises:
        TopologyError: they are not of one builder.
    """
    if graph is not other:
        raise TopologyError(
            f"Only streams and tables of one StreamsBuilder can be {what}. Make both from the same "
            "one.",
            declared_at=call_site(),
        )

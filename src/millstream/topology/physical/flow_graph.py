"""A topology's description as a graph, for the Mermaid and SVG drawings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple


class Place(NamedTuple):
    """A box of the graph. Only topics and lake tables are outside of sub-topologies."""

    kind: Literal["node", "store", "topic", "dataframe", "history"]
    name: str


class Flow(NamedTuple):
    """An edge of the graph. The edge from a node to its store has no direction."""

    source: Place
    target: Place


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A node with its flows: from topics, to its successors, to stores and to topics."""

    place: Place
    flows: tuple[Flow, ...]

    def successors(self) -> Iterator[Place]:
        yield from (
            flow.target
            for flow in self.flows
            if flow.source == self.place and flow.target.kind == "node"
        )


@dataclass(frozen=True, slots=True)
class FlowPart:
    """A sub-topology, global store, DataFrame function or history, with its title."""

    id: int
    title: str
    nodes: tuple[FlowNode, ...]

    def stores(self) -> list[Place]:
        flows = (flow for node in self.nodes for flow in node.flows)
        return list(dict.fromkeys(flow.target for flow in flows if flow.target.kind == "store"))


def flow_parts(description: Mapping[str, Any]) -> list[FlowPart]:
    """Return the parts of a description from `TopologyDescription.to_dict`."""
    parts = []
    for title, name in (("Sub-topology", "subtopologies"), ("Global store", "global_stores")):
        for part in description.get(name, ()):
            nodes = tuple(_node(node) for node in part["nodes"])
            parts.append(FlowPart(part["id"], f"{title} {part['id']}", nodes))
    for stage in description.get("dataframes", ()):
        place = Place("dataframe", stage["name"])
        written = stage.get("output_topic") or stage["sink"]
        node = _with_topics(place, read=stage["topics"], written=[written])
        parts.append(FlowPart(stage["id"], f"DataFrame function {stage['id']}", (node,)))
    for history in description.get("histories", ()):
        place = Place("history", history["name"])
        node = _with_topics(place, read=[history["table"]], written=[history["output_topic"]])
        parts.append(FlowPart(history["id"], f"History {history['id']}", (node,)))
    return parts


def _node(node: Mapping[str, Any]) -> FlowNode:
    place = Place("node", node["name"])
    read = node.get("topics") or [node["pattern"]] if node["kind"] == "source" else ()
    written = [node.get("topic") or node["extractor"]] if node["kind"] == "sink" else ()
    inner = [Flow(place, Place("node", successor)) for successor in node.get("successors", ())]
    inner += [Flow(place, Place("store", store)) for store in node.get("stores", ())]
    return _with_topics(place, read, written, inner)


def _with_topics(
    place: Place, read: Sequence[str], written: Sequence[str], inner: Sequence[Flow] = ()
) -> FlowNode:
    before = (Flow(Place("topic", topic), place) for topic in read)
    after = (Flow(place, Place("topic", topic)) for topic in written)
    return FlowNode(place, (*before, *inner, *after))

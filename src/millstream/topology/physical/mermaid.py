"""A topology's description as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from millstream.topology.physical.flow_graph import Flow, FlowPart, Place, flow_parts

#: The defaults of Mermaid's settings `maxTextSize` and `maxEdges`.
_MAX_CHARACTERS: Final = 50_000
_MAX_EDGES: Final = 500


def flowchart(description: Mapping[str, Any]) -> str:
    """Return the flowchart of a description from `TopologyDescription.to_dict`."""
    return "\n".join(_lines(flow_parts(description))) + "\n"


def is_small_enough(mermaid: str) -> bool:
    """Return whether Mermaid draws a flowchart with its default limits."""
    edges = sum(" --> " in line or " -.- " in line for line in mermaid.splitlines())
    return len(mermaid) <= _MAX_CHARACTERS and edges <= _MAX_EDGES


def _lines(parts: list[FlowPart]) -> Iterator[str]:
    ids = _short_ids(parts)
    yield "flowchart TD"
    for part in parts:
        yield f'  subgraph sub{part.id}["{part.title}"]'
        for node in part.nodes:
            yield f'    {ids[node.place]}["{_label(node.place.name)}"]'
        for store in part.stores():
            yield f'    {ids[store]}[("{_label(store.name)}")]'
        yield "  end"
    for place, identity in ids.items():
        if place.kind == "topic":
            yield f'  {identity}(["{_label(place.name)}"])'
    for part in parts:
        for node in part.nodes:
            yield from (_edge(flow, ids) for flow in node.flows)


def _short_ids(parts: list[FlowPart]) -> dict[Place, str]:
    """Return an id for each place, since Mermaid restricts the characters of ids."""
    ids: dict[Place, str] = {}
    for node in (node for part in parts for node in part.nodes):
        for place in (node.place, *(end for flow in node.flows for end in flow)):
            ids.setdefault(place, f"{place.kind}{len(ids)}")
    return ids


def _edge(flow: Flow, ids: Mapping[Place, str]) -> str:
    arrow = "-.-" if flow.target.kind == "store" else "-->"
    return f"  {ids[flow.source]} {arrow} {ids[flow.target]}"


def _label(text: str) -> str:
    # Node names, patterns and the names of lambdas may contain characters with a special meaning in
    # Mermaid.
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")

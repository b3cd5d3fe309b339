"""A topology's description as a Mermaid flowchart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def flowchart(description: Mapping[str, Any]) -> str:
    """Return the flowchart of a description from `TopologyDescription.to_dict`."""
    return "\n".join(_Flowchart(description).lines()) + "\n"


class _Flowchart:
    """A flowchart with short ids, since Mermaid restricts the characters of ids."""

    def __init__(self, description: Mapping[str, Any]) -> None:
        self._description = description
        self._ids: dict[tuple[str, str], str] = {}
        self._outside: dict[str, str] = {}

    def lines(self) -> Iterator[str]:
        yield "flowchart TD"
        edges: list[str] = []
        titled = [("Sub-topology", part) for part in self._description["subtopologies"]]
        titled += [("Global store", part) for part in self._description.get("global_stores", ())]
        for title, part in titled:
            yield f'  subgraph sub{part["id"]}["{title} {part["id"]}"]'
            stores: dict[str, None] = {}
            for node in part["nodes"]:
                yield f'    {self._id("node", node["name"])}["{_label(node["name"])}"]'
                stores.update(dict.fromkeys(node.get("stores", ())))
                edges.extend(self._edges(node))
            for store in stores:
                yield f'    {self._id("store", store)}[("{_label(store)}")]'
            yield "  end"
        for stage in self._description.get("dataframes", ()):
            name = self._id("dataframe", stage["name"])
            yield f'  subgraph sub{stage["id"]}["DataFrame function {stage["id"]}"]'
            yield f'    {name}["{_label(stage["name"])}"]'
            yield "  end"
            edges += [f"  {self._topic(topic)} --> {name}" for topic in stage["topics"]]
            edges.append(f"  {name} --> {self._topic(stage.get('output_topic') or stage['sink'])}")
        for history in self._description.get("histories", ()):
            name = self._id("history", history["name"])
            yield f'  subgraph sub{history["id"]}["History {history["id"]}"]'
            yield f'    {name}["{_label(history["name"])}"]'
            yield "  end"
            edges.append(f"  {self._topic(history['table'])} --> {name}")
            edges.append(f"  {name} --> {self._topic(history['output_topic'])}")
        for identity, label in self._outside.items():
            yield f'  {identity}(["{_label(label)}"])'
        yield from edges

    def _edges(self, node: Mapping[str, Any]) -> Iterator[str]:
        name = self._id("node", node["name"])
        read = node.get("topics", ()) or filter(None, [node.get("pattern")])
        for topic in read if node["kind"] == "source" else ():
            yield f"  {self._topic(topic)} --> {name}"
        for successor in node.get("successors", ()):
            yield f"  {name} --> {self._id('node', successor)}"
        for store in node.get("stores", ()):
            yield f"  {name} -.- {self._id('store', store)}"
        if node["kind"] == "sink":
            yield f"  {name} --> {self._topic(node.get('topic') or node['extractor'])}"

    def _topic(self, topic: str) -> str:
        identity = self._id("topic", topic)
        self._outside[identity] = topic
        return identity

    def _id(self, kind: str, name: str) -> str:
        return self._ids.setdefault((kind, name), f"{kind}{len(self._ids)}")


def _label(text: str) -> str:
    # Node names, patterns and the names of lambdas may contain characters with a special meaning in
    # Mermaid.
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")

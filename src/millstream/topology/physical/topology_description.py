"""The description of a topology, which `Topology.describe()` returns.

Its `str()` is exactly the text that Kafka Streams 4.3 prints for the same topology, including
whitespace and the order of siblings, so that `diff` can compare the descriptions of a Java
application and its Python counterpart.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millstream.topology.options.lake import LakeHistory
from millstream.topology.physical.dataframe_stage import DataFrameStage
from millstream.topology.physical.drawing import drawing
from millstream.topology.physical.java_order import TreeSet, hash_order
from millstream.topology.physical.mermaid import flowchart, is_small_enough
from millstream.topology.physical.nodes import (
    GlobalStoreNodes,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
)


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """A source node: the topics it reads, or the pattern of their names."""

    name: str
    topics: tuple[str, ...]
    pattern: str | None
    successors: tuple[str, ...]

    def __str__(self) -> str:
        topics = _listed(self.topics) if self.pattern is None else self.pattern
        return f"Source: {self.name} (topics: {topics})\n      --> {_joined(self.successors)}"

    def to_dict(self) -> dict[str, Any]:
        read: dict[str, Any] = (
            {"topics": list(self.topics)} if self.pattern is None else {"pattern": self.pattern}
        )
        return {"kind": "source", "name": self.name, **read, "successors": list(self.successors)}


@dataclass(frozen=True, slots=True)
class ProcessorDescription:
    """A processor node and the stores connected to it."""

    name: str
    stores: tuple[str, ...]
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Processor: {self.name} (stores: {_listed(self.stores)})\n"
            f"      --> {_joined(self.successors)}\n"
            f"      <-- {_joined(self.predecessors)}"
        )

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": "processor",
            "name": self.name,
            "stores": list(self.stores),
            "predecessors": list(self.predecessors),
            "successors": list(self.successors),
        }


@dataclass(frozen=True, slots=True)
class SinkDescription:
    """A sink node: its topic, or the name of the function that chooses the topic."""

    name: str
    topic: str | None
    extractor: str | None
    predecessors: tuple[str, ...]

    def __str__(self) -> str:
        target = (
            f"extractor class: {self.extractor}" if self.topic is None else f"topic: {self.topic}"
        )
        return f"Sink: {self.name} ({target})\n      <-- {_joined(self.predecessors)}"

    def to_dict(self) -> dict[str, Any]:
        target = {"extractor": self.extractor} if self.topic is None else {"topic": self.topic}
        predecessors = list(self.predecessors)
        return {"kind": "sink", "name": self.name, **target, "predecessors": predecessors}


NodeDescription = SourceDescription | ProcessorDescription | SinkDescription


@dataclass(frozen=True, slots=True)
class SubtopologyDescription:
    """A sub-topology: its number and nodes, those with the most descendants first."""

    id: int
    nodes: tuple[NodeDescription, ...]

    def __str__(self) -> str:
        nodes = "".join(f"    {node}\n" for node in self.nodes)
        return f"Sub-topology: {self.id}\n{nodes}\n"

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "nodes": [node.to_dict() for node in self.nodes]}


@dataclass(frozen=True, slots=True)
class GlobalStoreDescription:
    """A global store: its number, its source and its processor. It has no tasks."""

    id: int
    source: SourceDescription
    processor: ProcessorDescription

    def __str__(self) -> str:
        return (
            f"Sub-topology: {self.id} for global store (will not generate tasks)\n"
            f"    {self.source}\n    {self.processor}\n"
        )

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "nodes": [self.source.to_dict(), self.processor.to_dict()]}


@dataclass(frozen=True, slots=True)
class DataFrameDescription:
    """A DataFrame function between sub-topologies: its number, input and output.

    It has no tasks: a Structured Streaming query runs it.
    """

    id: int
    name: str
    topic: str
    target: str
    output_topic: str | None
    function: str
    trigger: str

    def __str__(self) -> str:
        return (
            f"Sub-topology: {self.id} for DataFrame function (will not generate tasks)\n"
            f"    DataFrame: {self.name} (function: {self.function}, trigger: {self.trigger})\n"
            f"      --> {self.target}\n      <-- topic: {self.topic}\n\n"
        )

    def to_dict(self) -> dict[str, Any]:
        topic = self.output_topic
        output = {"sink": self.target} if topic is None else {"output_topic": topic}
        return {
            "id": self.id,
            "name": self.name,
            "function": self.function,
            "trigger": self.trigger,
            "topics": [self.topic],
            **output,
        }


@dataclass(frozen=True, slots=True)
class HistoryDescription:
    """A lake table read before a topic: its number, table and internal topic.

    It has no tasks: a Spark job writes the topic once, before the first start.
    """

    id: int
    name: str
    table: str
    topic: str
    then: str | None

    def __str__(self) -> str:
        then = "" if self.then is None else f", then: {self.then}"
        return (
            f"Sub-topology: {self.id} for history from the lake (will not generate tasks)\n"
            f"    History: {self.name} ({self.table}{then})\n"
            f"      --> topic: {self.topic}\n\n"
        )

    def to_dict(self) -> dict[str, Any]:
        then = {} if self.then is None else {"then": self.then}
        return {
            "id": self.id,
            "name": self.name,
            "table": self.table,
            "output_topic": self.topic,
            **then,
        }


Part = SubtopologyDescription | GlobalStoreDescription | DataFrameDescription | HistoryDescription


@dataclass(frozen=True, slots=True)
class TopologyDescription:
    """The structure of a topology. Descriptions of equal structures are equal.

    Example:
        >>> builder = StreamsBuilder()
        >>> builder.stream("in").to("out")
        >>> print(builder.build().describe())
        Topologies:
           Sub-topology: 0
            Source: KSTREAM-SOURCE-0000000000 (topics: [in])
              --> KSTREAM-SINK-0000000001
            Sink: KSTREAM-SINK-0000000001 (topic: out)
              <-- KSTREAM-SOURCE-0000000000
        <BLANKLINE>
        <BLANKLINE>
    """

    subtopologies: tuple[SubtopologyDescription, ...]
    global_stores: tuple[GlobalStoreDescription, ...] = ()
    dataframes: tuple[DataFrameDescription, ...] = ()
    histories: tuple[HistoryDescription, ...] = ()

    def __str__(self) -> str:
        parts: list[Part] = [*self.subtopologies, *self.global_stores]
        parts += [*self.dataframes, *self.histories]
        parts.sort(key=lambda part: part.id)
        # As in Kafka Streams, the first sub-topology is indented by one more space.
        return "Topologies:\n " + "".join(f"  {part}" for part in parts)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return text and drawings, for notebooks."""
        description = self.to_dict()
        bundle = {"text/plain": str(self), "image/svg+xml": drawing(description)}
        mermaid = flowchart(description)
        if is_small_enough(mermaid):
            bundle["text/vnd.mermaid"] = mermaid
        return bundle

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain data, suitable for JSON.

        Example:
            >>> topology = Topology().add_source("read", "in").add_sink("write", "out", "read")
            >>> topology.describe().to_dict()["subtopologies"][0]["nodes"][0]
            {'kind': 'source', 'name': 'read', 'topics': ['in'], 'successors': ['write']}
        """
        data = {"subtopologies": [part.to_dict() for part in self.subtopologies]}
        for name in ("global_stores", "dataframes", "histories"):
            if parts := getattr(self, name):
                data[name] = [part.to_dict() for part in parts]
        return data

    def to_mermaid(self) -> str:
        """Return the description as a Mermaid flowchart.

        GitHub and many editors render Mermaid. Topics are rounded boxes, stores are cylinders, and
        sub-topologies are boxes.

        Example:
            >>> topology = Topology().add_source("read", "in").add_sink("write", "out", "read")
            >>> print(topology.describe().to_mermaid())
            flowchart TD
              subgraph sub0["Sub-topology 0"]
                node0["read"]
                node2["write"]
              end
              topic1(["in"])
              topic3(["out"])
              topic1 --> node0
              node0 --> node2
              node2 --> topic3
            <BLANKLINE>
        """
        return flowchart(self.to_dict())


def describe_subtopology(number: int, nodes: Sequence[Node]) -> SubtopologyDescription:
    relations = _Relations(nodes)
    described = [_description(node, relations) for node in nodes]
    described.sort(key=lambda node: relations.rank(node.name))
    return SubtopologyDescription(number, tuple(described))


def describe_global_store(number: int, store: GlobalStoreNodes) -> GlobalStoreDescription:
    source, processor = store.source.name, store.processor.name
    return GlobalStoreDescription(
        number,
        SourceDescription(source, (store.topic,), None, (processor,)),
        ProcessorDescription(processor, (store.store,), (source,), ()),
    )


def describe_dataframe_stage(number: int, stage: DataFrameStage) -> DataFrameDescription:
    interval = f" {stage.trigger.interval_ms} ms" if stage.trigger.interval_ms else ""
    return DataFrameDescription(
        number,
        stage.name,
        stage.input_topic,
        stage.target,
        stage.output_topic,
        "none" if stage.function is None else function_name(stage.function),
        stage.trigger.kind.replace("_", " ") + interval,
    )


def describe_lake_history(number: int, history: LakeHistory) -> HistoryDescription:
    return HistoryDescription(
        number, history.name, history.description, history.topic, history.then
    )


class _Relations:
    """The predecessors and successors of each node, in the order of Kafka Streams.

    The size of a node is one plus the sizes of its successors. Lists are sorted by size, but each
    entry keeps the position at which it was inserted, while the sizes continue to grow.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._sizes = {node.name: 1 for node in nodes}
        self._positions = {node.name: position for position, node in enumerate(nodes)}
        self._before = {node.name: TreeSet(self._precedes) for node in nodes}
        self._after = {node.name: TreeSet(self._precedes) for node in nodes}
        parents = {node.name: _parents(node) for node in nodes}
        for name in hash_order(parents):
            for parent in parents[name]:
                self._before[name].add(parent)
                self._after[parent].add(name)
                self._grow(parent, self._sizes[name])

    def predecessors(self, name: str) -> tuple[str, ...]:
        return tuple(self._before[name])

    def successors(self, name: str) -> tuple[str, ...]:
        return tuple(self._after[name])

    def rank(self, name: str) -> tuple[int, str]:
        return (-self._sizes[name], name)

    def _precedes(self, one: str, other: str) -> bool:
        return self.rank(one) < self.rank(other)

    def _grow(self, name: str, by: int) -> None:
        """Add to the sizes of a node and its ancestors, once for each path."""
        paths = {name: 1}
        # Visit the latest node first, so that all paths to a node are counted before the node is
        # visited. Chains of merges have exponentially many paths, but cost no more than others.
        waiting = [(-self._positions[name], name)]
        while waiting:
            reached = heapq.heappop(waiting)[1]
            count = paths.pop(reached)
            self._sizes[reached] += by * count
            for parent in self._before[reached]:
                if parent not in paths:
                    paths[parent] = 0
                    heapq.heappush(waiting, (-self._positions[parent], parent))
                paths[parent] += count


def _parents(node: Node) -> tuple[str, ...]:
    return () if isinstance(node, SourceNode) else node.parents


def _description(node: Node, relations: _Relations) -> NodeDescription:
    match node:
        case SourceNode():
            return SourceDescription(
                node.name,
                tuple(hash_order(node.topics, copied=True)),
                None if node.pattern is None else node.pattern.pattern,
                relations.successors(node.name),
            )
        case ProcessorNode():
            return ProcessorDescription(
                node.name,
                tuple(hash_order(node.stores, copied=True)),
                relations.predecessors(node.name),
                relations.successors(node.name),
            )
        case SinkNode():
            fixed = isinstance(node.topic, str)
            return SinkDescription(
                node.name,
                str(node.topic) if fixed else None,
                None if fixed else function_name(node.topic),
                relations.predecessors(node.name),
            )


def function_name(function: object) -> str:
    """Return the qualified name of a function, which is the same in every run."""
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _listed(names: Sequence[str]) -> str:
    return f"[{', '.join(names)}]"


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"

"""The topology as vertices and edges, for whoever draws it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from millstream.topology.physical.internal_topics import decorated
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology

NodeKind = Literal["source", "processor", "sink"]
#: `internal` is read and written by the application alone.
TopicKind = Literal["input", "output", "internal", "both"]
EdgeKind = Literal["read", "flow", "write"]


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a sub-topology.

    Args:
        id: unique among nodes and topics.
        name: as in `Topology.describe()`.
        title: what it does in a word or two, for nodes that the user has not named.
        kind: what it is.
        stores: the names of the stores that it uses.
        declared_at: file and line of the user's program.
    """

    id: str
    name: str
    title: str
    kind: NodeKind
    stores: tuple[str, ...]
    declared_at: str


@dataclass(frozen=True, slots=True)
class GraphPart:
    """A sub-topology, or what fills a global store.

    Args:
        id: its number.
        is_global: whether it fills a global store, so that each instance has all of it.
        nodes: in the order of adding.
        dataframe: the name of the DataFrame function that it is; None if it is none.
    """

    id: int
    is_global: bool
    nodes: tuple[GraphNode, ...]
    dataframe: str | None = None


@dataclass(frozen=True, slots=True)
class GraphTopic:
    """A topic that is read or written, or the pattern of those that are.

    Args:
        id: unique among nodes and topics.
        name: on the cluster.
        kind: what it is to the application.
    """

    id: str
    name: str
    kind: TopicKind


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """Records go from one to the other.

    Args:
        source: the id of where they come from.
        target: the id of where they go.
        kind: from a topic, between nodes, or to a topic.
    """

    source: str
    target: str
    kind: EdgeKind


@dataclass(frozen=True, slots=True)
class Graph:
    """All of a topology."""

    parts: tuple[GraphPart, ...]
    topics: tuple[GraphTopic, ...]
    edges: tuple[GraphEdge, ...]


def graph_of(topology: Topology, application_id: str) -> Graph:
    """The graph of a topology.

    Args:
        topology: the topology.
        application_id: with which the names of internal topics begin.
    """
    parts: list[GraphPart] = []
    edges: list[GraphEdge] = []
    read: set[str] = set()
    written: set[str] = set()
    internal: set[str] = set()
    for sub in topology._subtopologies():
        parts.append(GraphPart(sub.id, False, tuple(_node(node) for node in sub.nodes)))
        internal |= {sub.decorate(name, application_id) for name in sub.internal_topics}
        for edge in _edges(sub, application_id):
            edges.append(edge)
            if edge.kind == "read":
                read.add(edge.source)
            elif edge.kind == "write":
                written.add(edge.target)
    for number, store in _global_stores(topology):
        nodes = topology.global_stores[store]
        source, processor = _node(nodes.source), _node(nodes.processor, stores=(store,))
        parts.append(GraphPart(number, True, (source, processor)))
        edges.append(GraphEdge(_topic_id(nodes.topic), source.id, "read"))
        edges.append(GraphEdge(source.id, processor.id, "flow"))
        read.add(_topic_id(nodes.topic))
    for stage in topology.describe().dataframes:
        query = _stage_node(stage.name, topology.dataframe_stages[stage.name].declared_at)
        parts.append(GraphPart(stage.id, False, (query,), stage.name))
        entry = _topic_id(decorated(stage.topic, application_id))
        edges.append(GraphEdge(entry, query.id, "read"))
        read.add(entry)
        if stage.output_topic is not None:
            target = _topic_id(decorated(stage.output_topic, application_id))
            edges.append(GraphEdge(query.id, target, "write"))
            written.add(target)
    topics = tuple(_topic(each, read, written, internal) for each in sorted(read | written))
    return Graph(tuple(sorted(parts, key=lambda part: part.id)), topics, tuple(edges))


def _edges(sub: SubTopology, application_id: str) -> Iterator[GraphEdge]:
    for node in sub.nodes:
        if isinstance(node, SourceNode):
            names = node.topics if node.pattern is None else (node.pattern.pattern,)
            for name in names:
                topic = _topic_id(sub.decorate(name, application_id))
                yield GraphEdge(topic, _node_id(node.name), "read")
            continue
        for parent in node.parents:
            yield GraphEdge(_node_id(parent), _node_id(node.name), "flow")
        if isinstance(node, SinkNode):
            chosen = node.topic if isinstance(node.topic, str) else _CHOSEN
            topic = _topic_id(sub.decorate(chosen, application_id))
            yield GraphEdge(_node_id(node.name), topic, "write")


#: Stands for the topics that a function of the user's chooses.
_CHOSEN = "(chosen for each record)"


def _global_stores(topology: Topology) -> Iterable[tuple[int, str]]:
    described = topology.describe().global_stores
    return [(each.id, each.processor.stores[0]) for each in described]


def _topic(
    identity: str, read: Iterable[str], written: Iterable[str], internal: Iterable[str]
) -> GraphTopic:
    name = identity.removeprefix("topic:")
    kind: TopicKind
    if name in internal:
        kind = "internal"
    elif identity in read:
        kind = "both" if identity in written else "input"
    else:
        kind = "output"
    return GraphTopic(identity, name, kind)


def _topic_id(name: str) -> str:
    return f"topic:{name}"


def _node_id(name: str) -> str:
    return f"node:{name}"


def _node(node: Node, stores: tuple[str, ...] | None = None) -> GraphNode:
    match node:
        case SourceNode():
            kind: NodeKind = "source"
        case ProcessorNode():
            kind = "processor"
        case SinkNode():
            kind = "sink"
    used = node.stores if isinstance(node, ProcessorNode) else ()
    return GraphNode(
        _node_id(node.name),
        node.name,
        _title(node),
        kind,
        used if stores is None else stores,
        node.declared_at,
    )


def _stage_node(name: str, declared_at: str) -> GraphNode:
    title = f"{name} (DataFrame)"
    return GraphNode(f"dataframe:{name}", name, title, "processor", (), declared_at)


#: What Kafka Streams calls a node that the user has not named.
_GENERATED = re.compile(r"[A-Z][A-Z-]*-\d{10}(-.*)?")
#: What the nodes around a repartition topic are called where the user has named that.
_REPARTITION = re.compile(r".+-repartition-(source|filter|sink)")
_TITLES: Mapping[str, str] = {
    "ForEach": "for each",
    "ForeignTableJoin": "foreign-key join",
    "NullKeyFilter": "drop null keys",
    "PassThrough": "merge",
    "Process": "processor",
    "StreamAggregate": "aggregate",
    "StreamCount": "count",
    "StreamGlobalJoin": "join global table",
    "StreamJoinWindow": "join window",
    "StreamReduce": "reduce",
    "StreamSelfJoin": "self join",
    "StreamStreamJoin": "stream join",
    "StreamTableJoin": "join table",
    "TableAggregate": "table aggregate",
    "TableJoin": "table join",
    "TableJoinMerge": "join result",
    "TableMapValues": "map values",
    "TableSelect": "regroup",
    "TableSource": "table",
    "TableSuppress": "suppress",
    "TableToStream": "to stream",
    "WindowAggregate": "windowed aggregate",
    "WindowCount": "windowed count",
    "WindowReduce": "windowed reduce",
}


def _title(node: Node) -> str:
    kept = _REPARTITION.fullmatch(node.name)
    if kept is not None:
        return {"filter": "drop null keys"}.get(kept[1], kept[1])
    if not _GENERATED.fullmatch(node.name):
        return node.name
    if isinstance(node, SourceNode):
        return "source"
    if isinstance(node, SinkNode):
        return "sink"
    kind = type(node.operation).__name__
    return _TITLES.get(kind) or _in_words(kind)


def _in_words(name: str) -> str:
    return " ".join(re.findall("[A-Z][a-z]*", name)).lower()

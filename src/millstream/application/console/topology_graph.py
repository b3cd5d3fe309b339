"""The topology as a graph, and its stores, for the console."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from millstream.config.streams_config import StreamsConfig
from millstream.state.builders.buffer_builders import (
    GraceBufferBuilder,
    OuterJoinStoreBuilder,
    SuppressBufferBuilder,
)
from millstream.state.builders.store_builder import StoreBuilder, StoreBuilderBase
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.state.builders.window_builders import SessionStoreBuilder, WindowStoreBuilder
from millstream.topology.physical.internal_topic_configs import decorated
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology

NodeKind = Literal["source", "processor", "sink"]
#: `internal`: read and written by the application only.
TopicKind = Literal["input", "output", "internal", "both"]
EdgeKind = Literal["read", "flow", "write"]
#: A placeholder for topics that a function chooses.
_CHOSEN = "(chosen for each record)"
#: The names that Kafka Streams generates for nodes without a name.
_GENERATED = re.compile(r"[A-Z][A-Z-]*-\d{10}(-.*)?")
#: The names of the nodes around a repartition topic that the user named.
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
#: The kind of queries that a store supports. A `buffer` is internal and cannot be queried.
StoreForm = Literal["key-value", "window", "session", "versioned", "buffer"]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of a sub-topology.

    `title` is the user's name for the node, or else a short description. `declared_at` is the file
    and line in the user's program.
    """

    id: str
    name: str
    title: str
    kind: NodeKind
    stores: tuple[str, ...]
    declared_at: str


@dataclass(frozen=True, slots=True)
class SubtopologyView:
    """A sub-topology, the processor of a global store, or a DataFrame function."""

    id: int
    is_global: bool
    nodes: tuple[NodeView, ...]
    dataframe: str | None = None


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic that is read or written, or a pattern of topics."""

    id: str
    name: str
    kind: TopicKind


@dataclass(frozen=True, slots=True)
class EdgeView:
    """A flow of records between nodes and topics, identified by their ids."""

    source: str
    target: str
    kind: EdgeKind


@dataclass(frozen=True, slots=True)
class TopologyGraph:
    parts: tuple[SubtopologyView, ...]
    topics: tuple[TopicView, ...]
    edges: tuple[EdgeView, ...]


def graph_of(topology: Topology, application_id: str) -> TopologyGraph:
    parts: list[SubtopologyView] = []
    edges: list[EdgeView] = []
    read: set[str] = set()
    written: set[str] = set()
    internal: set[str] = set()
    for sub in topology._subtopologies():
        parts.append(SubtopologyView(sub.id, False, tuple(_node(node) for node in sub.nodes)))
        internal |= {sub.decorate(name, application_id) for name in sub.internal_topics}
        for edge in _edges(sub, application_id):
            edges.append(edge)
            if edge.kind == "read":
                read.add(edge.source)
            elif edge.kind == "write":
                written.add(edge.target)
    description = topology.describe()
    for described in description.global_stores:
        store = described.processor.stores[0]
        nodes = topology.global_stores[store]
        source, processor = _node(nodes.source), _node(nodes.processor, stores=(store,))
        parts.append(SubtopologyView(described.id, True, (source, processor)))
        edges.append(EdgeView(_topic_id(nodes.topic), source.id, "read"))
        edges.append(EdgeView(source.id, processor.id, "flow"))
        read.add(_topic_id(nodes.topic))
    for stage in description.dataframes:
        declared_at = topology.dataframe_stages[stage.name].declared_at
        title = f"{stage.name} (DataFrame)"
        identity = f"dataframe:{stage.name}"
        query = NodeView(identity, stage.name, title, "processor", (), declared_at)
        parts.append(SubtopologyView(stage.id, False, (query,), stage.name))
        entry = _topic_id(decorated(stage.topic, application_id))
        edges.append(EdgeView(entry, query.id, "read"))
        read.add(entry)
        if stage.output_topic is not None:
            target = _topic_id(decorated(stage.output_topic, application_id))
            edges.append(EdgeView(query.id, target, "write"))
            written.add(target)
    topics = tuple(_topic(each, read, written, internal) for each in sorted(read | written))
    return TopologyGraph(tuple(sorted(parts, key=lambda part: part.id)), topics, tuple(edges))


def _edges(sub: SubTopology, application_id: str) -> Iterator[EdgeView]:
    for node in sub.nodes:
        if isinstance(node, SourceNode):
            names = node.topics if node.pattern is None else (node.pattern.pattern,)
            for name in names:
                topic = _topic_id(sub.decorate(name, application_id))
                yield EdgeView(topic, _node_id(node.name), "read")
            continue
        for parent in node.parents:
            yield EdgeView(_node_id(parent), _node_id(node.name), "flow")
        if isinstance(node, SinkNode):
            chosen = node.topic if isinstance(node.topic, str) else _CHOSEN
            topic = _topic_id(sub.decorate(chosen, application_id))
            yield EdgeView(_node_id(node.name), topic, "write")


def _topic(
    identity: str, read: Iterable[str], written: Iterable[str], internal: Iterable[str]
) -> TopicView:
    name = identity.removeprefix("topic:")
    kind: TopicKind
    if name in internal:
        kind = "internal"
    elif identity in read:
        kind = "both" if identity in written else "input"
    else:
        kind = "output"
    return TopicView(identity, name, kind)


def _topic_id(name: str) -> str:
    return f"topic:{name}"


def _node_id(name: str) -> str:
    return f"node:{name}"


def _node(node: Node, stores: tuple[str, ...] | None = None) -> NodeView:
    match node:
        case SourceNode():
            kind: NodeKind = "source"
        case ProcessorNode():
            kind = "processor"
        case SinkNode():
            kind = "sink"
    used = node.stores if isinstance(node, ProcessorNode) else ()
    return NodeView(
        _node_id(node.name),
        node.name,
        _title(node),
        kind,
        used if stores is None else stores,
        node.declared_at,
    )


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
    return _TITLES.get(kind) or " ".join(re.findall("[A-Z][a-z]*", kind)).lower()


@dataclass(frozen=True, slots=True)
class StoreView:
    name: str
    form: StoreForm
    timestamped: bool
    persistent: bool
    cached: bool
    is_global: bool
    changelog: str | None
    subtopology: int | None
    key: str | None
    value: str | None
    window_ms: int | None = None
    retention_ms: int | None = None


def stores_of(topology: Topology, config: StreamsConfig) -> list[StoreView]:
    """Return all stores of a topology, sorted by name."""
    stores = []
    for sub in topology._subtopologies():
        for name, builder in sub.stores.items():
            log = sub.changelogs.get(name)
            changelog = None if log is None else sub.decorate(log, config.application_id)
            stores.append(_view(builder, config, sub.id, changelog))
    stores += [
        _view(nodes.store_builder, config, None, nodes.topic)
        for nodes in topology.global_stores.values()
    ]
    return sorted(stores, key=lambda each: each.name)


def _view(
    builder: StoreBuilder, config: StreamsConfig, subtopology: int | None, changelog: str | None
) -> StoreView:
    resolved = builder.resolved(config)
    kept: Mapping[str, Any] = resolved.__dict__ if hasattr(resolved, "__dict__") else {}
    return StoreView(
        name=builder.name,
        form=_form(resolved),
        timestamped=bool(kept.get("timestamped", False)),
        persistent=resolved.persistent,
        cached=bool(kept.get("caching", False)),
        is_global=subtopology is None,
        changelog=changelog,
        subtopology=subtopology,
        key=_serde(resolved, "key_serde"),
        value=_serde(resolved, "value_serde"),
        window_ms=kept.get("window_size_ms"),
        retention_ms=kept.get("retention_ms", kept.get("history_ms")),
    )


def _form(builder: StoreBuilder) -> StoreForm:
    match builder:
        case WindowStoreBuilder():
            return "window"
        case SessionStoreBuilder():
            return "session"
        case VersionedStoreBuilder():
            return "versioned"
        case SuppressBufferBuilder() | GraceBufferBuilder() | OuterJoinStoreBuilder():
            return "buffer"
        case _:
            return "key-value"


def _serde(builder: StoreBuilder, which: str) -> str | None:
    serde = getattr(builder, which, None) if isinstance(builder, StoreBuilderBase) else None
    return None if serde is None else repr(serde)

"""Sub-topologies: the parts of a topology that are connected other than through topics.

Each becomes one task per partition. Nodes belong together if one is the other's parent or if they
use the same store. Numbers are given in the order in which nodes were added (semantics:
`InternalTopologyBuilder.nodeGroups`), because task ids and state directories are named after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.physical.internal_topics import RepartitionTopic, changelog_name, decorated
from millstream.topology.physical.java_order import hash_order
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode, SourceNode


@dataclass(frozen=True, slots=True)
class SubTopology:
    """Everything that a task of this sub-topology needs. Can be pickled with cloudpickle.

    All names of internal topics are undecorated; `decorate` gives those on the cluster.

    Args:
        id: the number, the first part of its tasks' ids.
        nodes: in the order in which they were added.
        source_topics: the topics read by name, internal ones included.
        source_patterns: what matches the other topics read.
        sink_topics: the topics written whose names are fixed, internal ones included.
        repartition_topics: those among the source topics that are internal.
        stores: the builders of the stores that its nodes use.
        changelogs: the topic from which each store is restored: its changelog, or a topic that the
            sub-topology reads anyway.
        internal_topics: every internal topic that it reads or writes, changelogs included.
    """

    id: int
    nodes: tuple[Node, ...]
    source_topics: tuple[str, ...]
    source_patterns: tuple[re.Pattern[str], ...]
    sink_topics: tuple[str, ...]
    repartition_topics: Mapping[str, RepartitionTopic]
    stores: Mapping[str, StoreBuilder]
    changelogs: Mapping[str, str]
    internal_topics: frozenset[str]

    @property
    def is_stateful(self) -> bool:
        """Whether its tasks have state to restore: only logged stores count."""
        return bool(self.changelogs)

    def decorate(self, topic: str, application_id: str) -> str:
        """The name of a topic on the cluster: internal ones begin with the application id."""
        return decorated(topic, application_id) if topic in self.internal_topics else topic


def subtopology_of(
    number: int,
    nodes: tuple[Node, ...],
    state_stores: Mapping[str, StoreBuilder],
    internal_topics: Mapping[str, RepartitionTopic],
    source_changelogs: Mapping[str, str],
) -> SubTopology:
    """The sub-topology that some nodes of a topology are.

    Args:
        number: of the sub-topology.
        nodes: in the order in which they were added.
        state_stores: all stores of the topology, by name.
        internal_topics: all its repartition topics, by name.
        source_changelogs: the topic that each store without a changelog is restored from, if any.
    """
    sources = [node for node in nodes if isinstance(node, SourceNode)]
    source_topics = tuple(dict.fromkeys(topic for node in sources for topic in node.topics))
    sink_topics = tuple(
        dict.fromkeys(
            node.topic
            for node in nodes
            if isinstance(node, SinkNode) and isinstance(node.topic, str)
        )
    )
    # In this order caches are flushed: follows Kafka Streams, where a node has a set of stores.
    store_names = dict.fromkeys(
        store
        for node in nodes
        if isinstance(node, ProcessorNode)
        for store in hash_order(node.stores)
    )
    stores = {name: state_stores[name] for name in store_names}
    own = {name: changelog_name(name) for name, builder in stores.items() if builder.logging}
    read = {name: topic for name, topic in source_changelogs.items() if name in stores}
    repartition_topics = {
        topic: internal_topics[topic] for topic in source_topics if topic in internal_topics
    }
    passing = [topic for topic in sink_topics if topic in internal_topics]
    return SubTopology(
        id=number,
        nodes=nodes,
        source_topics=source_topics,
        source_patterns=tuple(node.pattern for node in sources if node.pattern is not None),
        sink_topics=sink_topics,
        repartition_topics=repartition_topics,
        stores=stores,
        changelogs={name: (own | read)[name] for name in stores if name in own or name in read},
        internal_topics=frozenset((*repartition_topics, *passing, *own.values())),
    )


def group_nodes(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """The nodes of each sub-topology, by the number of the sub-topology.

    Args:
        nodes: all nodes of a topology, in the order in which they were added, parents first.
    """
    leaders = _Leaders(node.name for node in nodes)
    users: dict[str, str] = {}
    for node in nodes:
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                leaders.unite(node.name, parent)
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                leaders.unite(node.name, users.setdefault(store, node.name))
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(leaders.find(node.name), []).append(node)
    return [tuple(group) for group in groups.values()]


class _Leaders:
    """Union-find: names united so far have the same leader."""

    def __init__(self, names: Iterable[str]) -> None:
        self._above = {name: name for name in names}

    def find(self, name: str) -> str:
        above = self._above
        while above[name] != name:
            above[name] = above[above[name]]
            name = above[name]
        return name

    def unite(self, one: str, other: str) -> None:
        self._above[self.find(one)] = self.find(other)

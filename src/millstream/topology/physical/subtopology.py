"""Sub-topologies: nodes that are connected without a topic between them.

Each sub-topology becomes one task per partition. Two nodes belong together if one is the parent of
the other or if they use the same store. Sub-topologies are numbered in the order in which their
nodes were added, as in Kafka Streams (`InternalTopologyBuilder.nodeGroups`), because task ids and
state directories contain these numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.physical.internal_topic_configs import (
    RepartitionTopic,
    changelog_name,
    decorated,
)
from millstream.topology.physical.java_order import hash_order
from millstream.topology.physical.nodes import (
    GlobalStoreNodes,
    Node,
    ProcessorNode,
    SinkNode,
    SourceNode,
)


@dataclass(frozen=True, slots=True)
class SubTopology:
    """A sub-topology, with everything that its tasks need.

    Can be pickled with cloudpickle. The names of internal topics are undecorated; `decorate`
    returns the names on the cluster.
    """

    #: The number of the sub-topology, which is the first part of task ids.
    id: int
    #: The nodes, in the order in which they were added.
    nodes: tuple[Node, ...]
    #: The topics that are read by name, including internal topics.
    source_topics: tuple[str, ...]
    source_patterns: tuple[re.Pattern[str], ...]
    #: The topics with fixed names that are written, including internal topics.
    sink_topics: tuple[str, ...]
    repartition_topics: Mapping[str, RepartitionTopic]
    stores: Mapping[str, StoreBuilder]
    #: The topic from which each store is restored: its changelog, or a source topic.
    changelogs: Mapping[str, str]
    #: All internal topics that are read or written, including changelogs.
    internal_topics: frozenset[str]

    @property
    def is_stateful(self) -> bool:
        """Whether tasks have state to restore, from changelogs or source topics."""
        return bool(self.changelogs)

    def decorate(self, topic: str, application_id: str) -> str:
        """Return the name of a topic on the cluster.

        Names of internal topics contain the application id.
        """
        return decorated(topic, application_id) if topic in self.internal_topics else topic


def build_subtopology(
    number: int,
    nodes: tuple[Node, ...],
    state_stores: Mapping[str, StoreBuilder],
    internal_topics: Mapping[str, RepartitionTopic],
    source_changelogs: Mapping[str, str],
) -> SubTopology:
    """Return the sub-topology that consists of these nodes.

    Args:
        nodes: in the order in which they were added to the topology.
        source_changelogs: for each store without a changelog, the source topic from which it is
            restored.
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
    # Caches are flushed in this order. As in Kafka Streams, the stores of a node form a set.
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
    written = [topic for topic in sink_topics if topic in internal_topics]
    return SubTopology(
        id=number,
        nodes=nodes,
        source_topics=source_topics,
        source_patterns=tuple(node.pattern for node in sources if node.pattern is not None),
        sink_topics=sink_topics,
        repartition_topics=repartition_topics,
        stores=stores,
        changelogs={name: (own | read)[name] for name in stores if name in own or name in read},
        internal_topics=frozenset((*repartition_topics, *written, *own.values())),
    )


def numbered_parts(
    nodes: Sequence[Node], global_stores: Iterable[GlobalStoreNodes]
) -> list[tuple[Node, ...] | GlobalStoreNodes]:
    """Return each sub-topology's nodes, and the global stores, ordered by number.

    As in Kafka Streams, global stores are numbered too.

    Args:
        nodes: in the order in which they were added to the topology, parents first.
    """
    positions = {node.name: position for position, node in enumerate(nodes)}
    placed: list[tuple[tuple[int, int], tuple[Node, ...] | GlobalStoreNodes]] = [
        ((positions[group[0].name], 1), group) for group in _group_nodes(nodes)
    ]
    placed += [((store.position, 0), store) for store in global_stores]
    return [entry for _, entry in sorted(placed, key=lambda place: place[0])]


def _group_nodes(nodes: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return the nodes of each sub-topology, in the order of their first nodes."""
    roots = _UnionFind(node.name for node in nodes)
    users: dict[str, str] = {}
    for node in nodes:
        if not isinstance(node, SourceNode):
            for parent in node.parents:
                roots.union(node.name, parent)
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                roots.union(node.name, users.setdefault(store, node.name))
    groups: dict[str, list[Node]] = {}
    for node in nodes:
        groups.setdefault(roots.find(node.name), []).append(node)
    return [tuple(group) for group in groups.values()]


class _UnionFind:
    """Disjoint sets of names. Connected names have the same root."""

    def __init__(self, names: Iterable[str]) -> None:
        self._above = {name: name for name in names}

    def find(self, name: str) -> str:
        above = self._above
        while above[name] != name:
            above[name] = above[above[name]]
            name = above[name]
        return name

    def union(self, one: str, other: str) -> None:
        self._above[self.find(one)] = self.find(other)

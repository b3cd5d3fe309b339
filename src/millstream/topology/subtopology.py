"""Sub-topologies: the parts of a topology that are connected other than through topics.

Each becomes one task per partition. Nodes belong together if one is the other's parent or if they
use the same store. Numbers are given in the order in which nodes were added (semantics:
`InternalTopologyBuilder.nodeGroups`), because task ids and state directories are named after them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.state.builders import KeyValueStoreBuilder as StoreBuilder
from millstream.topology.internal_topics import RepartitionTopic, decorated
from millstream.topology.nodes import Node, ProcessorNode, SourceNode


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
        changelogs: the changelog topic of each store that is logged.
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

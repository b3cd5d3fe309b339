"""The logical graph: one node per word of the DSL, before it becomes physical nodes.

Each call on a stream attaches a node below that of the stream. `LogicalGraph.build` then merges
sources that read the same topics, optimizes if asked to, and lets the nodes write themselves into
a `Topology`, each after its parents, otherwise in the order of attaching. That order decides the
numbers of sub-topologies, so it is Kafka Streams' own (`InternalStreamsBuilder`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site
from millstream.topology.graph_nodes import GraphNode, RootGraphNode, SourceGraphNode
from millstream.topology.naming import Names
from millstream.topology.optimize import merge_repartition_topics
from millstream.topology.topology import Topology


class LogicalGraph:
    """What the user has said so far to one `StreamsBuilder`.

    Attributes:
        names: the counter for generated names.
        root: the parent of all sources and stores.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.root = RootGraphNode(name="root", declared_at="")
        self._attached: dict[GraphNode, None] = {}
        self._next_priority = 0
        self._copartitioned: list[frozenset[str]] = []
        self._built: Topology | None = None

    def attach(self, node: GraphNode, *parents: GraphNode) -> None:
        """Put a node below its parents, or below further parents if it is in the graph already.

        Raises:
            TopologyError: the topology was built already.
        """
        if self._built is not None:
            raise TopologyError(
                "The topology was built already, so nothing can be added to it. "
                "Call build() after the last operation.",
                node=node.name,
                declared_at=call_site(),
            )
        for parent in parents:
            parent.add_child(node)
        self._attached[node] = None
        # Attaching a node again moves it to the end of the order: follows Kafka Streams.
        node.priority = self._next_priority
        self._next_priority += 1

    def copartition(self, source_names: Iterable[str]) -> None:
        """Say that all topics read by these sources must have equally many partitions."""
        self._copartitioned.append(frozenset(source_names))

    def build(self, *, optimize: bool) -> Topology:
        """The physical topology; the same object at each call.

        Raises:
            TopologyError: the graph contradicts itself.
        """
        if self._built is None:
            replaced = self._merge_sources()
            if optimize:
                replaced |= merge_repartition_topics(self._attached, self.names)
            topology = Topology()
            self._write(topology)
            for sources in self._copartitioned:
                topology.copartition(sorted({replaced.get(name, name) for name in sources}))
            topology.check_copartition()
            self._built = topology
        return self._built

    def _merge_sources(self) -> dict[str, str]:
        """Let sources of the same topics be one node; the names merged away, and into which."""
        replaced: dict[str, str] = {}
        kept: list[SourceGraphNode] = []
        for node in list(self.root.children):
            if not isinstance(node, SourceGraphNode):
                continue
            for earlier in kept:
                if earlier.reads_the_same(node):
                    earlier.absorb(node)
                    replaced[node.name] = earlier.name
                    break
            else:
                kept.append(node)
        return replaced

    def _write(self, topology: Topology) -> None:
        queue: list[tuple[int, int, GraphNode]] = []
        written: set[GraphNode] = set()
        offered = 0

        def write(node: GraphNode) -> None:
            nonlocal offered
            node.write(topology)
            written.add(node)
            for child in node.children:
                offered += 1
                heapq.heappush(queue, (child.priority, offered, child))

        write(self.root)
        while queue:
            node = heapq.heappop(queue)[2]
            # A node with several parents is offered by each, and its turn is after the last one's.
            if node not in written and all(parent in written for parent in node.parents):
                write(node)

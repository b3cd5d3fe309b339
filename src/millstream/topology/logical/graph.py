"""The logical graph: one node per word of the DSL, before it becomes physical nodes.

Each call on a stream attaches a node below that of the stream. `LogicalGraph.build` then merges
sources that read the same topics, optimizes if asked to, and lets the nodes write themselves into
a `Topology`, each after its parents, otherwise in the order of attaching. That order decides the
numbers of sub-topologies, so it is Kafka Streams' own (`InternalStreamsBuilder`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from millstream.config_optimization import (
    MERGE_REPARTITION_TOPICS,
    REUSE_KTABLE_SOURCE_TOPICS,
    SINGLE_STORE_SELF_JOIN,
)
from millstream.errors import TopologyError
from millstream.topology.call_site import call_site
from millstream.topology.logical.graph_nodes import GraphNode, RootGraphNode, SourceGraphNode
from millstream.topology.naming import Names
from millstream.topology.passes.null_keys import let_null_keys_pass
from millstream.topology.passes.optimize import merge_repartition_topics
from millstream.topology.passes.self_join import single_store_self_joins
from millstream.topology.passes.source_changelogs import reuse_source_topics
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.physical.topology import Topology


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
        self._copartitioned: list[tuple[SourceNames, str]] = []
        self._stand_ins: dict[str, SourceNames] = {}
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

    @property
    def nodes(self) -> list[GraphNode]:
        """What was attached so far, in order."""
        return list(self._attached)

    def copartition(self, source_names: Iterable[str]) -> None:
        """Say that all topics read by these sources must have equally many partitions."""
        self._copartitioned.append((SourceNames(source_names), call_site()))

    def stand_in(self, name: str, sources: SourceNames) -> SourceNames:
        """The name under which Kafka Streams goes on to know some sources, though none has it.

        Where it lists what must be co-partitioned, they are missing. Checks do not miss them.

        Args:
            name: the name, of another node or of none.
            sources: what it stands for; may be stand-ins themselves, also that name again.
        """
        if name not in sources:
            self._stand_ins[name] = sources
        return SourceNames([name])

    def build(self, optimizations: frozenset[str]) -> Topology:
        """The physical topology; the same object at each call.

        Args:
            optimizations: by their names; they are applied in Kafka Streams' order.

        Raises:
            TopologyError: the graph contradicts itself.
        """
        if self._built is None:
            merged = self._merge_sources()
            moved: dict[str, str] = {}
            if MERGE_REPARTITION_TOPICS in optimizations:
                moved = merge_repartition_topics(self._attached, self.names)
            if SINGLE_STORE_SELF_JOIN in optimizations:
                single_store_self_joins(self._attached)
            if REUSE_KTABLE_SOURCE_TOPICS in optimizations:
                reuse_source_topics(self._attached)
            let_null_keys_pass(self.root)
            topology = Topology()
            topology.optimizations = optimizations
            self._write(topology)
            for sources, site in self._copartitioned:
                true = {merged.get(name, name) for name in self._true_sources(sources)}
                topology._copartition(
                    sorted({moved.get(name, name) for name in true}),
                    listed=[moved.get(name, name) for name in sources.in_order],
                    declared_at=site,
                )
            topology._check_copartition()
            self._built = topology
        return self._built

    def _true_sources(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            if name in self._stand_ins:
                yield from self._true_sources(self._stand_ins[name])
            else:
                yield name

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

"""The logical graph: one node for each operation of the DSL.

Each call on a stream attaches a node below the node of the stream.
`millstream.topology.passes.build` creates a `Topology` from the complete graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site
from millstream.topology.logical.graph_nodes import GraphNode, RootGraphNode
from millstream.topology.naming import NameGenerator
from millstream.topology.physical.java_order import SourceNames
from millstream.topology.physical.suppliers import ProcessorWrapper


class LogicalGraph:
    """The operations of one `StreamsBuilder`."""

    def __init__(self, processor_wrapper: ProcessorWrapper | None = None) -> None:
        self.processor_wrapper = processor_wrapper
        self.names = NameGenerator()
        self.root = RootGraphNode(name="root", declared_at="")
        self._attached: dict[GraphNode, None] = {}
        self._next_priority = 0
        #: Whether a topology has been built, after which nothing can be added.
        self.is_built = False
        #: Sources that must be co-partitioned, with the file and line of the declaration.
        self.copartitioned: list[tuple[SourceNames, str]] = []
        self._source_aliases: dict[str, SourceNames] = {}

    def attach(self, node: GraphNode, *parents: GraphNode) -> None:
        """Attach a new node to its parents, or an attached node to more parents.

        Raises:
            TopologyError: the topology has already been built.
        """
        if self.is_built:
            raise TopologyError(
                "The topology has already been built, so nothing can be added to it. "
                "Call build() after the last operation.",
                node=node.name,
                declared_at=call_site(),
            )
        for parent in parents:
            parent.add_child(node)
        self._attached[node] = None
        # As in Kafka Streams, attaching a node again moves it to the end of the order.
        node.priority = self._next_priority
        self._next_priority += 1

    @property
    def nodes(self) -> list[GraphNode]:
        return list(self._attached)

    def copartition(self, source_names: Iterable[str]) -> None:
        """Require that all topics of these sources have the same number of partitions."""
        self.copartitioned.append((SourceNames(source_names), call_site()))

    def alias_sources(self, name: str, sources: SourceNames) -> SourceNames:
        """Register a name that Kafka Streams uses instead of the names of the sources.

        Kafka Streams omits such sources from its list of co-partitioned topics; our checks include
        them. `sources` may contain aliases. If it contains `name`, the existing alias is unchanged.
        """
        if name not in sources:
            self._source_aliases[name] = sources
        return SourceNames([name])

    def resolve_sources(self, names: Iterable[str]) -> Iterator[str]:
        """Yield the sources of these names, with aliases replaced by their sources."""
        for name in names:
            if name in self._source_aliases:
                yield from self.resolve_sources(self._source_aliases[name])
            else:
                yield name

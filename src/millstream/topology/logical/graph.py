"""The logical graph: one node per word of the DSL, before it becomes physical nodes.

Each call on a stream attaches a node below that of the stream. When the program has said all,
`millstream.topology.passes.build` makes a `Topology` of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site
from millstream.topology.logical.graph_nodes import GraphNode, RootGraphNode
from millstream.topology.naming import Names
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.physical.suppliers import ProcessorWrapper


class LogicalGraph:
    """What the user has said so far to one `StreamsBuilder`.

    Args:
        processor_wrapper: what is put around the user's processors.

    Attributes:
        processor_wrapper: as given.
        names: the counter for generated names.
        root: the parent of all sources and stores.
        is_built: whether a topology was made of it, so that nothing can be added any more.
        copartitioned: what is read side by side, each with file and line of the user's program.
    """

    def __init__(self, processor_wrapper: ProcessorWrapper | None = None) -> None:
        self.processor_wrapper = processor_wrapper
        self.names = Names()
        self.root = RootGraphNode(name="root", declared_at="")
        self._attached: dict[GraphNode, None] = {}
        self._next_priority = 0
        self.is_built = False
        self.copartitioned: list[tuple[SourceNames, str]] = []
        self._stand_ins: dict[str, SourceNames] = {}

    def attach(self, node: GraphNode, *parents: GraphNode) -> None:
        """Put a node below its parents, or below further parents if it is in the graph already.

        Raises:
            TopologyError: the topology was built already.
        """
        if self.is_built:
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
        self.copartitioned.append((SourceNames(source_names), call_site()))

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

    def true_sources(self, names: Iterable[str]) -> Iterator[str]:
        """The sources of these names, and in the place of stand-ins those that they stand for."""
        for name in names:
            if name in self._stand_ins:
                yield from self.true_sources(self._stand_ins[name])
            else:
                yield name

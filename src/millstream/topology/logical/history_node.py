"""The node of a history from the lake: a source of two topics, of which the first is our own."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import TopologyError
from millstream.topology.logical.graph_nodes import SourceGraphNode
from millstream.topology.options.history import LakeHistory
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.topology import Topology


@dataclass(eq=False, slots=True, kw_only=True)
class HistoryGraphNode(SourceGraphNode):
    """`stream_from_lake(...)`: the topic of the history and the one that comes after it.

    Args:
        history: the table.
        generated_name: whether the user gave no name.
    """

    history: LakeHistory
    generated_name: bool

    def write(self, topology: Topology) -> None:
        """The internal topic, the table that fills it, and a source node."""
        history = self.history
        topology._add_internal_topic(
            RepartitionTopic(history.topic, history.partitions, self.generated_name)
        )
        topology._add_lake_history(history)
        SourceGraphNode.write(self, topology)

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topic of the user's."""
        return () if self.history.then is None else (self.history.then,)

    def absorb(self, other: SourceGraphNode) -> None:
        """There is nothing to share.

        Raises:
            TopologyError: always; both would fill the same topic.
        """
        raise TopologyError(
            f"There is another history called {self.history.name!r}, declared at "
            f"{self.declared_at}. Give each its own name, or use the stream twice.",
            declared_at=other.declared_at,
        )

"""The node of a join of two streams in the logical graph."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.logical.graph_nodes import GraphNode, OperatorGraphNode
from millstream.topology.operations.joins import StreamSelfJoin, StreamStreamJoin
from millstream.topology.operations.streams import PassThrough
from millstream.topology.physical.topology import Topology


@dataclass(eq=False, slots=True, kw_only=True)
class StreamStreamJoinGraphNode(GraphNode):
    """A join of two streams, without the nodes that keep the records of either side.

    Args:
        windowed: the nodes that keep the records of this stream and of the other one.
        joins: the names of the nodes that join the records of either.
        operations: what those two do.
        self_join: what does the work of both where the streams are the same.
        stores: the window stores of the two sides.
        unjoined_store: the store that left and outer joins have in addition.
        unjoined_name_generated: whether its name was generated.
        is_self_join: whether one node and one store serve both sides.
    """

    windowed: tuple[OperatorGraphNode, OperatorGraphNode]
    joins: tuple[str, str]
    operations: tuple[StreamStreamJoin, StreamStreamJoin]
    self_join: StreamSelfJoin
    stores: tuple[StoreBuilder, StoreBuilder]
    unjoined_store: StoreBuilder | None
    unjoined_name_generated: bool
    is_self_join: bool = False

    def write(self, topology: Topology) -> None:
        """Two processors that join, and one that brings their results together."""
        site = self.declared_at
        if self.is_self_join:
            parent = self.windowed[0].name
            topology._add_operation(self.name, self.self_join, parent, site)
            topology.add_state_store(self.stores[0], self.name)
            return
        for position, name in enumerate(self.joins):
            parent = self.windowed[position].name
            topology._add_operation(name, self.operations[position], parent, site)
            topology.add_state_store(self.stores[1 - position], name)
            if self.unjoined_store is not None:
                topology.add_state_store(
                    self.unjoined_store, name, generated_name=self.unjoined_name_generated
                )
        topology._add_operation(self.name, PassThrough(), self.joins, site)

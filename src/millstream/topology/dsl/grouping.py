"""Records grouped by key, as all aggregations of a group share them."""

from __future__ import annotations

from dataclasses import replace

from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import RepartitionGraphNode
from millstream.topology.logical.repartition import repartition_node
from millstream.topology.physical.source_names import SourceNames


class Grouping:
    """What is grouped, and the repartition topic that the group's aggregations may share.

    Args:
        part: the stream, with the serdes of the group.
        name: the user's name for the grouping, which makes its aggregations share one topic.
    """

    def __init__(self, part: StreamPart, name: str | None) -> None:
        self.part = part
        self.name = name
        self._repartition: RepartitionGraphNode | None = None

    def repartition_node(
        self, store_name: str, *, store_name_generated: bool
    ) -> RepartitionGraphNode:
        """A node through which records go to the tasks that own their keys. Takes three numbers.

        Args:
            store_name: the name of the aggregation's store, after which the topic is called if the
                grouping has no name.
            store_name_generated: whether the user did not name the store.
        """
        return repartition_node(
            self.part.graph.names,
            self.name or store_name,
            key_serde=self.part.key_serde,
            value_serde=self.part.value_serde,
            declared_at=call_site(),
            generated=self.name is None and store_name_generated,
        )

    def placed_by_key(self, store_name: str, *, store_name_generated: bool) -> StreamPart:
        """The stream after repartitioning, if keys may have changed.

        Args:
            store_name: as for `repartition_node`.
            store_name_generated: as for `repartition_node`.
        """
        part = self.part
        if not part.repartition_required:
            return part
        node = self.repartition_node(store_name, store_name_generated=store_name_generated)
        if self._repartition is None or self.name is None:
            self._repartition = node
        part.graph.attach(self._repartition, part.node)
        return replace(
            part,
            node=self._repartition,
            sources=SourceNames([self._repartition.name]),
            repartition_required=False,
        )

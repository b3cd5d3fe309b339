"""Rows of a table grouped by another key, and the tables of their aggregations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.operators.tables.changed import ChangeSerde
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_part import StoredTable, TablePart
from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.naming import suffixed_name
from millstream.topology.operations.operation import TableOperation
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    key_value_builder,
    materialized,
)
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.physical.topology import Topology


class TableGrouping:
    """What is grouped, and the repartition topic that the group's aggregations may share.

    Args:
        part: the changes of the table under their new keys, with the serdes of the group.
        name: the user's name for the grouping, which makes its aggregations share one topic.
    """

    def __init__(self, part: StreamPart, name: str | None) -> None:
        self.part = part
        self._name = name
        self._repartition: _ChangesGraphNode | None = None

    def aggregated(
        self,
        prefix: str,
        store: StoreChoice,
        name: str | None,
        operation: Callable[[str], TableOperation],
        value_serde: Serde[Any] | None,
    ) -> TablePart:
        """The table of an aggregation. Numbers go to its store, topic and node, in this order.

        Args:
            prefix: of the node's name.
            store: what the user said about the store.
            name: the user's name for the node.
            operation: what the node does, from the name of the store.
            value_serde: of the aggregates, unless the user chose one.
        """
        part, names = self.part, self.part.graph.names
        choice = materialized(store)
        # Follows Kafka Streams: generated names of stores speak of an aggregation in any case.
        builder = key_value_builder(
            choice,
            names,
            "KTABLE-AGGREGATE-",
            key_serde=part.key_serde,
            value_serde=value_serde,
        )
        generated = choice.store_name is None
        sink = suffixed_name(names, name, "-sink", "KSTREAM-SINK-")
        source = suffixed_name(names, name, "-source", "KSTREAM-SOURCE-")
        node = TableGraphNode(
            name=names.processor(prefix, name),
            declared_at=call_site(),
            operation=operation(builder.name),
            output_versioned=choice.is_versioned,
            store_builder=builder,
            store_name_generated=generated,
        )
        placed = self._placed(choice, sink, source, builder.name)
        part.graph.attach(node, placed)
        table = replace(
            part,
            node=node,
            key_serde=builder.key_serde,
            value_serde=builder.value_serde,
            sources=SourceNames([source]),
            repartition_required=False,
        )
        return TablePart(table, StoredTable(builder.name, node), choice.store_name)

    def _placed(
        self, choice: Materialized[Any, Any], sink: str, source: str, store_name: str
    ) -> _ChangesGraphNode:
        """The node through which changes reach the tasks of their groups."""
        part = self.part
        if self._repartition is None or self._name is None:
            base = self._name or store_name
            self._repartition = _ChangesGraphNode(
                name=source,
                declared_at=call_site(),
                topic=RepartitionTopic(
                    f"{base}-repartition",
                    generated=self._name is None and choice.store_name is None,
                ),
                sink_name=sink,
                key_serde=part.key_serde,
                value_serde=ChangeSerde(part.value_serde),
            )
        part.graph.attach(self._repartition, part.node)
        return self._repartition


@dataclass(eq=False, slots=True, kw_only=True)
class _ChangesGraphNode(GraphNode):
    """The changes of a table pass through an internal topic to the tasks that own their groups.

    Its name is that of the source which reads the topic.

    Args:
        topic: the internal topic.
        sink_name: the node that writes the topic.
        key_serde: of the groups.
        value_serde: of the changes.
    """

    kind = "repartition"

    topic: RepartitionTopic
    sink_name: str
    key_serde: Serde[Any] | None
    value_serde: ChangeSerde

    def write(self, topology: Topology) -> None:
        """A sink and a source."""
        topic, site = self.topic.name, self.declared_at
        topology._add_internal_topic(self.topic)
        topology.add_sink(
            self.sink_name,
            topic,
            self.parent_names,
            key=self.key_serde,
            value=self.value_serde,
            declared_at=site,
        )
        topology.add_source(
            self.name, topic, key=self.key_serde, value=self.value_serde, declared_at=site
        )

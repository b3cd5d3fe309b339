"""Aggregations of tables that are grouped by another key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.operators.tables.table_change import ChangeSerde
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_access import StoredTable, TablePart
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
from millstream.topology.physical.internal_topic_configs import RepartitionTopic
from millstream.topology.physical.java_order import SourceNames
from millstream.topology.physical.topology import Topology


class TableGrouping:
    """A grouped table, and the repartition topic that its aggregations may share.

    Args:
        part: the changes of the table with their new keys, and the serdes of the group.
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
        """Return the table of an aggregation.

        Generated names are numbered in this order: the store, the topic's sink and source, the
        node.

        Args:
            operation: called with the name of the store; returns the operation of the node.
        """
        part, names = self.part, self.part.graph.names
        choice = materialized(store)
        # As in Kafka Streams, generated store names contain AGGREGATE for all aggregations.
        builder = key_value_builder(
            choice, names, "KTABLE-AGGREGATE-", key_serde=part.key_serde, value_serde=value_serde
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
        repartition = self._repartition_node(choice, sink, source, builder.name)
        part.graph.attach(node, repartition)
        table = replace(
            part,
            node=node,
            key_serde=builder.key_serde,
            value_serde=builder.value_serde,
            sources=SourceNames([source]),
            repartition_required=False,
        )
        return TablePart(table, StoredTable(builder.name, [node]), choice.store_name)

    def _repartition_node(
        self, choice: Materialized[Any, Any], sink: str, source: str, store_name: str
    ) -> _ChangesGraphNode:
        """Return the attached node through which changes reach the tasks of their groups."""
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
    """An internal topic that carries a table's changes to the tasks of their groups.

    The node is named after the source that reads the topic.
    """

    kind = "repartition"

    topic: RepartitionTopic
    sink_name: str
    key_serde: Serde[Any] | None
    value_serde: ChangeSerde

    def write(self, topology: Topology) -> None:
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

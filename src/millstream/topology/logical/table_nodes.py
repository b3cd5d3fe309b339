"""The nodes of tables in the logical graph: what is known of them only when the graph is complete.

An operation further down may want to know what a change replaces, or need to read the table; so
the operators are made with these wishes when the nodes are written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millstream.serdes import Serde
from millstream.topology.logical.graph_nodes import OperatorGraphNode
from millstream.topology.operations.operation import (
    KeepableTableOperation,
    Operation,
    TableOperation,
)
from millstream.topology.options.materialized import TableStoreBuilder
from millstream.topology.physical.nodes import OffsetReset, TimestampExtractor
from millstream.topology.physical.topology import Topology


@dataclass(eq=False, slots=True, kw_only=True)
class TableGraphNode(OperatorGraphNode):
    """An operation whose result is a table.

    Args:
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    operation: TableOperation
    output_versioned: bool | None = False
    send_old_values: bool = False

    def complete_operation(self) -> Operation:
        """The operation, which knows what is expected of it."""
        complete = OperatorGraphNode.complete_operation(self)
        assert isinstance(complete, TableOperation)
        return replace(complete, send_old_values=self.send_old_values)


@dataclass(eq=False, slots=True, kw_only=True)
class LazyTableGraphNode(TableGraphNode):
    """A table that gets its store only if somebody needs it.

    Args:
        lazy_store: the builder of the store.
        materialized: whether there is a store.
    """

    operation: KeepableTableOperation
    lazy_store: TableStoreBuilder
    materialized: bool

    @property
    def store_name(self) -> str:
        """The name that the store has, or would have."""
        return self.lazy_store.name

    def complete_operation(self) -> Operation:
        """The operation, which knows whether there is a store."""
        complete = TableGraphNode.complete_operation(self)
        assert isinstance(complete, KeepableTableOperation)
        return replace(complete, store=self.store_name if self.materialized else None)

    def write(self, topology: Topology) -> None:
        """A processor node, and its store if there is one."""
        self._write_table(topology, self.parent_names)

    def _write_table(self, topology: Topology, parents: list[str]) -> None:
        topology._add_operation(self.name, self.complete_operation(), parents, self.declared_at)
        if self.materialized:
            topology.add_state_store(
                self.lazy_store, self.name, generated_name=self.store_name_generated
            )
        elif self.store_name_generated:
            topology._note_generated_store(self.store_name, logged=self.lazy_store.logging)


@dataclass(eq=False, slots=True, kw_only=True)
class TableSourceGraphNode(LazyTableGraphNode):
    """`table(...)`: a topic is read as a table.

    Args:
        source_name: the node that reads the topic.
        topic: the topic.
        key_serde: None for the config's default.
        value_serde: None for the config's default.
        timestamp_extractor: None for the config's default.
        offset_reset: None for the config's.
        topic_is_changelog: whether the store is restored from the topic, and needs no changelog
            (Kafka Streams' `reuse.ktable.source.topics`).
    """

    kind = "table_source"

    source_name: str
    topic: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    timestamp_extractor: TimestampExtractor | None
    offset_reset: OffsetReset | None
    topic_is_changelog: bool = False

    @property
    def read_topics(self) -> tuple[str, ...]:
        """The topic."""
        return (self.topic,)

    def write(self, topology: Topology) -> None:
        """A source node and a processor node, and a store if there is one."""
        topology.add_source(
            self.source_name,
            self.topic,
            key=self.key_serde,
            value=self.value_serde,
            timestamp_extractor=self.timestamp_extractor,
            offset_reset=self.offset_reset,
            declared_at=self.declared_at,
        )
        topology._note_table_topic(self.topic)
        if self.topic_is_changelog and self.materialized:
            self.lazy_store = self.lazy_store.with_logging(False)
            topology._add_source_changelog(self.store_name, self.topic)
        self._write_table(topology, [self.source_name])

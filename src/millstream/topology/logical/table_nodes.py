"""The nodes of tables.

Downstream operations may need the old values of changes, or read access to the table. The
operations of these nodes are therefore only completed when the nodes are written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millstream.serdes import Serde
from millstream.topology.logical.graph_nodes import OperatorGraphNode
from millstream.topology.operations.operation import (
    MaterializableOperation,
    Operation,
    TableOperation,
)
from millstream.topology.options.materialized import TableStoreBuilder
from millstream.topology.physical.nodes import OffsetReset, TimestampExtractor
from millstream.topology.physical.topology import Topology


@dataclass(eq=False, slots=True, kw_only=True)
class TableGraphNode(OperatorGraphNode):
    """An operation that produces a table."""

    operation: TableOperation
    output_versioned: bool | None = False
    #: Whether a downstream operation needs the old values of changes.
    send_old_values: bool = False

    def complete_operation(self) -> Operation:
        complete = OperatorGraphNode.complete_operation(self)
        assert isinstance(complete, TableOperation)
        return replace(complete, send_old_values=self.send_old_values)


@dataclass(eq=False, slots=True, kw_only=True)
class LazyTableGraphNode(TableGraphNode):
    """A table that gets a store only if an operation needs one."""

    operation: MaterializableOperation
    lazy_store: TableStoreBuilder
    #: Whether the table has a store.
    materialized: bool

    @property
    def store_name(self) -> str:
        """The name of the store, even if the table is not materialized."""
        return self.lazy_store.name

    def complete_operation(self) -> Operation:
        complete = TableGraphNode.complete_operation(self)
        assert isinstance(complete, MaterializableOperation)
        return replace(complete, store=self.store_name if self.materialized else None)

    def write(self, topology: Topology) -> None:
        self._write_table(topology, self.parent_names)

    def _write_table(self, topology: Topology, parents: list[str]) -> None:
        topology._add_operation(self.name, self.complete_operation(), parents, self.declared_at)
        if self.materialized:
            topology.add_state_store(
                self.lazy_store, self.name, generated_name=self.store_name_generated
            )
        elif self.store_name_generated:
            topology._add_generated_store(self.store_name, logged=self.lazy_store.logging)


@dataclass(eq=False, slots=True, kw_only=True)
class TableSourceGraphNode(LazyTableGraphNode):
    """`table(...)`: a topic that is read as a table."""

    kind = "table_source"

    source_name: str
    topic: str
    key_serde: Serde[Any] | None
    value_serde: Serde[Any] | None
    timestamp_extractor: TimestampExtractor | None
    offset_reset: OffsetReset | None
    #: Whether the store is restored from the topic and needs no changelog (Kafka Streams'
    #: `reuse.ktable.source.topics`).
    topic_is_changelog: bool = False

    @property
    def read_topics(self) -> tuple[str, ...]:
        return (self.topic,)

    def write(self, topology: Topology) -> None:
        topology.add_source(
            self.source_name,
            self.topic,
            key=self.key_serde,
            value=self.value_serde,
            timestamp_extractor=self.timestamp_extractor,
            offset_reset=self.offset_reset,
            declared_at=self.declared_at,
        )
        topology._add_table_topic(self.topic)
        if self.topic_is_changelog and self.materialized:
            self.lazy_store = self.lazy_store.with_logging(False)
            topology._add_source_changelog(self.store_name, self.topic)
        self._write_table(topology, [self.source_name])

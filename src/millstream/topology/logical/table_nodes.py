"""The nodes of tables in the logical graph: what is known of them only when the graph is complete.

An operation further down may want to know what a change replaces, or need to read the table; so
the operators are made with these wishes when the nodes are written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.operators.operator import OperatorSupplier
from millstream.serdes import Serde
from millstream.topology.logical.graph_nodes import GraphNode, OperatorGraphNode
from millstream.topology.options.materialized import TableStoreBuilder
from millstream.topology.physical.nodes import OffsetReset, TimestampExtractor
from millstream.topology.physical.topology import Topology


@dataclass(eq=False, slots=True, kw_only=True)
class TableGraphNode(OperatorGraphNode):
    """An operation whose result is a table.

    Its `supplier` takes `send_old_values=...`, and `versioned=...` if it heeds versions.

    Args:
        send_old_values: whether somebody downstream must know what a change replaces.
        heeds_versions: whether the operator must know if the table it gets is versioned, and so
            may hold changes that are not the newest.
    """

    supplier: Callable[..., Any]
    output_versioned: bool | None = False
    send_old_values: bool = False
    heeds_versions: bool = False

    def complete_supplier(self) -> OperatorSupplier:
        """The supplier of operators that know what is expected of them."""
        supplier = partial(self.supplier, send_old_values=self.send_old_values)
        if self.heeds_versions:
            supplier = partial(supplier, versioned=is_versioned_above(self))
        return supplier


@dataclass(eq=False, slots=True, kw_only=True)
class LazyTableGraphNode(TableGraphNode):
    """A table that gets its store only if somebody needs it.

    Its `supplier` takes `store=...` as well, which is None without a store.

    Args:
        lazy_store: the builder of the store.
        materialized: whether there is a store.
    """

    lazy_store: TableStoreBuilder
    materialized: bool

    @property
    def store_name(self) -> str:
        """The name that the store has, or would have."""
        return self.lazy_store.name

    def complete_supplier(self) -> OperatorSupplier:
        """The supplier of operators that know whether there is a store."""
        complete: Callable[..., Any] = TableGraphNode.complete_supplier(self)
        return partial(complete, store=self.store_name if self.materialized else None)

    def write(self, topology: Topology) -> None:
        """A processor node, and its store if there is one."""
        self._write_table(topology, self.parent_names)

    def _write_table(self, topology: Topology, parents: list[str]) -> None:
        supplier = self.complete_supplier()
        topology.add_processor(self.name, supplier, parents, declared_at=self.declared_at)
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
        if self.topic_is_changelog and self.materialized:
            self.lazy_store = self.lazy_store.with_logging(False)
            topology._add_source_changelog(self.store_name, self.topic)
        self._write_table(topology, [self.source_name])


def is_versioned_above(node: GraphNode) -> bool:
    """Whether the changes that a node gets come from a versioned table.

    Follows Kafka Streams (KIP-914): nodes that keep no store, such as filters, hand the property
    of their input on.
    """
    return any(is_versioned(parent) for parent in node.parents)


def is_versioned(node: GraphNode) -> bool:
    """Whether the changes that a node gives are those of a versioned table."""
    if node.output_versioned is not None:
        return node.output_versioned
    return is_versioned_above(node)

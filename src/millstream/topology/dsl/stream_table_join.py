"""The join of a stream with a table, written into the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from millstream.durations import milliseconds
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.buffers import GraceBufferBuilder
from millstream.state.builders.versioned import VersionedStoreBuilder
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_part import TablePart
from millstream.topology.logical.graph_nodes import OperatorGraphNode
from millstream.topology.operations.joins import StreamTableJoin
from millstream.topology.physical.topology import Topology


def join_table(
    part: StreamPart,
    table: TablePart,
    joiner: Callable[..., Any],
    *,
    left: bool,
    with_key: bool,
    name: str | None,
    key: Serde[Any] | None = None,
    value: Serde[Any] | None = None,
    other_value: Serde[Any] | None = None,
    grace: timedelta | None = None,
) -> StreamPart:
    """The stream whose records are joined with the rows of a table that have their keys.

    Args:
        part: the stream, repartitioned if its keys may have changed.
        table: the table.
        joiner: (value, row) → value, or (key, value, row) → value.
        left: whether records without a row stay, joined with None.
        with_key: whether the joiner wants to see the key.
        name: of the operation.
        key: the serde of the keys.
        value: the serde of the stream's values, for those which wait for the grace period.
        other_value: the serde of the table's values; accepted as in Kafka Streams, where nothing
            needs it.
        grace: how long records wait for late changes of a versioned table.

    Raises:
        TopologyError: the grace is negative or longer than the table's history, or the table is not
            versioned.
    """
    part.graph.copartition(part.sources.united(table.part.sources))
    names, site = part.graph.names, call_site()
    node_name = names.processor("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-", name)
    buffer = None
    if grace is not None:
        grace_ms = milliseconds("join()", "grace", grace, least_ms=None)
        if grace_ms < 0:
            raise TopologyError(
                f"A grace period cannot be negative, but this one is {grace}.", declared_at=site
            )
        if table.part.node.output_versioned is False:
            raise TopologyError(_NOT_VERSIONED, declared_at=site)
        buffer = GraceBufferBuilder(
            f"{node_name}-Buffer",
            grace_ms,
            part.key_serde if key is None else key,
            part.value_serde if value is None else value,
        )
    getter = table.inner.getter()
    node = _StreamTableJoinGraphNode(
        name=node_name,
        declared_at=site,
        takes_null_keys=left,
        operation=StreamTableJoin(
            getter,
            joiner,
            left=left,
            with_key=with_key,
            buffer=None if buffer is None else buffer.name,
        ),
        store_builder=buffer,
        store_name_generated=name is None,
        store_names=getter.stores,
        grace_period_ms=None if buffer is None else buffer.grace_ms,
    )
    part.graph.attach(node, part.node)
    return replace(
        part,
        node=node,
        key_serde=part.key_serde if key is None else key,
        value_serde=None,
        sources=part.sources.united(table.part.sources),
        repartition_required=False,
    )


_NOT_VERSIONED = (
    "A join waits for late changes of a table only if the table keeps old versions of its rows. "
    "Give the table a versioned store (Materialized(..., kind='versioned', "
    "history_retention=...)), or leave out grace=..."
)


@dataclass(eq=False, slots=True, kw_only=True)
class _StreamTableJoinGraphNode(OperatorGraphNode):
    """A join with a table.

    Args:
        grace_period_ms: how long records wait; None if they do not.
    """

    grace_period_ms: int | None

    def write(self, topology: Topology) -> None:
        """A processor node, connected to the stores of the table, and its buffer if it has one."""
        topology._add_operation(self.name, self.operation, self.parent_names, self.declared_at)
        if self.store_builder is not None:
            topology.add_state_store(
                self.store_builder, self.name, generated_name=self.store_name_generated
            )
        topology.connect_processor_and_state_stores(self.name, *self.store_names)
        if self.grace_period_ms is not None:
            for store in self.store_names:
                self._check_history(topology.state_stores[store], self.grace_period_ms)

    def _check_history(self, store: Any, grace_ms: int) -> None:
        if not isinstance(store, VersionedStoreBuilder):
            raise TopologyError(_NOT_VERSIONED, node=self.name, declared_at=self.declared_at)
        if grace_ms > store.history_ms:
            raise TopologyError(
                f"The join waits {grace_ms} ms for late changes of the table, but its store "
                f"{store.name!r} keeps versions only for {store.history_ms} ms. Make the grace "
                "period shorter, or the history retention longer.",
                node=self.name,
                declared_at=self.declared_at,
            )

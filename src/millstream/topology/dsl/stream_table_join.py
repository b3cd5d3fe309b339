"""Joins of a stream with a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from millstream.durations import milliseconds
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.buffer_builders import GraceBufferBuilder
from millstream.state.builders.versioned_builders import VersionedStoreBuilder
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table_access import TablePart
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
    """Return the join of a stream with the table rows of the same keys.

    Args:
        part: the stream, repartitioned if its keys may have changed.
        other_value: the serde of the table's values, accepted as in Kafka Streams but not used.

    Raises:
        TopologyError: the grace period is negative, or the table is not versioned. From `build()`:
            the grace period is longer than the table's history retention.
    """
    part.graph.copartition(part.sources.united(table.part.sources))
    names, site = part.graph.names, call_site()
    node_name = names.processor("KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-", name)
    buffer = None
    if grace is not None:
        grace_ms = milliseconds("join()", "grace", grace, min_ms=None)
        if grace_ms < 0:
            raise TopologyError(
                f"A grace period cannot be negative, but got {grace}.", declared_at=site
            )
        if table.part.node.output_versioned is False:
            raise TopologyError(_NOT_VERSIONED, declared_at=site)
        buffer = GraceBufferBuilder(
            f"{node_name}-Buffer",
            grace_ms,
            part.key_serde if key is None else key,
            part.value_serde if value is None else value,
        )
    getter = table.access.getter()
    node = _StreamTableJoinGraphNode(
        name=node_name,
        declared_at=site,
        accepts_null_keys=left,
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
    "A join can only wait for late changes of a table that keeps old versions of its rows. "
    "Give the table a versioned store (Materialized(..., kind='versioned', "
    "history_retention=...)), or leave out grace=..."
)


@dataclass(eq=False, slots=True, kw_only=True)
class _StreamTableJoinGraphNode(OperatorGraphNode):
    """A join of a stream with a table."""

    #: How long records wait for late changes of the table; None if they do not wait.
    grace_period_ms: int | None

    def write(self, topology: Topology) -> None:
        OperatorGraphNode.write(self, topology)
        if self.grace_period_ms is not None:
            for store in self.store_names:
                self._check_history(topology.state_stores[store], self.grace_period_ms)

    def _check_history(self, store: Any, grace_ms: int) -> None:
        if not isinstance(store, VersionedStoreBuilder):
            raise TopologyError(_NOT_VERSIONED, node=self.name, declared_at=self.declared_at)
        if grace_ms > store.history_ms:
            raise TopologyError(
                f"The join waits {grace_ms} ms for late changes of the table, but its store "
                f"{store.name!r} keeps versions only for {store.history_ms} ms. Use a shorter "
                "grace period or a longer history retention.",
                node=self.name,
                declared_at=self.declared_at,
            )

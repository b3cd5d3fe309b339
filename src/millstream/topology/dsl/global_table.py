"""Global tables and their joins with streams.

A global table is complete in every instance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic

from millstream.operators.tables.value_getter import StoreGetterSupplier
from millstream.record import K, V
from millstream.topology.argument_checks import check_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.migration_hints import Hinted
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph_nodes import OperatorGraphNode
from millstream.topology.logical.logical_graph import LogicalGraph
from millstream.topology.operations.joins import StreamGlobalJoin


class GlobalKTable(Hinted, Generic[K, V]):
    """A table of which every instance has a complete copy.

    Kafka Streams' `GlobalKTable`. Created by `StreamsBuilder.global_table`. Streams can join it by
    any key without being repartitioned. A global table cannot be transformed or joined with tables.

    Attributes:
        queryable_store_name: the store in which the table can be queried; None if the name of
            the store is generated.

    Example:
        >>> builder = StreamsBuilder()
        >>> countries = builder.global_table("countries", key=STRING, value=STRING)
        >>> visits = builder.stream("visits", key=STRING, value=STRING)
        >>> named = visits.join(
        ...     countries, lambda code, country: country, key_selector=lambda user, code: code
        ... )
    """

    __slots__ = ("_graph", "_store_name", "queryable_store_name")

    def __init__(
        self, graph: LogicalGraph, store_name: str, *, queryable_store_name: str | None
    ) -> None:
        self._graph = graph
        self._store_name = store_name
        self.queryable_store_name: str | None = queryable_store_name


def join_global_table(
    part: StreamPart,
    table: GlobalKTable[Any, Any],
    joiner: Callable[..., Any],
    *,
    left: bool,
    with_key: bool,
    name: str | None,
    key_selector: Callable[[Any, Any], Any],
) -> StreamPart:
    """Return the join of a stream with a global table.

    Args:
        joiner: (value, row) → value, or (key, value, row) → value.
        key_selector: (key, value) → the key of the row; None for no row.
    """
    operation = "left_join" if left else "join"
    check_function(operation, "key_selector", key_selector, "key", "value")
    node = OperatorGraphNode(
        # As in Kafka Streams, an inner join has this name too.
        name=part.graph.names.processor("KSTREAM-LEFTJOIN-", name),
        declared_at=call_site(),
        accepts_null_keys=left,
        operation=StreamGlobalJoin(
            StoreGetterSupplier(table._store_name),
            joiner,
            key_selector,
            left=left,
            with_key=with_key,
        ),
    )
    part.graph.attach(node, part.node)
    return replace(part, node=node, value_serde=None)

"""A table of which every instance has a whole copy, and its joins with streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic

from millstream.operators.tables.value_getter import StoreGetter
from millstream.record import K, V
from millstream.topology.arguments import checked_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.hints import Hinted
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.logical.graph import LogicalGraph
from millstream.topology.logical.graph_nodes import OperatorGraphNode
from millstream.topology.operations.joins import StreamGlobalJoin


class GlobalKTable(Hinted, Generic[K, V]):
    """A table of which every instance has a whole copy (Kafka Streams' `GlobalKTable`).

    Comes from `StreamsBuilder.global_table`. Streams join it by any key that they can name, without
    being repartitioned; it cannot be changed or joined with tables.

    Attributes:
        queryable_store_name: the store in which the table can be queried; None if the user gave it
            no name.

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
        self.queryable_store_name = queryable_store_name


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
    """The stream whose records are joined with a row of a global table.

    Args:
        part: the stream.
        table: the table.
        joiner: (value, row) → value, or (key, value, row) → value.
        left: whether records without a row stay, joined with None.
        with_key: whether the joiner wants to see the key.
        name: of the operation.
        key_selector: (key, value) → the key of the row; None for none.
    """
    operation = "left_join" if left else "join"
    checked_function(operation, "key_selector", key_selector, "key", "value")
    node = OperatorGraphNode(
        # Follows Kafka Streams, where an inner join has this name, too.
        name=part.graph.names.processor("KSTREAM-LEFTJOIN-", name),
        declared_at=call_site(),
        takes_null_keys=left,
        operation=StreamGlobalJoin(
            StoreGetter(table._store_name),
            joiner,
            key_selector,
            left=left,
            with_key=with_key,
        ),
    )
    part.graph.attach(node, part.node)
    return replace(part, node=node, value_serde=None)

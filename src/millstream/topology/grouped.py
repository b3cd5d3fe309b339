"""A stream whose records are grouped by key, and the tables that come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from millstream.operators import StreamAggregate, StreamCount, StreamReduce
from millstream.operators.operator import OperatorSupplier
from millstream.record import K, V
from millstream.serdes import LONG, Serde
from millstream.topology.call_site import call_site
from millstream.topology.graph_nodes import OperatorGraphNode, RepartitionGraphNode
from millstream.topology.materialized import (
    Materialized,
    StoreChoice,
    key_value_builder,
    materialized,
)
from millstream.topology.repartition import repartition_node
from millstream.topology.stream_part import StreamPart, checked_function
from millstream.topology.table import KTable

A = TypeVar("A")


class KGroupedStream(Generic[K, V]):
    """Records grouped by key, ready to be aggregated (Kafka Streams' `KGroupedStream`).

    Comes from `KStream.group_by` and `KStream.group_by_key`. If keys may have changed, each
    aggregation first sends the records through a repartition topic; with a name given to the
    grouping, all its aggregations share one. Records without key or value are left out.

    The aggregate of each key is kept in a store, which can be queried if `store=` names it:
    a name, a `Materialized`, or a store from `Stores`.

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> clicks.group_by_key().count(store="clicks-per-user").queryable_store_name
        'clicks-per-user'
    """

    __slots__ = ("_name", "_part", "_repartition")

    def __init__(
        self,
        part: StreamPart,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        name: str | None,
    ) -> None:
        self._part = replace(
            part,
            key_serde=part.key_serde if key_serde is None else key_serde,
            value_serde=part.value_serde if value_serde is None else value_serde,
        )
        self._name = name
        self._repartition: RepartitionGraphNode | None = None

    def count(self, *, store: StoreChoice = None, name: str | None = None) -> KTable[K, int]:
        """The number of records of each key.

        Args:
            store: where the counts are kept; their serde is LONG unless it says otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count().to_stream().to("clicks-per-user")
        """
        choice = materialized(store)
        if store is not None and choice.store_name is None:
            # Follows Kafka Streams: count(Materialized) without a name takes two numbers.
            self._part.graph.names.store("KSTREAM-AGGREGATE-")
        return self._aggregated("KSTREAM-AGGREGATE-", choice, name, StreamCount, LONG)

    def reduce(
        self, reducer: Callable[[V, V], V], *, store: StoreChoice = None, name: str | None = None
    ) -> KTable[K, V]:
        """Combine the values of each key. The first value of a key is taken as it is.

        Args:
            reducer: `(aggregate, value) -> aggregate`; None forgets the key.
            store: where the aggregates are kept.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> bids = StreamsBuilder().stream("bids", key=STRING, value=LONG)
            >>> highest = bids.group_by_key().reduce(max)
        """
        checked_function("reduce", "reducer", reducer)
        return self._aggregated(
            "KSTREAM-REDUCE-",
            materialized(store),
            name,
            partial(StreamReduce, reducer=reducer),
            self._part.value_serde,
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Fold the values of each key into an aggregate of any type.

        Args:
            initializer: `() -> aggregate` for a key without one.
            aggregator: `(key, value, aggregate) -> aggregate`; None forgets the key.
            store: where the aggregates are kept; it should bring the serde of their values, which
                is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> totals = orders.group_by_key().aggregate(
            ...     lambda: 0,
            ...     lambda customer, amount, total: total + amount,
            ...     store=Materialized("totals", value=LONG),
            ... )
        """
        checked_function("aggregate", "initializer", initializer)
        checked_function("aggregate", "aggregator", aggregator)
        return self._aggregated(
            "KSTREAM-AGGREGATE-",
            materialized(store),
            name,
            partial(StreamAggregate, initializer=initializer, aggregator=aggregator),
            None,
        )

    def _aggregated(
        self,
        prefix: str,
        choice: Materialized,
        name: str | None,
        operator: Callable[[str], Any],
        value_serde: Serde[Any] | None,
    ) -> KTable[K, Any]:
        """The table of an aggregation. Numbers go to its store, its node, its repartitioning."""
        graph = self._part.graph
        builder = key_value_builder(
            choice,
            graph.names,
            prefix,
            key_serde=self._part.key_serde,
            value_serde=value_serde,
        )
        supplier: OperatorSupplier = partial(operator, builder.name)
        generated = choice.store_name is None
        node = OperatorGraphNode(
            name=graph.names.processor(prefix, name),
            declared_at=call_site(),
            supplier=supplier,
            store_builder=builder,
            store_name_generated=generated,
        )
        placed = self._placed_by_key(builder.name, store_name_generated=generated)
        graph.attach(node, placed.node)
        part = replace(
            placed, node=node, key_serde=builder.key_serde, value_serde=builder.value_serde
        )
        return KTable(part, queryable_store_name=choice.store_name)

    def _placed_by_key(self, store_name: str, *, store_name_generated: bool) -> StreamPart:
        """The stream after repartitioning, if keys may have changed."""
        part = self._part
        if not part.repartition_required:
            return part
        node = repartition_node(
            part.graph.names,
            self._name or store_name,
            key_serde=part.key_serde,
            value_serde=part.value_serde,
            declared_at=call_site(),
            generated=self._name is None and store_name_generated,
        )
        if self._repartition is None or self._name is None:
            self._repartition = node
        part.graph.attach(self._repartition, part.node)
        return replace(
            part,
            node=self._repartition,
            sources=frozenset([self._repartition.name]),
            repartition_required=False,
        )

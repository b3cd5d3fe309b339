"""A stream whose records are grouped by key, and the tables that come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar, overload

from millstream.operators import StreamAggregate, StreamCount, StreamReduce
from millstream.record import K, V
from millstream.serdes import LONG, Serde
from millstream.topology.arguments import checked_function, checked_serdes
from millstream.topology.call_site import call_site
from millstream.topology.dsl.cogrouped import CogroupedKStream
from millstream.topology.dsl.grouping import Grouping
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table import KTable
from millstream.topology.dsl.table_inner import StoredTable
from millstream.topology.dsl.windowed_stream import SessionWindowedKStream, TimeWindowedKStream
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    key_value_builder,
    materialized,
)
from millstream.topology.options.windows import (
    AnyWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    check_windows,
)

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

    __slots__ = ("_grouping",)

    def __init__(
        self,
        part: StreamPart,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        name: str | None,
    ) -> None:
        checked_serdes("group_by", key=key_serde, value=value_serde)
        known = replace(
            part,
            key_serde=part.key_serde if key_serde is None else key_serde,
            value_serde=part.value_serde if value_serde is None else value_serde,
        )
        self._grouping = Grouping(known, name)

    def count(
        self, *, store: StoreChoice[K, int] = None, name: str | None = None
    ) -> KTable[K, int]:
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
            self._grouping.part.graph.names.store("KSTREAM-AGGREGATE-")
        return self._aggregated("KSTREAM-AGGREGATE-", choice, name, StreamCount, LONG)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
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
        checked_function("reduce", "reducer", reducer, "aggregate", "value")
        return self._aggregated(
            "KSTREAM-REDUCE-",
            materialized(store),
            name,
            partial(StreamReduce, reducer=reducer),
            self._grouping.part.value_serde,
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        store: StoreChoice[K, A] = None,
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
        checked_function("aggregate", "aggregator", aggregator, "key", "value", "aggregate")
        return self._aggregated(
            "KSTREAM-AGGREGATE-",
            materialized(store),
            name,
            partial(StreamAggregate, initializer=initializer, aggregator=aggregator),
            None,
        )

    @overload
    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows
    ) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: AnyWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Aggregate the records of each key by stretches of time.

        Args:
            windows: `TimeWindows` (tumbling, hopping), `SlidingWindows`, `SessionWindows` or
                `UnlimitedWindows`.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> per_user = clicks.group_by_key()
            >>> hourly = per_user.windowed_by(TimeWindows(timedelta(hours=1))).count()
        """
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._grouping, windows)
        return TimeWindowedKStream(self._grouping, windows)

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Aggregate this group together with others of the same key (KIP-150).

        Args:
            aggregator: `(key, value, aggregate) -> aggregate` for the records of this group.

        Example:
            >>> builder = StreamsBuilder()
            >>> carts = builder.stream("carts", key=STRING, value=STRING).group_by_key()
            >>> orders = builder.stream("orders", key=STRING, value=STRING).group_by_key()
            >>> customers = (
            ...     carts.cogroup(lambda customer, cart, seen: [*seen, cart])
            ...     .cogroup(orders, lambda customer, order, seen: [*seen, order])
            ...     .aggregate(list, store=Materialized("customers", value=JSON))
            ... )
        """
        return CogroupedKStream(self._grouping, aggregator)

    def _aggregated(
        self,
        prefix: str,
        choice: Materialized[Any, Any],
        name: str | None,
        operator: Callable[[str], Any],
        value_serde: Serde[Any] | None,
    ) -> KTable[K, Any]:
        """The table of an aggregation. Numbers go to its store, its node, its repartitioning."""
        graph = self._grouping.part.graph
        builder = key_value_builder(
            choice,
            graph.names,
            prefix,
            key_serde=self._grouping.part.key_serde,
            value_serde=value_serde,
        )
        generated = choice.store_name is None
        node = TableGraphNode(
            name=graph.names.processor(prefix, name),
            declared_at=call_site(),
            supplier=partial(operator, builder.name),
            output_versioned=choice.is_versioned,
            store_builder=builder,
            store_name_generated=generated,
        )
        placed = self._grouping.placed_by_key(builder.name, store_name_generated=generated)
        graph.attach(node, placed.node)
        part = replace(
            placed, node=node, key_serde=builder.key_serde, value_serde=builder.value_serde
        )
        return KTable(
            part,
            queryable_store_name=choice.store_name,
            inner=StoredTable(builder.name, node),
        )

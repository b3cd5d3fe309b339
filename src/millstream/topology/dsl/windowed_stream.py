"""Records grouped by key and window, and the tables that come of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar

from millstream.errors import TopologyError
from millstream.operators.fold import Reduced, count_one, nothing
from millstream.operators.session_aggregate import SessionAggregate
from millstream.operators.sliding_aggregate import SlidingAggregate
from millstream.operators.window_aggregate import WindowAggregate, WindowCount
from millstream.record import K, V
from millstream.serdes import LONG, Serde
from millstream.topology.arguments import checked_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.grouping import Grouping
from millstream.topology.dsl.table import KTable
from millstream.topology.dsl.table_inner import StoredTable
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.options.materialized import Materialized, StoreChoice, materialized
from millstream.topology.options.materialized_windows import (
    WindowedStoreBuilder,
    session_builder,
    window_builder,
)
from millstream.topology.options.windows import (
    EmitStrategy,
    FixedSizeWindows,
    SessionWindows,
    SlidingWindows,
    UnlimitedWindows,
)
from millstream.topology.windowed_serdes import session_windowed_serde, time_windowed_serde
from millstream.windowed import Windowed

A = TypeVar("A")

_AGGREGATE = "KSTREAM-AGGREGATE-"
_REDUCE = "KSTREAM-REDUCE-"


class TimeWindowedKStream(Generic[K, V]):
    """Records grouped by key and by windows of a fixed size (Kafka Streams' `TimeWindowedKStream`).

    Comes from `KGroupedStream.windowed_by`. Each aggregation gives a table whose keys are
    `Windowed`: the key and one window. Records that come after the grace period of their window
    are left out. Records without a key are left out as well, and for sliding windows those without
    a value; in other windows the aggregator sees None.

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> hourly = clicks.group_by_key().windowed_by(TimeWindows(timedelta(hours=1)))
        >>> hourly.count(store="clicks-per-hour").queryable_store_name
        'clicks-per-hour'
    """

    __slots__ = ("_emit_final", "_grouping", "_windows")

    def __init__(self, grouping: Grouping, windows: FixedSizeWindows) -> None:
        self._grouping = grouping
        self._windows = windows
        self._emit_final = False

    def emit_strategy(self, strategy: EmitStrategy) -> TimeWindowedKStream[K, V]:
        """When results are sent downstream; by default at each update.

        Args:
            strategy: `EmitStrategy.ON_WINDOW_UPDATE` or `EmitStrategy.ON_WINDOW_CLOSE`.

        Returns:
            This very object, for the call of the aggregation.

        Raises:
            TopologyError: unlimited windows, which never end, are to be waited for.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> hourly = clicks.group_by_key().windowed_by(TimeWindows(timedelta(hours=1)))
            >>> final = hourly.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        """
        final = _is_final(strategy)
        if final and isinstance(self._windows, UnlimitedWindows):
            raise TopologyError(
                "Unlimited windows never end, so EmitStrategy.ON_WINDOW_CLOSE would emit nothing. "
                "Use TimeWindows, or leave the strategy out.",
                declared_at=call_site(),
            )
        self._emit_final = final
        return self

    def count(
        self, *, store: StoreChoice[K, int] = None, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """The number of records of each key in each window.

        Args:
            store: where the counts are kept; their serde is LONG unless it says otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget windows that are still open.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> windows = TimeWindows(timedelta(hours=1), grace=timedelta(minutes=5))
            >>> counts = clicks.group_by_key().windowed_by(windows).count(store="hourly")
        """
        supplier: Callable[..., Any]
        if isinstance(self._windows, SlidingWindows):
            # Follows Kafka Streams: here alone, a store without a name takes only one number.
            choice = materialized(store)
            supplier = partial(SlidingAggregate, initializer=int, aggregator=count_one)
        else:
            choice = _count_choice(self._grouping, store)
            supplier = WindowCount
        return self._aggregated(_AGGREGATE, choice, name, supplier, LONG)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key in each window. The first value is taken as it is.

        Args:
            reducer: `(aggregate, value) -> aggregate`; None forgets the window.
            store: where the aggregates are kept.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget windows that are still open.

        Example:
            >>> bids = StreamsBuilder().stream("bids", key=STRING, value=LONG)
            >>> ten_minutes = TimeWindows(timedelta(minutes=10), advance=timedelta(minutes=1))
            >>> highest = bids.group_by_key().windowed_by(ten_minutes).reduce(max)
        """
        checked_function("reduce", "reducer", reducer, "aggregate", "value")
        kind = SlidingAggregate if isinstance(self._windows, SlidingWindows) else WindowAggregate
        supplier = partial(kind, initializer=nothing, aggregator=Reduced(reducer))
        value_serde = self._grouping.part.value_serde
        return self._aggregated(_REDUCE, materialized(store), name, supplier, value_serde)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Fold the values of each key in each window into an aggregate of any type.

        Args:
            initializer: `() -> aggregate` for a window without one.
            aggregator: `(key, value, aggregate) -> aggregate`; None forgets the window.
            store: where the aggregates are kept; it should bring the serde of their values, which
                is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget windows that are still open.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> daily = orders.group_by_key().windowed_by(TimeWindows(timedelta(days=1)))
            >>> totals = daily.aggregate(
            ...     lambda: 0,
            ...     lambda customer, amount, total: total + amount,
            ...     store=Materialized("daily-totals", value=LONG),
            ... )
        """
        checked_function("aggregate", "initializer", initializer)
        checked_function("aggregate", "aggregator", aggregator, "key", "value", "aggregate")
        kind = SlidingAggregate if isinstance(self._windows, SlidingWindows) else WindowAggregate
        supplier = partial(kind, initializer=initializer, aggregator=aggregator)
        return self._aggregated(_AGGREGATE, materialized(store), name, supplier, None)

    def _aggregated(
        self,
        prefix: str,
        choice: Materialized[Any, Any],
        name: str | None,
        operator: Callable[..., Any],
        value_serde: Serde[Any] | None,
    ) -> KTable[Windowed[K], Any]:
        builder = window_builder(
            choice,
            self._grouping.part,
            prefix,
            self._windows,
            value_serde=value_serde,
            emit_final=self._emit_final,
        )
        return windowed_table(
            self._grouping,
            prefix,
            choice,
            name,
            builder=builder,
            supplier=partial(
                operator, builder.name, windows=self._windows, emit_final=self._emit_final
            ),
            key_serde=time_windowed_serde(builder.key_serde, self._windows.size_ms),
            grace_ms=self._windows.grace_ms,
        )


class SessionWindowedKStream(Generic[K, V]):
    """Records grouped by key and by sessions (Kafka Streams' `SessionWindowedKStream`).

    Comes from `KGroupedStream.windowed_by`. Each aggregation gives a table whose keys are
    `Windowed`: the key and one session, which starts and ends with a record. When a session grows,
    the key changes: the table forgets the session as it was and tells the one that it is now.
    Records that come after the grace period are left out, and so are those without a key.

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> visits = clicks.group_by_key().windowed_by(SessionWindows(timedelta(minutes=30)))
        >>> lengths = visits.count(store="clicks-per-visit")
    """

    __slots__ = ("_emit_final", "_grouping", "_windows")

    def __init__(self, grouping: Grouping, windows: SessionWindows) -> None:
        self._grouping = grouping
        self._windows = windows
        self._emit_final = False

    def emit_strategy(self, strategy: EmitStrategy) -> SessionWindowedKStream[K, V]:
        """When results are sent downstream; by default at each update.

        Args:
            strategy: `EmitStrategy.ON_WINDOW_UPDATE` or `EmitStrategy.ON_WINDOW_CLOSE`.

        Returns:
            This very object, for the call of the aggregation.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> visits = clicks.group_by_key().windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> final = visits.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        """
        self._emit_final = _is_final(strategy)
        return self

    def count(
        self, *, store: StoreChoice[K, int] = None, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """The number of records of each session.

        Args:
            store: where the counts are kept; their serde is LONG unless it says otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget sessions that are still open.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> visits = clicks.group_by_key().windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> lengths = visits.count(store="clicks-per-visit")
        """
        choice = _count_choice(self._grouping, store)
        return self._aggregated(_AGGREGATE, choice, name, int, count_one, _both, LONG)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each session. The first value is taken as it is.

        Args:
            reducer: `(aggregate, value) -> aggregate`, also for the aggregates of two sessions that
                become one; None forgets the session.
            store: where the aggregates are kept.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget sessions that are still open.

        Example:
            >>> bids = StreamsBuilder().stream("bids", key=STRING, value=LONG)
            >>> rounds = bids.group_by_key().windowed_by(SessionWindows(timedelta(minutes=1)))
            >>> highest = rounds.reduce(max)
        """
        checked_function("reduce", "reducer", reducer, "aggregate", "value")
        fold = Reduced(reducer)
        return self._aggregated(
            _REDUCE,
            materialized(store),
            name,
            nothing,
            fold,
            fold.merge,
            self._grouping.part.value_serde,
        )

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        session_merger: Callable[[K, A, A], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Fold the values of each session into an aggregate of any type.

        Args:
            initializer: `() -> aggregate`; called for each record, before sessions are merged.
            aggregator: `(key, value, aggregate) -> aggregate`; None forgets the session.
            session_merger: `(key, one, other) -> aggregate` of two sessions that become one; `one`
                is the initializer's aggregate at first.
            store: where the aggregates are kept; it should bring the serde of their values, which
                is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget sessions that are still open.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> visits = orders.group_by_key().windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> totals = visits.aggregate(
            ...     lambda: 0,
            ...     lambda customer, amount, total: total + amount,
            ...     lambda customer, one, other: one + other,
            ...     store=Materialized("visit-totals", value=LONG),
            ... )
        """
        checked_function("aggregate", "initializer", initializer)
        checked_function("aggregate", "aggregator", aggregator, "key", "value", "aggregate")
        checked_function("aggregate", "session_merger", session_merger, "key", "one", "other")
        return self._aggregated(
            _AGGREGATE, materialized(store), name, initializer, aggregator, session_merger, None
        )

    def _aggregated(
        self,
        prefix: str,
        choice: Materialized[Any, Any],
        name: str | None,
        initializer: Callable[[], Any],
        aggregator: Callable[[Any, Any, Any], Any],
        merger: Callable[[Any, Any, Any], Any],
        value_serde: Serde[Any] | None,
    ) -> KTable[Windowed[K], Any]:
        builder = session_builder(
            choice,
            self._grouping.part,
            prefix,
            self._windows,
            value_serde=value_serde,
            emit_final=self._emit_final,
        )
        return windowed_table(
            self._grouping,
            prefix,
            choice,
            name,
            builder=builder,
            supplier=partial(
                SessionAggregate,
                builder.name,
                self._windows,
                initializer,
                aggregator,
                merger,
                emit_final=self._emit_final,
            ),
            key_serde=session_windowed_serde(builder.key_serde),
            grace_ms=self._windows.retention_ms,
        )


def windowed_table(
    grouping: Grouping,
    prefix: str,
    choice: Materialized[Any, Any],
    name: str | None,
    *,
    builder: WindowedStoreBuilder,
    supplier: Callable[..., Any],
    key_serde: Serde[Any],
    grace_ms: int,
) -> KTable[Any, Any]:
    """The table of an aggregation by windows. Numbers go to its node and its repartitioning.

    Args:
        grouping: what is aggregated.
        prefix: of the node's name.
        choice: what the user said about the store.
        name: the user's name for the node.
        builder: of the store, which has its name already.
        supplier: of the operator.
        key_serde: of the windowed keys.
        grace_ms: how long after its end a window may still change.
    """
    graph = grouping.part.graph
    generated = choice.store_name is None
    node = TableGraphNode(
        name=graph.names.processor(prefix, name),
        declared_at=call_site(),
        supplier=supplier,
        store_builder=builder,
        store_name_generated=generated,
        grace_ms=grace_ms,
    )
    placed = grouping.placed_by_key(builder.name, store_name_generated=generated)
    graph.attach(node, placed.node)
    part = replace(placed, node=node, key_serde=key_serde, value_serde=builder.value_serde)
    inner = StoredTable(builder.name, node)
    return KTable(part, queryable_store_name=choice.store_name, inner=inner)


def _count_choice(grouping: Grouping, store: StoreChoice) -> Materialized[Any, Any]:
    choice = materialized(store)
    if store is not None and choice.store_name is None:
        # Follows Kafka Streams: count(Materialized) without a name takes two numbers.
        grouping.part.graph.names.store(_AGGREGATE)
    return choice


def _is_final(strategy: EmitStrategy) -> bool:
    if not isinstance(strategy, EmitStrategy):
        raise TypeError(f"emit_strategy() takes an EmitStrategy, but got {strategy!r}.")
    return strategy is EmitStrategy.ON_WINDOW_CLOSE


def _both(key: Any, one: int, other: int) -> int:
    return one + other

"""Several groups aggregated together: `cogroup` (KIP-150)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from millstream.operators import PassThrough, StreamAggregate
from millstream.operators.session_aggregate import SessionAggregate
from millstream.operators.sliding_aggregate import SlidingAggregate
from millstream.operators.window_aggregate import WindowAggregate
from millstream.record import K
from millstream.serdes import Serde
from millstream.topology.arguments import check_same_builder, checked_function, wrong_type
from millstream.topology.call_site import call_site
from millstream.topology.dsl.grouping import Grouping
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table import KTable
from millstream.topology.dsl.table_inner import StoredTable
from millstream.topology.logical.graph_nodes import GraphNode, OperatorGraphNode
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    TableStoreBuilder,
    key_value_builder,
    materialized,
)
from millstream.topology.options.materialized_windows import (
    WindowedStoreBuilder,
    session_builder,
    window_builder,
)
from millstream.topology.options.windows import (
    AnyWindows,
    FixedSizeWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    check_windows,
)
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.windowed_serdes import session_windowed_serde, time_windowed_serde
from millstream.windowed import Windowed

if TYPE_CHECKING:
    from millstream.topology.dsl.grouped import KGroupedStream

A = TypeVar("A")
V1 = TypeVar("V1")

_AGGREGATE = "COGROUPKSTREAM-AGGREGATE-"
_MERGE = "COGROUPKSTREAM-MERGE-"

#: (key, value, aggregate) → the next aggregate.
_Aggregator = Callable[[Any, Any, Any], Any]


class CogroupedKStream(Generic[K, A]):
    """Groups of equal keys that are aggregated together (Kafka Streams' `CogroupedKStream`).

    Comes from `KGroupedStream.cogroup`. Each group has an aggregator of its own, all of them work
    on one aggregate for each key, in one store. That does what outer joins of as many tables would
    do, with one store in place of one for each of them.

    The topics of all groups must have equally many partitions.

    Example:
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
        >>> orders = builder.stream("orders", key=STRING, value=LONG).group_by_key()
        >>> activity = (
        ...     clicks.cogroup(lambda user, click, points: points + 1)
        ...     .cogroup(orders, lambda user, amount, points: points + 100)
        ...     .aggregate(lambda: 0, store=Materialized("activity", value=LONG))
        ... )
    """

    __slots__ = ("_aggregators", "_first", "_placed")

    def __init__(self, grouping: Grouping, aggregator: Callable[[K, Any, A], A]) -> None:
        checked_function("cogroup", "aggregator", aggregator, "key", "value", "aggregate")
        self._first = grouping.part
        self._aggregators: dict[Grouping, _Aggregator] = {grouping: aggregator}
        # Where records of each group come from once they are placed by key; shared by all
        # aggregations of this object.
        self._placed: dict[Grouping, GraphNode] = {}

    def cogroup(
        self, grouped: KGroupedStream[K, V1], aggregator: Callable[[K, V1, A], A]
    ) -> CogroupedKStream[K, A]:
        """Let another group take part.

        Args:
            grouped: records grouped by keys of the same type.
            aggregator: `(key, value, aggregate) -> aggregate` for the records of that group.

        Returns:
            This very object, for the next call.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
            >>> views = builder.stream("views", key=STRING, value=STRING).group_by_key()
            >>> both = clicks.cogroup(lambda user, click, total: total + 10)
            >>> both = both.cogroup(views, lambda user, view, total: total + 1)
        """
        checked_function("cogroup", "aggregator", aggregator, "key", "value", "aggregate")
        from millstream.topology.dsl.grouped import KGroupedStream

        if not isinstance(grouped, KGroupedStream):
            raise wrong_type(
                "cogroup() takes another KGroupedStream, from group_by() or group_by_key(), but "
                f"got {grouped!r}."
            )
        check_same_builder(self._first.graph, grouped._grouping.part.graph, "cogrouped")
        self._aggregators[grouped._grouping] = aggregator
        return self

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Fold the values of each key, from all groups, into one aggregate.

        Args:
            initializer: `() -> aggregate` for a key without one.
            store: where the aggregates are kept; it should bring the serde of their values, which
                is the config's default otherwise.
            name: of the operation: its nodes are called `<name>-cogroup-agg-0` and so on, and
                `<name>-cogroup-merge`.

        Raises:
            TopologyError: the store cannot be had, or a name is taken: of several groups whose
                keys may have changed, all must be named, or the store.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
            >>> views = builder.stream("views", key=STRING, value=STRING).group_by_key()
            >>> both = clicks.cogroup(lambda user, click, total: total + 10)
            >>> both = both.cogroup(views, lambda user, view, total: total + 1)
            >>> points = both.aggregate(int, store=Materialized("points", value=LONG))
        """
        checked_function("aggregate", "initializer", initializer)
        choice = materialized(store)
        builder = key_value_builder(
            choice,
            self._first.graph.names,
            _AGGREGATE,
            key_serde=self._first.key_serde,
            value_serde=None,
        )
        return self._table(
            choice,
            name,
            builder,
            lambda aggregator: partial(
                StreamAggregate, builder.name, initializer=initializer, aggregator=aggregator
            ),
            builder.key_serde,
        )

    @overload
    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows
    ) -> TimeWindowedCogroupedKStream[K, A]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream[K, A]: ...
    def windowed_by(
        self, windows: AnyWindows
    ) -> TimeWindowedCogroupedKStream[K, A] | SessionWindowedCogroupedKStream[K, A]:
        """Aggregate the records of each key by stretches of time.

        Args:
            windows: `TimeWindows` (tumbling, hopping), `SlidingWindows`, `SessionWindows` or
                `UnlimitedWindows`.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> points = clicks.group_by_key().cogroup(lambda user, click, total: total + 10)
            >>> hourly = points.windowed_by(TimeWindows(timedelta(hours=1)))
        """
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self, windows)
        return TimeWindowedCogroupedKStream(self, windows)

    # ---- inside

    def _table(
        self,
        choice: Materialized[Any, Any],
        name: str | None,
        builder: TableStoreBuilder | WindowedStoreBuilder,
        supplier: Callable[[_Aggregator], Callable[..., Any]],
        key_serde: Serde[Any] | None,
        grace_ms: int | None = None,
    ) -> KTable[Any, Any]:
        """One node for each group, all on one store, and one that brings their results together.

        Numbers go to the repartitioning of the groups, then to the nodes.
        """
        graph = self._first.graph
        generated = choice.store_name is None
        self._place_by_key(builder.name, store_name_generated=generated)
        site = call_site()
        nodes: list[TableGraphNode] = []
        for number, (grouping, aggregator) in enumerate(self._aggregators.items()):
            given = None if name is None else f"{name}-cogroup-agg-{number}"
            node = TableGraphNode(
                name=graph.names.processor(_AGGREGATE, given),
                declared_at=site,
                supplier=supplier(aggregator),
                output_versioned=choice.is_versioned,
                store_builder=builder if number == 0 else None,
                store_name_generated=generated,
                store_names=() if number == 0 else (builder.name,),
                grace_ms=grace_ms,
            )
            graph.attach(node, self._placed[grouping])
            nodes.append(node)
        given = None if name is None else f"{name}-cogroup-merge"
        merge = OperatorGraphNode(
            name=graph.names.processor(_MERGE, given), declared_at=site, supplier=PassThrough
        )
        graph.attach(merge, *nodes)
        sources = graph.stand_in(merge.name, self._sources())
        part = StreamPart(graph, merge, key_serde, builder.value_serde, sources)
        return KTable(
            part,
            queryable_store_name=choice.store_name,
            inner=StoredTable(builder.name, *nodes),
        )

    def _place_by_key(self, store_name: str, *, store_name_generated: bool) -> None:
        """Repartition the groups whose keys may have changed."""
        graph = self._first.graph
        for grouping in self._aggregators:
            part = grouping.part
            if not part.repartition_required:
                self._placed[grouping] = part.node
                continue
            node = grouping.repartition_node(store_name, store_name_generated=store_name_generated)
            if grouping not in self._placed:
                graph.attach(node, part.node)
                self._placed[grouping] = node
        # Follows Kafka Streams: these are the topics before repartitioning.
        placed = [each.part.sources.in_order for each in self._placed]
        graph.copartition(SourceNames(chain.from_iterable(placed)))

    def _sources(self) -> SourceNames:
        """The sources from which the tasks of the aggregation read."""
        read = SourceNames([])
        for grouping, node in self._placed.items():
            part = grouping.part
            own = SourceNames([node.name]) if part.repartition_required else part.sources
            read = read.united(own)
        return read


class TimeWindowedCogroupedKStream(Generic[K, A]):
    """Groups of equal keys that are aggregated together by windows of a fixed size.

    Comes from `CogroupedKStream.windowed_by` (Kafka Streams' `TimeWindowedCogroupedKStream`).

    Example:
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
        >>> orders = builder.stream("orders", key=STRING, value=LONG).group_by_key()
        >>> points = clicks.cogroup(lambda user, page, total: total + 1)
        >>> both = points.cogroup(orders, lambda user, amount, total: total + amount)
        >>> hourly = both.windowed_by(TimeWindows(timedelta(hours=1)))
        >>> table = hourly.aggregate(int, store=Materialized("points", value=LONG))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     clicked = driver.create_input_topic("clicks", key=STRING, value=STRING)
        ...     clicked.pipe_input("ann", "/", timestamp=0)
        ...     ordered = driver.create_input_topic("orders", key=STRING, value=LONG)
        ...     ordered.pipe_input("ann", 40, timestamp=60_000)
        ...     driver.get_state_store("points").fetch("ann", 0).value
        41
    """

    __slots__ = ("_cogrouped", "_windows")

    def __init__(self, cogrouped: CogroupedKStream[K, A], windows: FixedSizeWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Fold the values of each key in each window, from all groups, into one aggregate.

        Args:
            initializer: `() -> aggregate` for a window without one.
            store: where the aggregates are kept; it should bring the serde of their values, which
                is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget windows that are still open.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> points = clicks.group_by_key().cogroup(lambda user, click, total: total + 10)
            >>> hourly = points.windowed_by(TimeWindows(timedelta(hours=1)))
            >>> table = hourly.aggregate(int, store=Materialized("hourly", value=LONG))
        """
        checked_function("aggregate", "initializer", initializer)
        choice, windows, cogrouped = materialized(store), self._windows, self._cogrouped
        builder = window_builder(
            choice,
            cogrouped._first,
            _AGGREGATE,
            windows,
            value_serde=None,
            emit_final=False,
        )

        def supplier(aggregator: _Aggregator) -> Callable[..., Any]:
            if isinstance(windows, SlidingWindows):
                return partial(SlidingAggregate, builder.name, windows, initializer, aggregator)
            return partial(WindowAggregate, builder.name, windows, initializer, aggregator)

        return cogrouped._table(
            choice,
            name,
            builder,
            supplier,
            time_windowed_serde(builder.key_serde, windows.size_ms),
            windows.grace_ms,
        )


class SessionWindowedCogroupedKStream(Generic[K, A]):
    """Groups of equal keys that are aggregated together by sessions.

    Comes from `CogroupedKStream.windowed_by` (Kafka Streams' `SessionWindowedCogroupedKStream`).

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING).group_by_key()
        >>> pages = clicks.cogroup(lambda user, page, pages: [*pages, page])
        >>> visits = pages.windowed_by(SessionWindows(timedelta(minutes=30)))
        >>> table = visits.aggregate(
        ...     list, lambda user, one, other: one + other, store=Materialized(value=JSON)
        ... )
    """

    __slots__ = ("_cogrouped", "_windows")

    def __init__(self, cogrouped: CogroupedKStream[K, A], windows: SessionWindows) -> None:
        self._cogrouped = cogrouped
        self._windows = windows

    def aggregate(
        self,
        initializer: Callable[[], A],
        session_merger: Callable[[K, A, A], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Fold the values of each session, from all groups, into one aggregate.

        Args:
            initializer: `() -> aggregate`; called for each record, before sessions are merged.
            session_merger: `(key, one, other) -> aggregate` of two sessions that become one; `one`
                is the initializer's aggregate at first.
            store: where the aggregates are kept; it should bring the serde of their values, which
                is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had, or would forget sessions that are still open.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> points = clicks.group_by_key().cogroup(lambda user, click, total: total + 10)
            >>> visits = points.windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> table = visits.aggregate(
            ...     int, lambda user, one, other: one + other, store=Materialized(value=LONG)
            ... )
        """
        checked_function("aggregate", "initializer", initializer)
        checked_function("aggregate", "session_merger", session_merger, "key", "one", "other")
        choice, windows, cogrouped = materialized(store), self._windows, self._cogrouped
        builder = session_builder(
            choice,
            cogrouped._first,
            _AGGREGATE,
            windows,
            value_serde=None,
            emit_final=False,
        )
        return cogrouped._table(
            choice,
            name,
            builder,
            lambda aggregator: partial(
                SessionAggregate, builder.name, windows, initializer, aggregator, session_merger
            ),
            session_windowed_serde(builder.key_serde),
            windows.retention_ms,
        )

"""A table whose rows are grouped by another key, and the tables that come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from millstream.operators.changed import ChangeSerde
from millstream.operators.table_aggregate import TableAggregate, TableCount, TableReduce
from millstream.record import K, V
from millstream.serdes import LONG, Serde
from millstream.topology.arguments import checked_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.table import KTable
from millstream.topology.dsl.table_inner import StoredTable
from millstream.topology.logical.graph_nodes import GraphNode
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.naming import suffixed_name
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    key_value_builder,
    materialized,
)
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.physical.topology import Topology

A = TypeVar("A")


class KGroupedTable(Generic[K, V]):
    """Rows of a table grouped by another key, ready to be aggregated (`KGroupedTable`).

    Comes from `KTable.group_by`. When a row changes, its old value is taken out of the aggregate
    of its old group, and its new value is put into that of its new one; so an aggregation needs a
    function for each. The changes go through a repartition topic; with a name given to the
    grouping, all its aggregations share one. Rows whose group or value is None are in no group.

    Example:
        >>> builder = StreamsBuilder()
        >>> cities = builder.table("city-of-user", key=STRING, value=STRING)
        >>> users = cities.group_by(lambda user, city: (city, user), key=STRING, value=STRING)
        >>> per_city = users.count(store="users-per-city")
    """

    __slots__ = ("_name", "_part", "_repartition")

    def __init__(
        self,
        part: StreamPart,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        name: str | None,
    ) -> None:
        self._part = replace(part, key_serde=key_serde, value_serde=value_serde)
        self._name = name
        self._repartition: _ChangesGraphNode | None = None

    def count(
        self, *, store: StoreChoice[K, int] = None, name: str | None = None
    ) -> KTable[K, int]:
        """The number of rows of each group. A group that had rows and has none left counts 0.

        Args:
            store: where the counts are kept; their serde is LONG unless it says otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> cities = StreamsBuilder().table("city-of-user", key=STRING, value=STRING)
            >>> users = cities.group_by(lambda user, city: (city, user), key=STRING, value=STRING)
            >>> users.count().to_stream().to("users-per-city")
        """
        return self._aggregated("KTABLE-AGGREGATE-", store, name, TableCount, LONG)

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each group. The first value of a group is taken as it is.

        Args:
            adder: `(aggregate, value) -> aggregate` for a value that enters the group.
            subtractor: `(aggregate, value) -> aggregate` for a value that leaves it; None forgets
                the group.
            store: where the aggregates are kept.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> stock = StreamsBuilder().table("stock", key=STRING, value=LONG)
            >>> kinds = stock.group_by(lambda item, n: (item[0], n), key=STRING, value=LONG)
            >>> totals = kinds.reduce(lambda total, n: total + n, lambda total, n: total - n)
        """
        checked_function("reduce", "adder", adder, "aggregate", "value")
        checked_function("reduce", "subtractor", subtractor, "aggregate", "value")
        operator = partial(TableReduce, adder=adder, subtractor=subtractor)
        serde = self._part.value_serde
        return self._aggregated("KTABLE-REDUCE-", store, name, operator, serde)

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Fold the values of each group into an aggregate of any type.

        A change within a group calls the subtractor with the old value first, then the adder with
        the new one.

        Args:
            initializer: `() -> aggregate` for a group without one.
            adder: `(key, value, aggregate) -> aggregate` for a value that enters the group.
            subtractor: `(key, value, aggregate) -> aggregate` for a value that leaves it; None
                forgets the group.
            store: where the aggregates are kept; it should bring the serde of their values, which
                is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> stock = StreamsBuilder().table("stock", key=STRING, value=LONG)
            >>> kinds = stock.group_by(lambda item, n: (item[0], n), key=STRING, value=LONG)
            >>> totals = kinds.aggregate(
            ...     lambda: 0,
            ...     lambda kind, n, total: total + n,
            ...     lambda kind, n, total: total - n,
            ...     store=Materialized("totals", value=LONG),
            ... )
        """
        checked_function("aggregate", "initializer", initializer)
        checked_function("aggregate", "adder", adder, "key", "value", "aggregate")
        checked_function("aggregate", "subtractor", subtractor, "key", "value", "aggregate")
        operator = partial(
            TableAggregate, initializer=initializer, adder=adder, subtractor=subtractor
        )
        return self._aggregated("KTABLE-AGGREGATE-", store, name, operator, None)

    def _aggregated(
        self,
        prefix: str,
        store: StoreChoice,
        name: str | None,
        operator: Callable[..., Any],
        value_serde: Serde[Any] | None,
    ) -> KTable[K, Any]:
        """The table of an aggregation. Numbers go to its store, topic and node, in this order."""
        part, names = self._part, self._part.graph.names
        choice = materialized(store)
        # Follows Kafka Streams: generated names of stores speak of an aggregation in any case.
        builder = key_value_builder(
            choice,
            names,
            "KTABLE-AGGREGATE-",
            key_serde=part.key_serde,
            value_serde=value_serde,
        )
        generated = choice.store_name is None
        sink = suffixed_name(names, name, "-sink", "KSTREAM-SINK-")
        source = suffixed_name(names, name, "-source", "KSTREAM-SOURCE-")
        node = TableGraphNode(
            name=names.processor(prefix, name),
            declared_at=call_site(),
            supplier=partial(operator, builder.name),
            output_versioned=choice.is_versioned,
            store_builder=builder,
            store_name_generated=generated,
        )
        placed = self._placed(choice, sink, source, builder.name)
        part.graph.attach(node, placed)
        table = replace(
            part,
            node=node,
            key_serde=builder.key_serde,
            value_serde=builder.value_serde,
            sources=SourceNames([source]),
            repartition_required=False,
        )
        return KTable(
            table,
            queryable_store_name=choice.store_name,
            inner=StoredTable(builder.name, node),
        )

    def _placed(
        self, choice: Materialized[Any, Any], sink: str, source: str, store_name: str
    ) -> _ChangesGraphNode:
        """The node through which changes reach the tasks of their groups."""
        part = self._part
        if self._repartition is None or self._name is None:
            base = self._name or store_name
            self._repartition = _ChangesGraphNode(
                name=source,
                declared_at=call_site(),
                topic=RepartitionTopic(
                    f"{base}-repartition",
                    generated=self._name is None and choice.store_name is None,
                ),
                sink_name=sink,
                key_serde=part.key_serde,
                value_serde=ChangeSerde(part.value_serde),
            )
        part.graph.attach(self._repartition, part.node)
        return self._repartition


@dataclass(eq=False, slots=True, kw_only=True)
class _ChangesGraphNode(GraphNode):
    """The changes of a table pass through an internal topic to the tasks that own their groups.

    Its name is that of the source which reads the topic.

    Args:
        topic: the internal topic.
        sink_name: the node that writes the topic.
        key_serde: of the groups.
        value_serde: of the changes.
    """

    topic: RepartitionTopic
    sink_name: str
    key_serde: Serde[Any] | None
    value_serde: ChangeSerde

    def write(self, topology: Topology) -> None:
        """A sink and a source."""
        topic, site = self.topic.name, self.declared_at
        topology._add_internal_topic(self.topic)
        topology.add_sink(
            self.sink_name,
            topic,
            self.parent_names,
            key=self.key_serde,
            value=self.value_serde,
            declared_at=site,
        )
        topology.add_source(
            self.name, topic, key=self.key_serde, value=self.value_serde, declared_at=site
        )

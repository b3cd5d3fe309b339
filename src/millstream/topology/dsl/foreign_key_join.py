"""Joins of two tables by a foreign key (KIP-213).

Each row of the left table contains the key of a right row. The two tables are partitioned by
different keys, so subscriptions and responses pass through internal topics; see
`millstream.operators.joins.foreign_key_join` for the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from millstream.operators.joins.foreign_key_formats import (
    ForeignKeyResponse,
    ForeignKeyResponseSerde,
    ForeignKeySubscriptionSerde,
)
from millstream.operators.joins.foreign_key_join import ForeignKeySerdes
from millstream.serdes import BYTES, Serde
from millstream.state.builders.buffer_builders import SubscriptionStoreBuilder
from millstream.topology.argument_checks import check_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import check_same_builder
from millstream.topology.dsl.table_access import SourceTable, TablePart
from millstream.topology.logical.graph_nodes import (
    OperatorGraphNode,
    SinkGraphNode,
    SourceGraphNode,
)
from millstream.topology.logical.table_nodes import LazyTableGraphNode
from millstream.topology.naming import NameGenerator, checked_name
from millstream.topology.operations.joins import (
    ForeignTableJoin,
    ResponseResolver,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from millstream.topology.operations.tables import TableSource
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized
from millstream.topology.physical.internal_topic_configs import RepartitionTopic
from millstream.topology.physical.java_order import SourceNames
from millstream.topology.physical.topology import Topology

_REGISTRATION = "KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-"
_PROCESSOR = "KTABLE-FK-JOIN-SUBSCRIPTION-PROCESSOR-"
_RESPONSE = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-"
_RESOLVER = "KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
_STORE = "KTABLE-FK-JOIN-SUBSCRIPTION-STATE-STORE-"
_OUTPUT = "KTABLE-FK-JOIN-OUTPUT-"
_SINK = "KTABLE-SINK-"
_SOURCE = "KTABLE-SOURCE-"


def foreign_key_join(
    left: TablePart,
    right: TablePart,
    joiner: Callable[[Any, Any], Any],
    *,
    foreign_key: Callable[..., Any],
    with_key: bool,
    left_join: bool,
    store: StoreChoice,
    name: str | None,
) -> TablePart:
    """Join each left row with the right row that it refers to.

    Args:
        foreign_key: value → key of the right row, or (key, value) → key if `with_key` is set; None
            for no right row.

    Raises:
        TopologyError: the tables belong to different builders, or the store is not valid.
    """
    operation = "left_join" if left_join else "join"
    check_function(operation, "foreign_key", foreign_key, "value", with_key=with_key)
    check_same_builder(left.part.graph, right.part.graph, "joined")
    # The order of these calls determines which store is numbered or materialized first.
    right.access.send_old_values(True)
    left.access.send_old_values(True)
    make_send = partial(SubscriptionSend, foreign_key, with_key, left_join=left_join)
    return _ForeignKeyJoinBuilder(left, right, name).build(joiner, make_send, left_join, store)


class _ForeignKeyJoinBuilder:
    """Adds one join to the graph. Names are numbered in the order of Kafka Streams."""

    def __init__(self, left: TablePart, right: TablePart, name: str | None) -> None:
        self._left, self._left_part = left, left.part
        self._right, self._right_part = right, right.part
        self._graph = left.part.graph
        self._site = call_site()
        self._names = _JoinNames(self._graph.names, name)
        self._serdes: ForeignKeySerdes

    def build(
        self,
        joiner: Callable[[Any, Any], Any],
        make_send: Callable[..., SubscriptionSend],
        left_join: bool,
        store: StoreChoice,
    ) -> TablePart:
        """Add all nodes to the graph; return the joined table."""
        responses = self._write_right_side(self._write_send(make_send))
        graph, left, getter = self._graph, self._left_part, self._left.access.getter()
        resolver = OperatorGraphNode(
            name=self._names.node("-subscription-response-resolver", _RESOLVER),
            declared_at=self._site,
            operation=ResponseResolver(getter, self._serdes, joiner, left_join),
            store_names=getter.stores,
        )
        graph.attach(resolver, responses)
        output = self._names.node("-result", _OUTPUT)
        choice = materialized(store)
        builder = key_value_builder(
            choice, graph.names, _OUTPUT, key_serde=left.key_serde, value_serde=None
        )
        is_named = choice.store_name is not None
        node = LazyTableGraphNode(
            name=output,
            declared_at=self._site,
            operation=TableSource(),
            lazy_store=builder,
            materialized=is_named,
            store_name_generated=not is_named,
            output_versioned=choice.is_versioned,
        )
        graph.attach(node, resolver)
        part = replace(
            left,
            node=node,
            value_serde=choice.value,
            sources=left.sources.united(SourceNames([responses.name])),
            repartition_required=False,
        )
        return TablePart(part, SourceTable(node), choice.store_name)

    def _write_send(self, make_send: Callable[..., SubscriptionSend]) -> SourceGraphNode:
        """Add the nodes of the left side; return the source of the subscriptions."""
        left, right = self._left_part, self._right_part
        topic = self._names.topic("-subscription-registration", _REGISTRATION)
        self._serdes = ForeignKeySerdes(
            topic.name, left.key_serde, right.key_serde, left.value_serde, self._site
        )
        send = OperatorGraphNode(
            name=self._names.node("-subscription-registration-processor", _REGISTRATION),
            declared_at=self._site,
            operation=make_send(serdes=self._serdes),
        )
        self._graph.attach(send, left.node)
        sink = _InternalSinkNode(
            name=self._names.node("-subscription-registration-sink", _SINK),
            declared_at=self._site,
            internal_topic=topic,
            topic=topic.name,
            key_serde=right.key_serde,
            value_serde=ForeignKeySubscriptionSerde(),
            partitioner=None,
        )
        self._graph.attach(sink, send)
        suffix = "-subscription-registration-source"
        return self._read_back(sink, suffix, right.key_serde, right.sources)

    def _write_right_side(self, subscriptions: SourceGraphNode) -> SourceGraphNode:
        """Add the nodes of the right side; return the source of the responses."""
        graph, names, right = self._graph, self._names, self._right_part
        store = SubscriptionStoreBuilder(
            name=names.node("-subscription-store", _STORE),
            key_serde=BYTES,
            value_serde=ForeignKeySubscriptionSerde(),
        )
        receive = OperatorGraphNode(
            name=names.node("-subscription-receive", _PROCESSOR),
            declared_at=self._site,
            operation=SubscriptionReceive(store.name, self._serdes),
            store_builder=store,
        )
        graph.attach(receive, subscriptions)
        getter = self._right.access.getter()
        subscription_join = OperatorGraphNode(
            name=names.node("-subscription-join-foreign", _PROCESSOR),
            declared_at=self._site,
            operation=SubscriptionJoin(getter),
            store_names=getter.stores,
        )
        graph.attach(subscription_join, receive)
        foreign_join = OperatorGraphNode(
            name=names.node("-foreign-join-subscription", _PROCESSOR),
            declared_at=self._site,
            operation=ForeignTableJoin(store.name, self._serdes),
            store_builder=store,
        )
        graph.attach(foreign_join, right.node)
        topic = names.topic("-subscription-response", _RESPONSE)
        sink = _InternalSinkNode(
            name=names.node("-subscription-response-sink", _SINK),
            declared_at=self._site,
            internal_topic=topic,
            topic=topic.name,
            # The keys of left rows are forwarded as bytes.
            key_serde=BYTES,
            value_serde=ForeignKeyResponseSerde(right.value_serde),
            partitioner=_partition_of_left_row,
        )
        graph.attach(sink, subscription_join)
        graph.attach(sink, foreign_join)
        left = self._left_part
        suffix = "-subscription-response-source"
        return self._read_back(sink, suffix, left.key_serde, left.sources)

    def _read_back(
        self,
        sink: _InternalSinkNode,
        suffix: str,
        key_serde: Serde[Any] | None,
        copartitioned: SourceNames,
    ) -> SourceGraphNode:
        """Add a source for a sink's topic, which is co-partitioned with a table."""
        source = SourceGraphNode(
            name=self._names.node(suffix, _SOURCE),
            declared_at=self._site,
            topics=(sink.internal_topic.name,),
            pattern=None,
            key_serde=key_serde,
            value_serde=sink.value_serde,
            timestamp_extractor=None,
            offset_reset=None,
        )
        self._graph.attach(source, sink)
        self._graph.copartition(copartitioned.united(SourceNames([source.name])))
        return source


class _JoinNames:
    """The names of a join's nodes and topics.

    They are the user's name with suffixes, or generated.
    """

    def __init__(self, names: NameGenerator, explicit: str | None) -> None:
        self._names = names
        self._explicit = None if explicit is None else checked_name(explicit)

    def node(self, suffix: str, prefix: str) -> str:
        return self._names.processor(prefix, self._explicit and self._explicit + suffix)

    def topic(self, suffix: str, prefix: str) -> RepartitionTopic:
        # As in Kafka Streams, the check for explicit names ignores these topics.
        return RepartitionTopic(f"{self.node(suffix, prefix)}-topic")


@dataclass(eq=False, slots=True, kw_only=True)
class _InternalSinkNode(SinkGraphNode):
    """A sink that writes to an internal topic."""

    internal_topic: RepartitionTopic

    def write(self, topology: Topology) -> None:
        topology._add_internal_topic(self.internal_topic)
        SinkGraphNode.write(self, topology)


def _partition_of_left_row(
    topic: str, key: Any, response: ForeignKeyResponse, count: int
) -> int | None:
    return response.partition

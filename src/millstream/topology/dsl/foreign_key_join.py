"""The join of two tables by a foreign key (Kafka Streams' KIP-213), written into the graph.

The left table's rows tell the key of the right row that they refer to. The two tables are
partitioned by different keys, so subscriptions and responses travel through internal topics; see
`millstream.operators.joins.foreign_key_send` for the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from millstream.operators.joins.foreign_key_formats import (
    Response,
    ResponseSerde,
    SubscriptionSerde,
)
from millstream.operators.joins.foreign_key_send import ForeignKeySerdes
from millstream.serdes import BYTES, Serde
from millstream.state.builders.buffers import SubscriptionStoreBuilder
from millstream.topology.arguments import checked_function
from millstream.topology.call_site import call_site
from millstream.topology.dsl.stream_part import check_same_builder
from millstream.topology.dsl.table_part import SourceTable, TablePart
from millstream.topology.logical.graph_nodes import (
    OperatorGraphNode,
    SinkGraphNode,
    SourceGraphNode,
)
from millstream.topology.logical.table_nodes import LazyTableGraphNode
from millstream.topology.naming import Names, checked_name
from millstream.topology.operations.foreign_keys import (
    ForeignTableJoin,
    ResponseResolver,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
)
from millstream.topology.operations.tables import TableSource
from millstream.topology.options.materialized import StoreChoice, key_value_builder, materialized
from millstream.topology.physical.internal_topics import RepartitionTopic
from millstream.topology.physical.source_names import SourceNames
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
    """The table of left rows, each joined with the right row that it refers to.

    Args:
        left: the table whose rows refer to others; the result has its keys.
        right: the table that they refer to.
        joiner: (left value, right value) → result.
        foreign_key: value → key of the right row, or None; (key, value) → … if `with_key`.
        with_key: which of the two.
        left_join: whether left rows without a right row have a result, joined with None.
        store: where the result is kept, if it is to be.
        name: of the operation, its topics and its store of subscriptions.

    Raises:
        TopologyError: the tables belong to different builders, or the store cannot be had.
    """
    operation = "left_join" if left_join else "join"
    checked_function(operation, "foreign_key", foreign_key, "value", with_key=with_key)
    check_same_builder(left.part.graph, right.part.graph, "joined")
    # The order of these two decides which store is numbered or materialized first.
    right.inner.send_old_values(True)
    left.inner.send_old_values(True)
    asks = partial(SubscriptionSend, foreign_key, with_key, left_join=left_join)
    return _Join(left, right, joiner, asks, left_join, name).written(store)


class _Join:
    """One join on its way into the graph. The order in which names are taken is Kafka Streams'."""

    def __init__(
        self,
        left: TablePart,
        right: TablePart,
        joiner: Callable[[Any, Any], Any],
        asks: Callable[..., SubscriptionSend],
        left_join: bool,
        name: str | None,
    ) -> None:
        self._left, self._left_part = left, left.part
        self._right, self._right_part = right, right.part
        self._graph = left.part.graph
        self._joiner = joiner
        self._asks = asks
        self._left_join = left_join
        self._site = call_site()
        self._names = _JoinNames(self._graph.names, name)
        self._serdes: ForeignKeySerdes

    def written(self, store: StoreChoice) -> TablePart:
        """Write everything into the graph; the joined table."""
        asked = self._write_send()
        answers = self._write_right_side(asked)
        resolver, response_source = self._write_resolver(answers)
        graph, left = self._graph, self._left_part
        output = self._names.node("-result", _OUTPUT)
        choice = materialized(store)
        builder = key_value_builder(
            choice, graph.names, _OUTPUT, key_serde=left.key_serde, value_serde=None
        )
        named = choice.store_name is not None
        node = LazyTableGraphNode(
            name=output,
            declared_at=self._site,
            operation=TableSource(),
            lazy_store=builder,
            materialized=named,
            store_name_generated=not named,
            output_versioned=choice.is_versioned,
        )
        graph.attach(node, resolver)
        part = replace(
            left,
            node=node,
            value_serde=choice.value,
            sources=left.sources.united(SourceNames([response_source])),
            repartition_required=False,
        )
        return TablePart(part, SourceTable(node), choice.store_name)

    def _write_send(self) -> SourceGraphNode:
        """From the left table to the source which reads the subscriptions."""
        left, right = self._left_part, self._right_part
        topic = self._names.topic("-subscription-registration", _REGISTRATION)
        self._serdes = ForeignKeySerdes(
            topic.name, left.key_serde, right.key_serde, left.value_serde, self._site
        )
        send = OperatorGraphNode(
            name=self._names.node("-subscription-registration-processor", _REGISTRATION),
            declared_at=self._site,
            operation=self._asks(serdes=self._serdes),
        )
        self._graph.attach(send, left.node)
        sink = _InternalSinkNode(
            name=self._names.node("-subscription-registration-sink", _SINK),
            declared_at=self._site,
            internal_topic=topic,
            topic=topic.name,
            key_serde=right.key_serde,
            value_serde=SubscriptionSerde(),
            partitioner=None,
        )
        self._graph.attach(sink, send)
        suffix = "-subscription-registration-source"
        return self._read_back(sink, suffix, right.key_serde, right.sources)

    def _write_right_side(self, asked: SourceGraphNode) -> SourceGraphNode:
        """From the subscriptions and the right table to the source which reads the responses."""
        graph, names, right = self._graph, self._names, self._right_part
        store = SubscriptionStoreBuilder(
            name=names.node("-subscription-store", _STORE),
            key_serde=BYTES,
            value_serde=SubscriptionSerde(),
        )
        receive = OperatorGraphNode(
            name=names.node("-subscription-receive", _PROCESSOR),
            declared_at=self._site,
            operation=SubscriptionReceive(store.name, self._serdes),
            store_builder=store,
        )
        graph.attach(receive, asked)
        getter = self._right.inner.getter()
        answer = OperatorGraphNode(
            name=names.node("-subscription-join-foreign", _PROCESSOR),
            declared_at=self._site,
            operation=SubscriptionJoin(getter),
            store_names=getter.stores,
        )
        graph.attach(answer, receive)
        inform = OperatorGraphNode(
            name=names.node("-foreign-join-subscription", _PROCESSOR),
            declared_at=self._site,
            operation=ForeignTableJoin(store.name, self._serdes),
            store_builder=store,
        )
        graph.attach(inform, right.node)
        topic = names.topic("-subscription-response", _RESPONSE)
        sink = _InternalSinkNode(
            name=names.node("-subscription-response-sink", _SINK),
            declared_at=self._site,
            internal_topic=topic,
            topic=topic.name,
            # The keys of left rows pass by as the bytes in which they came.
            key_serde=BYTES,
            value_serde=ResponseSerde(right.value_serde),
            partitioner=_partition_of_left_row,
        )
        graph.attach(sink, answer)
        graph.attach(sink, inform)
        left = self._left_part
        suffix = "-subscription-response-source"
        return self._read_back(sink, suffix, left.key_serde, left.sources)

    def _write_resolver(self, answers: SourceGraphNode) -> tuple[OperatorGraphNode, str]:
        """What joins the responses with the left table, and the name of their source."""
        getter = self._left.inner.getter()
        resolver = OperatorGraphNode(
            name=self._names.node("-subscription-response-resolver", _RESOLVER),
            declared_at=self._site,
            operation=ResponseResolver(getter, self._serdes, self._joiner, self._left_join),
            store_names=getter.stores,
        )
        self._graph.attach(resolver, answers)
        return resolver, answers.name

    def _read_back(
        self,
        sink: _InternalSinkNode,
        suffix: str,
        key_serde: Serde[Any] | None,
        beside: SourceNames,
    ) -> SourceGraphNode:
        """The source of what a sink writes, read side by side with a table."""
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
        self._graph.copartition(beside.united(SourceNames([source.name])))
        return source


class _JoinNames:
    """The names of a join's parts: the user's with a suffix, or generated ones."""

    def __init__(self, names: Names, given: str | None) -> None:
        self._names = names
        self._given = None if given is None else checked_name(given)

    def node(self, suffix: str, prefix: str) -> str:
        return self._names.processor(prefix, self._given and self._given + suffix)

    def topic(self, suffix: str, prefix: str) -> RepartitionTopic:
        # Follows Kafka Streams: where explicit names are demanded, these topics are passed over.
        return RepartitionTopic(f"{self.node(suffix, prefix)}-topic")


@dataclass(eq=False, slots=True, kw_only=True)
class _InternalSinkNode(SinkGraphNode):
    """A sink of an internal topic."""

    internal_topic: RepartitionTopic

    def write(self, topology: Topology) -> None:
        """The topic and a sink node."""
        topology._add_internal_topic(self.internal_topic)
        SinkGraphNode.write(self, topology)


def _partition_of_left_row(topic: str, key: Any, response: Response, count: int) -> int | None:
    return response.partition

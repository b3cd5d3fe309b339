"""A stream of records, each an independent fact, and what can be done with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Generic, Literal, TypeVar, overload

from millstream import operators
from millstream.errors import TopologyError
from millstream.operators.operator import OperatorSupplier
from millstream.record import K, V
from millstream.serdes import Serde
from millstream.topology.arguments import (
    check_same_builder,
    checked_function,
    checked_serdes,
    checked_topic,
    wrong_type,
)
from millstream.topology.call_site import call_site
from millstream.topology.dsl.branched import BranchedKStream
from millstream.topology.dsl.grouped import KGroupedStream
from millstream.topology.dsl.stream_joins import StreamJoins
from millstream.topology.dsl.stream_part import StreamPart
from millstream.topology.dsl.stream_process import StreamProcess
from millstream.topology.dsl.stream_to_table import StreamToTable
from millstream.topology.logical.graph_nodes import OperatorGraphNode, SinkGraphNode
from millstream.topology.logical.repartition import repartition_node
from millstream.topology.naming import checked_name
from millstream.topology.physical.nodes import Partitioner
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.windowed_serdes import partitioner_of

K1 = TypeVar("K1")
V1 = TypeVar("V1")


class KStream(StreamJoins[K, V], StreamProcess[K, V], StreamToTable[K, V], Generic[K, V]):
    """A stream of records with keys of type K and values of type V (Kafka Streams' `KStream`).

    Comes from `StreamsBuilder.stream` or from an operation on another stream or table. Operations
    do not change a stream: each gives a new one. Functions must not change what they are given.

    `name=` names an operation, which otherwise gets a name like `KSTREAM-FILTER-0000000001`. If a
    function raises, the processing exception handler decides.

    Example:
        >>> builder = StreamsBuilder()
        >>> lines = builder.stream("lines", key=STRING, value=STRING)
        >>> words = lines.flat_map_values(str.split).group_by(lambda _, word: word, key=STRING)
        >>> words.count(store="counts").to_stream().to("counts", value=LONG)
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return self._part.shown("KStream")

    def filter(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which the predicate holds.

        Args:
            predicate: `(key, value) -> bool`.
            name: of the operation.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> big = orders.filter(lambda customer, amount: amount > 1_000)
        """
        checked_function("filter", "predicate", predicate, "key", "value")
        return self._same("KSTREAM-FILTER-", name, partial(operators.Filter, predicate))

    def filter_not(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which the predicate does not hold.

        Args:
            predicate: `(key, value) -> bool`.
            name: of the operation.

        Example:
            >>> pages = StreamsBuilder().stream("pages", key=STRING, value=STRING)
            >>> visits = pages.filter_not(lambda user, page: page == "/health")
        """
        checked_function("filter_not", "predicate", predicate, "key", "value")
        return self._same("KSTREAM-FILTER-", name, partial(operators.Filter, predicate, True))

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Show each record to a function, and hand it on unchanged.

        Args:
            action: `(key, value)`; its result is ignored.
            name: of the operation.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> orders = orders.peek(lambda customer, amount: print(customer, amount))
        """
        checked_function("peek", "action", action, "key", "value")
        return self._same("KSTREAM-PEEK-", name, partial(operators.Peek, action))

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """The records of both streams, in the order in which they are processed.

        The merged stream knows no serdes: those of the two may differ.

        Args:
            other: a stream of the same builder.
            name: of the operation.

        Raises:
            TopologyError: the streams belong to different builders.

        Example:
            >>> builder = StreamsBuilder()
            >>> everything = builder.stream("europe").merge(builder.stream("asia"))
        """
        if not isinstance(other, KStream):
            raise wrong_type(f"merge() takes another KStream, but got {other!r}.")
        part, more = self._part, other._part
        check_same_builder(part.graph, more.graph, "merged")
        node = OperatorGraphNode(
            name=part.graph.names.processor("KSTREAM-MERGE-", name),
            declared_at=call_site(),
            merges=True,
            supplier=operators.PassThrough,
        )
        part.graph.attach(node, part.node, more.node)
        moved = part.repartition_required or more.repartition_required
        sources = part.sources.united(more.sources)
        return KStream(StreamPart(part.graph, node, None, None, sources, moved))

    def map(
        self, mapper: Callable[[K, V], tuple[K1, V1]], *, name: str | None = None
    ) -> KStream[K1, V1]:
        """Replace each record by another one.

        The key may change, so a later operation by key repartitions; prefer `map_values` where the
        key stays.

        Args:
            mapper: `(key, value) -> (key, value)`.
            name: of the operation.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> by_size = orders.map(lambda customer, amount: (amount // 100, customer))
        """
        checked_function("map", "mapper", mapper, "key", "value")
        return self._rekeyed("KSTREAM-MAP-", name, partial(operators.Map, mapper))

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V1],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_values(
        self, mapper: Callable[[K, V], V1], *, with_key: Literal[True], name: str | None = None
    ) -> KStream[K, V1]: ...
    def map_values(
        self, mapper: Callable[..., V1], *, with_key: bool = False, name: str | None = None
    ) -> KStream[K, V1]:
        """Replace each value; the key stays.

        Args:
            mapper: `value -> value`, or `(key, value) -> value` with `with_key=True`.
            with_key: whether the mapper wants to see the key.
            name: of the operation.

        Example:
            >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
            >>> lengths = words.map_values(len)
            >>> tagged = words.map_values(lambda user, word: f"{user}: {word}", with_key=True)
        """
        checked_function("map_values", "mapper", mapper, "value", with_key=with_key)
        supplier = partial(operators.MapValues, mapper, with_key)
        return self._revalued("KSTREAM-MAPVALUES-", name, supplier)

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K1, V1]]], *, name: str | None = None
    ) -> KStream[K1, V1]:
        """Replace each record by any number of records.

        The keys may change, so a later operation by key repartitions.

        Args:
            mapper: `(key, value) -> iterable of (key, value)`; empty for no record.
            name: of the operation.

        Example:
            >>> carts = StreamsBuilder().stream("carts", key=STRING, value=STRING)
            >>> items = carts.flat_map(lambda user, cart: [(item, user) for item in cart.split()])
        """
        checked_function("flat_map", "mapper", mapper, "key", "value")
        return self._rekeyed("KSTREAM-FLATMAP-", name, partial(operators.FlatMap, mapper))

    @overload
    def flat_map_values(
        self,
        mapper: Callable[[V], Iterable[V1]],
        *,
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def flat_map_values(
        self,
        mapper: Callable[[K, V], Iterable[V1]],
        *,
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    def flat_map_values(
        self,
        mapper: Callable[..., Iterable[V1]],
        *,
        with_key: bool = False,
        name: str | None = None,
    ) -> KStream[K, V1]:
        """Replace each value by any number of values under the same key.

        Args:
            mapper: `value -> iterable of values`, or `(key, value) -> iterable of values` with
                `with_key=True`.
            with_key: whether the mapper wants to see the key.
            name: of the operation.

        Example:
            >>> lines = StreamsBuilder().stream("lines", key=STRING, value=STRING)
            >>> words = lines.flat_map_values(str.split)
        """
        checked_function("flat_map_values", "mapper", mapper, "value", with_key=with_key)
        supplier = partial(operators.FlatMapValues, mapper, with_key)
        return self._revalued("KSTREAM-FLATMAPVALUES-", name, supplier)

    def select_key(
        self, mapper: Callable[[K, V], K1], *, name: str | None = None
    ) -> KStream[K1, V]:
        """Give each record another key; the value stays. A later operation by key repartitions.

        Args:
            mapper: `(key, value) -> key`.
            name: of the operation.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> by_hundreds = orders.select_key(lambda customer, amount: amount // 100)
        """
        checked_function("select_key", "mapper", mapper, "key", "value")
        return KStream(self._select_key("KSTREAM-KEY-SELECT-", mapper, name))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Divide the stream into branches: each record goes to the first one that wants it.

        Args:
            name: of the operation, and the beginning of each branch's name.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> branches = orders.split(name="size-").branch(lambda _, n: n > 99, "big")
            >>> sorted(branches.default_branch("small"))
            ['size-big', 'size-small']
        """
        return BranchedKStream(self._part, name)

    def branch(self, *predicates: Callable[[K, V], object]) -> list[KStream[K, V]]:
        """A stream for each predicate: each record goes to the first one that holds, or to none.

        Args:
            predicates: `(key, value) -> bool` each.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> big, small = orders.branch(lambda _, n: n > 99, lambda _, n: n <= 99)
        """
        split = self.split()
        for predicate in predicates:
            split.branch(predicate)
        return list(split.no_default_branch().values())

    def repartition(
        self,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitions: int | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> KStream[K, V]:
        """Send the records through an internal topic, so that equal keys come together.

        Operations by key do this themselves where it is needed. Records without a key are dropped,
        because nothing tells where they belong.

        Args:
            key: the serde of the topic's keys; by default that of the stream.
            value: the serde of the topic's values; by default that of the stream.
            partitions: how many the topic has; by default as many as the topics before it.
            partitioner: `(topic, key, value, number_of_partitions) -> partition | None`.
            name: the topic is called `<application.id>-<name>-repartition`.

        Raises:
            TopologyError: the number of partitions is not positive, or the name not legal.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> wide = orders.repartition(partitions=24, name="wide")
        """
        checked_serdes("repartition", key=key, value=value)
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise TopologyError(
                f"repartition() needs at least 1 partition, but got {partitions!r}.",
                declared_at=call_site(),
            )
        part, names = self._part, self._part.graph.names
        node = repartition_node(
            names,
            names.processor("KSTREAM-REPARTITION-") if name is None else checked_name(name),
            key_serde=part.key_serde if key is None else key,
            value_serde=part.value_serde if value is None else value,
            declared_at=call_site(),
            generated=name is None,
            partitions=partitions,
            partitioner=partitioner,
            optimizable=False,
        )
        part.graph.attach(node, part.node)
        own = SourceNames([node.name])
        return KStream(StreamPart(part.graph, node, node.key_serde, node.value_serde, own))

    def group_by_key(
        self,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
        """Group the records by their key, to aggregate them.

        Args:
            key: the serde of the keys; by default that of the stream.
            value: the serde of the values; by default that of the stream.
            name: of the repartition topic, if there must be one.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> per_user = clicks.group_by_key().count(store="clicks-per-user")
        """
        given = None if name is None else checked_name(name)
        return KGroupedStream(self._part, key, value, given)

    def group_by(
        self,
        selector: Callable[[K, V], K1],
        *,
        key: Serde[K1] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K1, V]:
        """Group the records by another key, to aggregate them. This repartitions.

        Args:
            selector: `(key, value) -> key`.
            key: the serde of the new keys; by default the config's.
            value: the serde of the values; by default that of the stream.
            name: of the operation and of the repartition topic.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> per_page = clicks.group_by(lambda user, page: page, key=STRING).count()
        """
        checked_function("group_by", "selector", selector, "key", "value")
        part = self._select_key("KSTREAM-KEY-SELECT-", selector, name)
        return KGroupedStream(part, key, value, name)

    def for_each(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Show each record to a function; the stream ends here.

        Args:
            action: `(key, value)`; its result is ignored.
            name: of the operation.

        Example:
            >>> alerts = StreamsBuilder().stream("alerts", key=STRING, value=STRING)
            >>> alerts.for_each(lambda host, text: print(host, text))
        """
        checked_function("for_each", "action", action, "key", "value")
        self._attach("KSTREAM-FOREACH-", name, partial(operators.ForEach, action))

    def print(
        self, label: str | None = None, *, file: str | None = None, name: str | None = None
    ) -> None:
        """Print each record as `[label]: key, value`; the stream ends here.

        Args:
            label: by default the name of the operation before.
            file: the path of a file on the worker, to append to; by default its standard output.
            name: of the operation.

        Example:
            >>> StreamsBuilder().stream("alerts").print("alert")
        """
        label = self._part.name if label is None else label
        self._attach("KSTREAM-PRINTER-", name, partial(operators.Print, label, file))

    def to(
        self,
        topic: str | Callable[[K, V, Any], str],
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        partitioner: Partitioner | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic, which must exist.

        Args:
            topic: the topic, or `(key, value, record_context) -> topic` to choose it for each
                record.
            key: the serde of the keys; by default that of the stream, or else the config's.
            value: the serde of the values; by default that of the stream, or else the config's.
            partitioner: `(topic, key, value, number_of_partitions) -> partition | None`.
            name: of the operation.

        Raises:
            TopologyError: the topic's name is not one that Kafka allows.

        Example:
            >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
            >>> words.to(lambda user, word, context: f"words-{word[0]}")
            >>> words.map_values(len).to("lengths", value=INTEGER)
        """
        checked_topic("to", topic)
        checked_serdes("to", key=key, value=value)
        part = self._part
        key_serde = part.key_serde if key is None else key
        node = SinkGraphNode(
            name=part.graph.names.processor("KSTREAM-SINK-", name),
            declared_at=call_site(),
            topic=topic,
            key_serde=key_serde,
            value_serde=part.value_serde if value is None else value,
            partitioner=partitioner or partitioner_of(key_serde),
        )
        part.graph.attach(node, part.node)

    # ---- inside

    def _attach(
        self,
        prefix: str,
        name: str | None,
        supplier: OperatorSupplier,
        *,
        changes_key: bool = False,
        changes_value: bool = False,
    ) -> OperatorGraphNode:
        graph = self._part.graph
        node = OperatorGraphNode(
            name=graph.names.processor(prefix, name),
            declared_at=call_site(),
            changes_key=changes_key,
            changes_value=changes_value,
            supplier=supplier,
        )
        graph.attach(node, self._part.node)
        return node

    def _same(self, prefix: str, name: str | None, supplier: OperatorSupplier) -> KStream[K, V]:
        return KStream(replace(self._part, node=self._attach(prefix, name, supplier)))

    def _revalued(
        self, prefix: str, name: str | None, supplier: OperatorSupplier
    ) -> KStream[K, Any]:
        node = self._attach(prefix, name, supplier, changes_value=True)
        return KStream(replace(self._part, node=node, value_serde=None))

    def _rekeyed(
        self, prefix: str, name: str | None, supplier: OperatorSupplier
    ) -> KStream[Any, Any]:
        node = self._attach(prefix, name, supplier, changes_key=True)
        part = replace(self._part, node=node, key_serde=None, value_serde=None)
        return KStream(replace(part, repartition_required=True))

    def _select_key(
        self, prefix: str, selector: Callable[[K, V], Any], name: str | None
    ) -> StreamPart:
        supplier = partial(operators.SelectKey, selector)
        node = self._attach(prefix, name, supplier, changes_key=True)
        return replace(self._part, node=node, key_serde=None, repartition_required=True)

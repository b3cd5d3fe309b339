"""What the user writes: streams, tables and groups, which give each other.

Each is a thin face of a part of the logical graph (`stream_part`, `table_part`, `grouping`): its
methods check what they are given and leave the rest to the other modules of this room. They share
one module because each returns the others.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, overload

from millstream.errors import TopologyError
from millstream.operators.joins.stream_join import StreamJoiner
from millstream.operators.tables.table_transform import TRANSFORMER_METHODS, TransformedGetter
from millstream.operators.tables.value_getter import FilteredGetter, MappedGetter
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.record import K, V
from millstream.serdes import LONG, Serde
from millstream.state.builders.windows import WindowStoreSupplier
from millstream.topology.arguments import (
    checked_function,
    checked_serdes,
    checked_topic,
    store_names,
    wrong_type,
)
from millstream.topology.async_arguments import (
    checked_async,
    checked_concurrency,
    checked_threads,
    checked_timeout,
)
from millstream.topology.batch_arguments import checked_batches
from millstream.topology.call_site import call_site
from millstream.topology.dsl.aggregation import aggregated_table, count_choice, windowed_table
from millstream.topology.dsl.cogrouping import COGROUP_PREFIX, Cogrouping
from millstream.topology.dsl.foreign_key_join import foreign_key_join
from millstream.topology.dsl.global_table import GlobalKTable, join_global_table
from millstream.topology.dsl.grouping import Grouping
from millstream.topology.dsl.hints import Hinted, HintedStream, HintedTable
from millstream.topology.dsl.join_options import JOIN_METHODS, JoinKind, check_join_options
from millstream.topology.dsl.join_placement import JoinPlacement
from millstream.topology.dsl.stream_dataframe import cut_for_dataframe
from millstream.topology.dsl.stream_lake import into_lake
from millstream.topology.dsl.stream_part import StreamPart, check_same_builder
from millstream.topology.dsl.stream_process import process
from millstream.topology.dsl.stream_stream_join import join_streams
from millstream.topology.dsl.stream_table_join import join_table
from millstream.topology.dsl.stream_to_table import to_table
from millstream.topology.dsl.table_aggregation import TableGrouping
from millstream.topology.dsl.table_derived import derived_table
from millstream.topology.dsl.table_part import TablePart
from millstream.topology.dsl.table_suppress import suppress
from millstream.topology.dsl.table_table_join import join_by_key
from millstream.topology.logical.graph_nodes import (
    BranchGraphNode,
    OperatorGraphNode,
    SinkGraphNode,
)
from millstream.topology.logical.repartition import repartition_node
from millstream.topology.logical.table_nodes import TableGraphNode
from millstream.topology.naming import checked_name
from millstream.topology.operations import streams
from millstream.topology.operations.aggregations import (
    SessionAggregate,
    SessionAggregation,
    SessionCount,
    SessionReduce,
    StreamAggregate,
    StreamCount,
    StreamReduce,
    TableAggregate,
    TableCount,
    TableReduce,
    TableSelect,
    WindowAggregate,
    WindowCount,
    WindowedAggregation,
    WindowReduce,
)
from millstream.topology.operations.operation import (
    Operation,
    TableOperation,
)
from millstream.topology.operations.tables import (
    TableFilter,
    TableMapValues,
    TableToStream,
    TableTransformValues,
)
from millstream.topology.options.join_windows import JoinWindows
from millstream.topology.options.lake import LakeFormat, lake_table
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    key_value_builder,
    materialized,
)
from millstream.topology.options.materialized_windows import session_builder, window_builder
from millstream.topology.options.suppressed import Suppressed
from millstream.topology.options.trigger import Trigger
from millstream.topology.options.windows import (
    AnyWindows,
    EmitStrategy,
    FixedSizeWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    check_windows,
)
from millstream.topology.physical.nodes import Partitioner
from millstream.topology.physical.source_names import SourceNames
from millstream.topology.physical.windowed_serdes import (
    partitioner_of,
    session_windowed_serde,
    time_windowed_serde,
)
from millstream.unawaited import deferred_method_advice
from millstream.windowed import Windowed

K1 = TypeVar("K1")
V1 = TypeVar("V1")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
GK = TypeVar("GK")
A = TypeVar("A")
R = TypeVar("R")
KIn = TypeVar("KIn", contravariant=True)
VIn = TypeVar("VIn", contravariant=True)
VOut = TypeVar("VOut", covariant=True)

_AGGREGATE = "KSTREAM-AGGREGATE-"
_REDUCE = "KSTREAM-REDUCE-"

#: The position of the default branch of a split; the others are counted from 1.
_DEFAULT_POSITION = 0


class KStream(HintedStream, Generic[K, V]):
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

    __slots__ = ("_part", "_placement")

    def __init__(self, part: StreamPart) -> None:
        self._part = part
        self._placement = JoinPlacement()

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
        return self._same("KSTREAM-FILTER-", name, streams.Filter(predicate))

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
        return self._same("KSTREAM-FILTER-", name, streams.Filter(predicate, True))

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
        return self._same("KSTREAM-PEEK-", name, streams.Peek(action))

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
            operation=streams.PassThrough(),
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
        return self._rekeyed("KSTREAM-MAP-", name, streams.Map(mapper))

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
        operation = streams.MapValues(mapper, with_key)
        return self._revalued("KSTREAM-MAPVALUES-", name, operation)

    @overload
    def map_async(
        self,
        mapper: Callable[[V], Awaitable[V1]],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[False] = False,
        using: None = None,
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_async(
        self,
        mapper: Callable[[V], V1],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[False] = False,
        using: None = None,
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_async(
        self,
        mapper: Callable[[K, V], Awaitable[V1]],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[True],
        using: None = None,
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_async(
        self,
        mapper: Callable[[K, V], V1],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[True],
        using: None = None,
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_async(
        self,
        mapper: Callable[[R, V], Awaitable[V1]],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[False] = False,
        using: Callable[[], AbstractAsyncContextManager[R] | AbstractContextManager[R]],
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_async(
        self,
        mapper: Callable[[R, V], V1],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[False] = False,
        using: Callable[[], AbstractAsyncContextManager[R] | AbstractContextManager[R]],
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_async(
        self,
        mapper: Callable[[R, K, V], Awaitable[V1]],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[True],
        using: Callable[[], AbstractAsyncContextManager[R] | AbstractContextManager[R]],
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    @overload
    def map_async(
        self,
        mapper: Callable[[R, K, V], V1],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: Literal[True],
        using: Callable[[], AbstractAsyncContextManager[R] | AbstractContextManager[R]],
        name: str | None = None,
    ) -> KStream[K, V1]: ...
    def map_async(
        self,
        mapper: Callable[..., Any],
        *,
        concurrency: int = 100,
        ordering: Literal["key", "none", "partition"] = "key",
        timeout: timedelta | None = None,
        with_key: bool = False,
        using: Callable[[], Any] | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Replace each value by the result of a function that may wait for a service, a database
        or a model. The key stays. Many records are worked on at a time, in one task, with no topic
        in between; an offset is committed when all before it are done.

        An `async def` function runs on the event loop of its process, a plain one on threads. If it
        raises, or takes too long, the processing exception handler decides about the record. A
        record is worked on again where a process ends before its offset is committed, so the
        function should bear to be called twice.

        What comes behind it sees the results as if they had arrived when they are released: stream
        time, windows and punctuations go by them. With a store before it in the same sub-topology,
        each commit waits until nothing is in flight.

        Args:
            mapper: `async value -> value`, or `async (key, value) -> value` with `with_key=True`;
                or a plain function.
            concurrency: how many calls each task has in flight at most. About 650 bytes for each
                and for 500 more records that wait, beside the records.
            ordering: `"key"` calls the function for one record of a key after the other and keeps
                their order; `"partition"` calls it for all side by side, and keeps the order of the
                input partition; `"none"` keeps none. Keys need an `__eq__`, as those of all ready
                serdes have.
            timeout: after how long a call of an `async def` function is cancelled.
            with_key: whether the function wants to see the key.
            using: returns a context manager for a resource that all calls in a process share,
                such as a client; the mapper gets the resource as its first argument. It is entered
                before the first record and exited when the last task of the process is closed, for
                an `async def` function on the event loop, where it may be asynchronous.
            name: of the operation.

        Raises:
            TypeError: the mapper is no function of that kind, an asynchronous generator, or a class
                whose objects are functions; or `using` cannot return a context manager.
            ConfigError: `concurrency` is below 1, `ordering` is none of these, the timeout is not
                positive, or is given for a plain function, which nothing can cancel.

        Example:
            >>> async def looked_up(user):
            ...     await asyncio.sleep(0.01)
            ...     return user.upper()
            >>> users = StreamsBuilder().stream("users", key=STRING, value=STRING)
            >>> names = users.map_async(looked_up, concurrency=100, timeout=timedelta(seconds=5))
        """
        operation = streams.MapAsync(
            *checked_async("map_async", mapper, with_key=with_key, using=using),
            with_key,
            *checked_concurrency("map_async", concurrency, ordering),
            checked_timeout("map_async", mapper, timeout),
            using,
        )
        checked_threads("map_async", mapper, concurrency)
        return self._revalued("KSTREAM-MAPASYNC-", name, operation)

    def map_batches(
        self,
        mapper: Callable[[Any], Any],
        *,
        max_records: int = 1_000,
        schema: Any = None,
        with_key: bool = False,
        with_timestamp: bool = False,
        concurrency: int | None = None,
        timeout: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Replace many values at a time: the function gets them as columns of Arrow, for numpy,
        polars, DuckDB or a model, and gives as many new ones. Keys, times and headers stay.

        Values that are mappings, dataclasses or msgspec structs have a column for each field, any
        others are the column `value`. Records without a value skip the function, so the column
        `value` has no nulls, and numbers are arrays of numpy without a copy.

        How records are cut into batches is not for the function to know: as many as are there, up
        to `max_records`, one when one is there. Each row's new value must come from that row alone.

        If the function raises, or gives another number of rows, the processing exception handler is
        asked about each record of the batch; a row whose new value is null, about that one alone.

        A plain function is called in the loop, and everything waits for it. An `async def` function
        runs on the event loop of its process, with the guarantees of `map_async`; results go on in
        the order of the records. It needs pyarrow: `pip install 'millstream[arrow]'`.

        Args:
            mapper: of a `pyarrow.RecordBatch`. Gives a record batch, table, array, a dict of
                columns, a list, an array of numpy, or what has Arrow's interface, such as frames of
                polars or relations of DuckDB. Rows of one column `value`, and arrays, become its
                elements, other rows dicts.
            max_records: how many a batch has at most.
            schema: a `pyarrow.Schema` of the columns, or a `pyarrow.DataType` of the column
                `value`; by default Arrow infers it anew from each batch, so that a column may be
                of whole numbers in one and of floats in the next. Each column must be a field of
                the dataclass or struct; of mappings, where `nullable=False` in the schema.
            with_key: whether the keys are a column `key`.
            with_timestamp: whether the times are a column `timestamp`.
            concurrency: how many calls of an `async def` function each task has in flight at most;
                1 by default. One batch more waits beside them.
            timeout: after how long a call of an `async def` function is cancelled.
            name: of the operation.

        Raises:
            TypeError: the mapper is no such function, or the schema none.
            ConfigError: a number cannot be, a name is twice in the schema, or something is given
                that is for `async def` alone.
            ImportError: pyarrow is not installed.

        Example:
            >>> prices = StreamsBuilder().stream("prices", key=STRING, value=DOUBLE)
            >>> with_tax = prices.map_batches(lambda batch: batch["value"].to_numpy() * 1.19)
        """
        return self._revalued(
            "KSTREAM-MAPBATCHES-",
            name,
            checked_batches(
                streams.MapBatches(mapper, schema, with_key, with_timestamp, max_records),
                concurrency,
                timeout,
            ),
        )

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
        checked_function("flat_map", "mapper", mapper, "key", "value", may_yield=True)
        return self._rekeyed("KSTREAM-FLATMAP-", name, streams.FlatMap(mapper))

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
        checked_function(
            "flat_map_values", "mapper", mapper, "value", with_key=with_key, may_yield=True
        )
        operation = streams.FlatMapValues(mapper, with_key)
        return self._revalued("KSTREAM-FLATMAPVALUES-", name, operation)

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
            partitioner: `(topic, key, value, number_of_partitions) -> partition`, or a collection
                of partitions, each of which gets a copy of the record: an empty one drops the
                record (KIP-837). None leaves the choice to Kafka's default.
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

    @overload
    def transform_dataframe(
        self,
        function: Callable[[Any], Any],
        *,
        trigger: Trigger | None = ...,
        key: None = ...,
        value: None = ...,
        input_key: Serde[K] | None = ...,
        input_value: Serde[V] | None = ...,
        name: str,
    ) -> KStream[K, V]: ...

    @overload
    def transform_dataframe(
        self,
        function: Callable[[Any], Any],
        *,
        trigger: Trigger | None = ...,
        key: None = ...,
        value: Serde[V1],
        input_key: Serde[K] | None = ...,
        input_value: Serde[V] | None = ...,
        name: str,
    ) -> KStream[K, V1]: ...

    @overload
    def transform_dataframe(
        self,
        function: Callable[[Any], Any],
        *,
        trigger: Trigger | None = ...,
        key: Serde[K1],
        value: None = ...,
        input_key: Serde[K] | None = ...,
        input_value: Serde[V] | None = ...,
        name: str,
    ) -> KStream[K1, V]: ...

    @overload
    def transform_dataframe(
        self,
        function: Callable[[Any], Any],
        *,
        trigger: Trigger | None = ...,
        key: Serde[K1],
        value: Serde[V1],
        input_key: Serde[K] | None = ...,
        input_value: Serde[V] | None = ...,
        name: str,
    ) -> KStream[K1, V1]: ...

    def transform_dataframe(
        self,
        function: Callable[[Any], Any],
        *,
        trigger: Trigger | None = None,
        key: Serde[Any] | None = None,
        value: Serde[Any] | None = None,
        input_key: Serde[K] | None = None,
        input_value: Serde[V] | None = None,
        name: str,
    ) -> KStream[Any, Any]:
        """Let Spark SQL work on the records: a function from a streaming DataFrame to another.

        The function becomes a sub-topology of its own. Records go to it through one internal topic,
        and its rows come back through another as records, placed by their keys. A query of
        Structured Streaming runs it in the application's Spark session.

        It is called once, in the driver, when the query is started. The columns of what it gets:
        `key` and `value` with Spark's types for the serdes (a `json_of` struct is a struct, of what
        Spark knows no type for the bytes), `timestamp`, `headers`, `partition`, `offset`. What it
        returns needs `key`, and `value` or, for a serde of a struct, that struct's fields;
        `timestamp` and `headers` may be there. Without `timestamp` records get the time of writing.

        Under exactly-once a batch that is tried again must give the same rows again: the function
        must be deterministic for a given batch.

        Args:
            function: `(DataFrame) -> DataFrame`. May hold what the driver has, a DataFrame of a
                dimension for example.
            trigger: when it gets the next records; by default as soon as there are some.
            key: the serde of the resulting keys; by default the one of the keys that go in.
            value: the serde of the resulting values; by default the one of the values that go in.
            input_key: the serde of the keys that go in; by default that of the stream.
            input_value: the serde of the values that go in; by default that of the stream.
            name: the topics are called `<application.id>-<name>-dataframe-input-repartition` and
                `<application.id>-<name>-dataframe-output-repartition`.

        Raises:
            TopologyError: the name is missing, not legal or taken, or the trigger is none.
            TypeError: the function is none of one argument, or a serde is none.

        Example:
            >>> names = StreamsBuilder().stream("names", key=STRING, value=STRING)
            >>> loud = names.transform_dataframe(
            ...     lambda rows: rows.selectExpr("key", "upper(value) AS value", "timestamp"),
            ...     name="loud",
            ... )
        """
        checked_function("transform_dataframe", "function", function, "DataFrame")
        checked_serdes(
            "transform_dataframe",
            key=key,
            value=value,
            input_key=input_key,
            input_value=input_value,
        )
        return KStream(
            cut_for_dataframe(
                self._part,
                name,
                function,
                trigger,
                input_key=input_key,
                input_value=input_value,
                output_key=key,
                output_value=value,
            )
        )

    def to_lake(
        self,
        path: str | os.PathLike[str],
        *,
        format: LakeFormat = "parquet",
        partition_by: Sequence[str] = (),
        trigger: Trigger | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        files_per_batch: int = 1,
        compact_every: int = 0,
        name: str,
    ) -> None:
        """Write the records into a table of the lake, each as a row, once.

        Records go through an internal topic to a query of Structured Streaming, which writes them
        batch by batch. The columns: `key` and `value` with Spark's types for the serdes,
        `timestamp`, `headers`, and `_topic`, `_partition`, `_offset` of the record that was read.

        A batch that is tried again after a crash is in a Delta or Iceberg table once: the table
        itself notes which batches it has, by the query's checkpoint. Files of Parquet are listed in
        a log beside them, `_spark_metadata`: whoever reads it, as Spark does, finds each row once;
        others may find rows of a batch that was tried again twice.

        Args:
            path: the folder of the table, or a URL that Spark's Hadoop knows.
            format: `"parquet"`, `"delta"` or `"iceberg"`.
            partition_by: by what the files lie apart: `"value.country"`, `"date(timestamp)"`, or
                any expression of Spark SQL with a name, `"hour(timestamp) AS hour"`.
            trigger: when the next batch begins; by default as soon as there are records. The more
                seldom, the larger the files.
            key: the serde of the keys; by default that of the stream.
            value: the serde of the values; by default that of the stream.
            files_per_batch: how many files a batch writes at most, in each partition.
            compact_every: of Delta: after so many batches small files become large ones (OPTIMIZE);
                0 for never.
            name: the internal topic is called
                `<application.id>-<name>-dataframe-input-repartition`.

        Raises:
            TopologyError: a name, the format, the trigger or a number is not what it should be.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> clicks.to_lake("/lake/clicks", format="delta", partition_by=["date(timestamp)"],
            ...                trigger=Trigger.processing_time("1 minute"), name="clicks-to-lake")
        """
        checked_serdes("to_lake", key=key, value=value)
        table = lake_table(
            path,
            format,
            partition_by,
            upserts=False,
            files_per_batch=files_per_batch,
            compact_every=compact_every,
        )
        into_lake(self._part, table, name, trigger, key, value)

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
        self._attach("KSTREAM-FOREACH-", name, streams.ForEach(action))

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
        self._attach("KSTREAM-PRINTER-", name, streams.Print(label, file))

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
            partitioner: `(topic, key, value, number_of_partitions) -> partition`, or a collection
                of partitions, each of which gets a copy of the record: an empty one drops the
                record (KIP-837). None leaves the choice to Kafka's default.
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

    def to_table(
        self,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Take each record for the new value of its key; one without a value deletes the key.

        Records without a key are dropped. If keys may have changed, this repartitions. The table is
        kept in a store if `store=` names one, or if an operation needs to look into it.

        Args:
            key: the serde of the keys; by default that of the stream.
            value: the serde of the values; by default that of the stream.
            store: where the table is kept.
            name: of the operation, and of the repartition topic if there must be one.

        Raises:
            TopologyError: the store cannot be had, or the name is not legal.

        Example:
            >>> moves = StreamsBuilder().stream("moves", key=STRING, value=STRING)
            >>> whereabouts = moves.to_table(store="whereabouts")
        """
        checked_serdes("to_table", key=key, value=value)
        return KTable(to_table(self._part, key=key, value=value, store=store, name=name))

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K1, V1]],
        *,
        stores: str | Sequence[str] = (),
        name: str | None = None,
    ) -> KStream[K1, V1]:
        """Run a `Processor` on each record; what it forwards is the new stream.

        The keys may change, so a later operation by key repartitions; where they do not, prefer
        `process_values`.

        Args:
            supplier: gives a new processor at each call: its class, or a function. If it has a
                method `stores()`, the store builders which that gives are added and connected.
            stores: the names of stores to connect, which were added with
                `StreamsBuilder.add_state_store` or belong to tables. Global stores need not be.
            name: of the operation; the processor's children are called by their names.

        Raises:
            TopologyError: the supplier gives the same processor twice, or none; at `build()`: a
                store is unknown.

        Example:
            >>> class Longest(Processor[str, str, str, str]):
            ...     def process(self, record):
            ...         store = self.context.get_state_store("longest")
            ...         if len(record.value) > len(store.get(record.key) or ""):
            ...             store.put(record.key, record.value)
            ...             self.context.forward(record)
            >>> builder = StreamsBuilder()
            >>> kept = Stores.persistent_key_value("longest")
            >>> _ = builder.add_state_store(Stores.key_value_builder(kept, STRING, STRING))
            >>> words = builder.stream("words", key=STRING, value=STRING)
            >>> longest = words.process(Longest, stores=["longest"])
        """
        return KStream(process(self._part, supplier, stores, name, fixed_key=False))

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V1]],
        *,
        stores: str | Sequence[str] = (),
        name: str | None = None,
    ) -> KStream[K, V1]:
        """Run a `FixedKeyProcessor` on each record; what it forwards is the new stream.

        Args:
            supplier: gives a new processor at each call: its class, or a function. If it has a
                method `stores()`, the store builders which that gives are added and connected.
            stores: the names of stores to connect, which were added with
                `StreamsBuilder.add_state_store` or belong to tables. Global stores need not be.
            name: of the operation; the processor's children are called by their names.

        Raises:
            TopologyError: the supplier gives the same processor twice, or none; at `build()`: a
                store is unknown.

        Example:
            >>> class Age(FixedKeyProcessor[str, str, str]):
            ...     def process(self, record):
            ...         age_ms = self.context.current_stream_time_ms() - record.timestamp
            ...         self.context.forward(record.with_value(f"{record.value}, {age_ms} ms old"))
            >>> words = StreamsBuilder().stream("words", key=STRING, value=STRING)
            >>> aged = words.process_values(Age, name="age")
        """
        return KStream(process(self._part, supplier, stores, name, fixed_key=True))

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2], R],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], R],
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], R],
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, R]: ...
    def join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """Bring each record together with what the other side has for its key.

        With a stream: with each record of it whose time is near enough (`windows`). With a table:
        with the value that its key has there now. With a global table: with the value there of the
        key that `key_selector` gives. A record without a partner is left out, and so is one
        without key or value. Keys that may have changed are repartitioned first, except for a
        global table.

        Kafka Streams' `KStream.join`; docs/build/joins.md has tables of nulls and timestamps.

        Args:
            other: a stream, a table or a global table of the same builder.
            joiner: `(value, other_value) -> value`, or `(key, value, other_value) -> value` with
                `with_key=True`.
            windows: streams only: how far apart in time two records may be.
            with_key: whether the joiner wants to see the key.
            name: of the operation, its nodes, and the topics it repartitions through.
            options: serdes `key`, `value` and `other_value`, by default those of the streams and
                tables. For a stream also `store_name`, which begins the names of its stores;
                `this_store` and `other_store`, window stores from `Stores` in their place;
                `logging`, False or the config of their changelogs. For a versioned table `grace`,
                a timedelta that records wait for its updates. For a global table `key_selector`,
                `(key, value) -> key of the table`.

        Raises:
            TopologyError: the two belong to different builders; an option does not go with what is
                joined; a store cannot be had.

        Example:
            >>> builder = StreamsBuilder()
            >>> shown = builder.stream("shown", key=STRING, value=STRING)
            >>> clicked = builder.stream("clicked", key=STRING, value=STRING)
            >>> matched = shown.join(
            ...     clicked, lambda ad, button: f"{ad}: {button}", JoinWindows(timedelta(minutes=5))
            ... )
        """
        return self._join("inner", other, joiner, windows, with_key, name, options)

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], R],
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        grace: timedelta | None = None,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[V, V2 | None], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[False] = False,
        name: str | None = None,
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: GlobalKTable[GK, V2],
        joiner: Callable[[K, V, V2 | None], R],
        *,
        key_selector: Callable[[K, V], GK | None],
        with_key: Literal[True],
        name: str | None = None,
    ) -> KStream[K, R]: ...
    def left_join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """As `join`, but a record without a partner is joined with None.

        With a stream that happens once no partner can come any more: when stream time has passed
        the end of its window and the grace period. With a table it happens at once. A record
        without a key never has a partner; one without a value is left out all the same.

        Kafka Streams' `KStream.leftJoin`; docs/build/joins.md has tables of nulls and timestamps.

        Args:
            other: as for `join`.
            joiner: as for `join`; the other value may be None.
            windows: as for `join`.
            with_key: as for `join`.
            name: as for `join`.
            options: as for `join`.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> shown = builder.stream("shown", key=STRING, value=STRING)
            >>> clicked = builder.stream("clicked", key=STRING, value=STRING)
            >>> outcomes = shown.left_join(
            ...     clicked,
            ...     lambda ad, button: f"{ad}: {button or 'ignored'}",
            ...     JoinWindows(timedelta(minutes=5), before=timedelta(0), grace=timedelta(1)),
            ... )
        """
        return self._join("left", other, joiner, windows, with_key, name, options)

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[False] = False,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[V2] | None = None,
        name: str | None = None,
        store_name: str | None = None,
        this_store: WindowStoreSupplier | None = None,
        other_store: WindowStoreSupplier | None = None,
        logging: bool | Mapping[str, str] = True,
    ) -> KStream[K, R]: ...
    def outer_join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None = None,
        *,
        with_key: bool = False,
        name: str | None = None,
        **options: Any,
    ) -> KStream[K, Any]:
        """As `left_join` with a stream, but neither side loses a record for want of a partner.

        Kafka Streams' `KStream.outerJoin`; docs/build/joins.md has tables of nulls and timestamps.

        Args:
            other: a stream of the same builder.
            joiner: as for `join`; one of the two values may be None.
            windows: as for `join`.
            with_key: as for `join`.
            name: as for `join`.
            options: as for `join`.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders", key=STRING, value=LONG)
            >>> payments = builder.stream("payments", key=STRING, value=LONG)
            >>> booked = orders.outer_join(
            ...     payments,
            ...     lambda ordered, paid: (paid or 0) - (ordered or 0),
            ...     JoinWindows(timedelta(hours=1)),
            ... )
        """
        return self._join("outer", other, joiner, windows, with_key, name, options)

    # ---- inside

    def _join(
        self,
        kind: JoinKind,
        other: Any,
        joiner: Callable[..., Any],
        windows: JoinWindows | None,
        with_key: bool,
        name: str | None,
        options: dict[str, Any],
    ) -> KStream[K, Any]:
        operation = JOIN_METHODS[kind]
        checked_function(operation, "joiner", joiner, "value", "other_value", with_key=with_key)
        if windows is not None:
            options["windows"] = windows
        check_join_options(operation, other, kind, options)
        part = self._part
        how: dict[str, Any] = {"left": kind == "left", "with_key": with_key, "name": name}
        if isinstance(other, KStream):
            check_same_builder(part.graph, other._part.graph, "joined")
            return KStream(self._join_stream(kind, other, joiner, with_key, name, **options))
        if isinstance(other, KTable):
            table = other._table
            check_same_builder(part.graph, table.part.graph, "joined")
            part = self._placement.placed(part, name, options.get("key"), options.get("value"))
            return KStream(join_table(part, table, joiner, **how, **options))
        check_same_builder(part.graph, other._graph, "joined")
        return KStream(join_global_table(part, other, joiner, **how, **options))

    def _join_stream(
        self,
        kind: JoinKind,
        other: KStream[K, Any],
        joiner: Callable[..., Any],
        with_key: bool,
        name: str | None,
        *,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        other_value: Serde[Any] | None = None,
        **options: Any,
    ) -> StreamPart:
        left, right = None, None
        if name is not None:
            left, right = f"{checked_name(name)}-left", f"{name}-right"
        part = self._placement.placed(self._part, left, key, value)
        other_part = other._placement.placed(other._part, right, key, other_value)
        return join_streams(
            replace(part, key_serde=key or part.key_serde or other_part.key_serde),
            replace(other_part, value_serde=other_value or other_part.value_serde),
            kind,
            StreamJoiner(joiner, with_key),
            name,
            **options,
        )

    def _attach(
        self,
        prefix: str,
        name: str | None,
        operation: Operation,
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
            operation=operation,
        )
        graph.attach(node, self._part.node)
        return node

    def _same(self, prefix: str, name: str | None, operation: Operation) -> KStream[K, V]:
        return KStream(replace(self._part, node=self._attach(prefix, name, operation)))

    def _revalued(self, prefix: str, name: str | None, operation: Operation) -> KStream[K, Any]:
        node = self._attach(prefix, name, operation, changes_value=True)
        return KStream(replace(self._part, node=node, value_serde=None))

    def _rekeyed(self, prefix: str, name: str | None, operation: Operation) -> KStream[Any, Any]:
        node = self._attach(prefix, name, operation, changes_key=True)
        part = replace(self._part, node=node, key_serde=None, value_serde=None)
        return KStream(replace(part, repartition_required=True))

    def _select_key(
        self, prefix: str, selector: Callable[[K, V], Any], name: str | None
    ) -> StreamPart:
        operation = streams.SelectKey(selector)
        node = self._attach(prefix, name, operation, changes_key=True)
        return replace(self._part, node=node, key_serde=None, repartition_required=True)


class BranchedKStream(Generic[K, V]):
    """What `KStream.split` gives: branches are added one by one (Kafka Streams' KIP-418).

    A record goes to the first branch whose predicate holds, else to the default branch; without
    one it is dropped silently. A branch is called after the split: its name or else its position,
    counted from 1, is appended; the default branch is at position 0.

    Example:
        >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
        >>> split = orders.split(name="size-")
        >>> streams = split.branch(lambda _, n: n > 99, "big").branch(lambda _, n: n > 9)
        >>> list(streams.default_branch())
        ['size-big', 'size-2', 'size-0']
    """

    __slots__ = ("_node", "_part", "_streams")

    def __init__(self, part: StreamPart, name: str | None) -> None:
        self._part = part
        self._node = BranchGraphNode(
            name=part.graph.names.processor("KSTREAM-BRANCH-", name), declared_at=call_site()
        )
        part.graph.attach(self._node, part.node)
        self._streams: dict[str, KStream[K, V]] = {}

    def branch(
        self,
        predicate: Callable[[K, V], object],
        name: str | None = None,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> BranchedKStream[K, V]:
        """Add a branch.

        Args:
            predicate: `(key, value) -> bool`.
            name: appended to the name of the split.
            chain: gets the branch's stream. The stream it returns is what the result holds for
                this branch; if it returns None, the result does not hold the branch.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> split = orders.split().branch(lambda _, n: n > 99, chain=lambda big: big.to("big"))
            >>> split.no_default_branch()
            {}
        """
        checked_function("branch", "predicate", predicate, "key", "value")
        _check_chain("branch", chain)
        self._node.predicates.append(predicate)
        stream = self._child(name, len(self._node.predicates))
        self._node.branches.append(stream.name)
        self._keep(stream, chain)
        return self

    def default_branch(
        self,
        name: str | None = None,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None = None,
    ) -> dict[str, KStream[K, V]]:
        """The branches by their names, and one more for records that no other branch takes.

        Args:
            name: appended to the name of the split.
            chain: as for `branch`.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> split = orders.split(name="size-").branch(lambda _, n: n > 99, "big")
            >>> list(split.default_branch("small"))
            ['size-big', 'size-small']
        """
        _check_chain("default_branch", chain)
        stream = self._child(name, _DEFAULT_POSITION)
        self._node.default = stream.name
        self._keep(stream, chain)
        return dict(self._streams)

    def no_default_branch(self) -> dict[str, KStream[K, V]]:
        """The branches by their names. Records that none of them takes are dropped.

        Example:
            >>> orders = StreamsBuilder().stream("orders", key=STRING, value=LONG)
            >>> split = orders.split(name="size-").branch(lambda _, n: n > 99, "big")
            >>> list(split.no_default_branch())
            ['size-big']
        """
        return dict(self._streams)

    def _child(self, name: str | None, position: int) -> StreamPart:
        graph = self._part.graph
        child = f"{self._node.name}{position if name is None else name}"
        node = OperatorGraphNode(
            name=graph.names.processor("", child),
            declared_at=call_site(),
            operation=streams.PassThrough(),
        )
        graph.attach(node, self._node)
        return replace(self._part, node=node)

    def _keep(
        self,
        part: StreamPart,
        chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None,
    ) -> None:
        branch: KStream[K, V] = KStream(part)
        stream = branch if chain is None else chain(branch)
        if stream is not None:
            self._streams[part.name] = stream


class KGroupedStream(Hinted, Generic[K, V]):
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
        operation: Callable[[str], TableOperation],
        value_serde: Serde[Any] | None,
    ) -> KTable[K, Any]:
        return KTable(
            aggregated_table(self._grouping, prefix, choice, name, operation, value_serde)
        )


class TimeWindowedKStream(Hinted, Generic[K, V]):
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
        # Follows Kafka Streams: for these alone, a store without a name takes only one number.
        slides = isinstance(self._windows, SlidingWindows)
        choice = materialized(store) if slides else count_choice(self._grouping, store)
        return self._aggregated(_AGGREGATE, choice, name, WindowCount, LONG)

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
        operation = partial(WindowReduce, reducer=reducer)
        value_serde = self._grouping.part.value_serde
        return self._aggregated(_REDUCE, materialized(store), name, operation, value_serde)

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
        operation = partial(WindowAggregate, initializer=initializer, aggregator=aggregator)
        return self._aggregated(_AGGREGATE, materialized(store), name, operation, None)

    def _aggregated(
        self,
        prefix: str,
        choice: Materialized[Any, Any],
        name: str | None,
        operation: Callable[..., WindowedAggregation],
        value_serde: Serde[Any] | None,
    ) -> KTable[Windowed[K], Any]:
        builder = window_builder(
            choice,
            self._grouping.part.graph.names,
            prefix,
            self._windows,
            key_serde=self._grouping.part.key_serde,
            value_serde=value_serde,
            emit_final=self._emit_final,
        )
        return KTable(
            windowed_table(
                self._grouping,
                prefix,
                choice,
                name,
                builder=builder,
                operation=operation(
                    builder.name, windows=self._windows, emit_final=self._emit_final
                ),
                key_serde=time_windowed_serde(builder.key_serde, self._windows.size_ms),
                grace_ms=self._windows.grace_ms,
            )
        )


class SessionWindowedKStream(Hinted, Generic[K, V]):
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
        choice = count_choice(self._grouping, store)
        return self._aggregated(_AGGREGATE, choice, name, SessionCount, LONG)

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
        operation = partial(SessionReduce, reducer=reducer)
        value_serde = self._grouping.part.value_serde
        return self._aggregated(_REDUCE, materialized(store), name, operation, value_serde)

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
        operation = partial(
            SessionAggregate,
            initializer=initializer,
            aggregator=aggregator,
            merger=session_merger,
        )
        return self._aggregated(_AGGREGATE, materialized(store), name, operation, None)

    def _aggregated(
        self,
        prefix: str,
        choice: Materialized[Any, Any],
        name: str | None,
        operation: Callable[..., SessionAggregation],
        value_serde: Serde[Any] | None,
    ) -> KTable[Windowed[K], Any]:
        builder = session_builder(
            choice,
            self._grouping.part.graph.names,
            prefix,
            self._windows,
            key_serde=self._grouping.part.key_serde,
            value_serde=value_serde,
            emit_final=self._emit_final,
        )
        return KTable(
            windowed_table(
                self._grouping,
                prefix,
                choice,
                name,
                builder=builder,
                operation=operation(
                    builder.name, windows=self._windows, emit_final=self._emit_final
                ),
                key_serde=session_windowed_serde(builder.key_serde),
                grace_ms=self._windows.retention_ms,
            )
        )


class CogroupedKStream(Hinted, Generic[K, A]):
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

    __slots__ = ("_cogrouping",)

    def __init__(self, grouping: Grouping, aggregator: Callable[[K, Any, A], A]) -> None:
        checked_function("cogroup", "aggregator", aggregator, "key", "value", "aggregate")
        self._cogrouping = Cogrouping(grouping, aggregator)

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
        if not isinstance(grouped, KGroupedStream):
            raise wrong_type(
                "cogroup() takes another KGroupedStream, from group_by() or group_by_key(), but "
                f"got {grouped!r}."
            )
        self._cogrouping.add(grouped._grouping, aggregator)
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
        choice, first = materialized(store), self._cogrouping.first
        builder = key_value_builder(
            choice,
            first.graph.names,
            COGROUP_PREFIX,
            key_serde=first.key_serde,
            value_serde=None,
        )
        table = self._cogrouping.aggregated(
            choice,
            name,
            builder,
            lambda aggregator: StreamAggregate(builder.name, initializer, aggregator),
            builder.key_serde,
        )
        return KTable(table)

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
            return SessionWindowedCogroupedKStream(self._cogrouping, windows)
        return TimeWindowedCogroupedKStream(self._cogrouping, windows)


class TimeWindowedCogroupedKStream(Hinted, Generic[K, A]):
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

    __slots__ = ("_cogrouping", "_windows")

    def __init__(self, cogrouping: Cogrouping, windows: FixedSizeWindows) -> None:
        self._cogrouping = cogrouping
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
        choice, windows, first = materialized(store), self._windows, self._cogrouping.first
        builder = window_builder(
            choice,
            first.graph.names,
            COGROUP_PREFIX,
            windows,
            key_serde=first.key_serde,
            value_serde=None,
            emit_final=False,
        )

        table = self._cogrouping.aggregated(
            choice,
            name,
            builder,
            lambda aggregator: WindowAggregate(builder.name, windows, initializer, aggregator),
            time_windowed_serde(builder.key_serde, windows.size_ms),
            windows.grace_ms,
        )
        return KTable(table)


class SessionWindowedCogroupedKStream(Hinted, Generic[K, A]):
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

    __slots__ = ("_cogrouping", "_windows")

    def __init__(self, cogrouping: Cogrouping, windows: SessionWindows) -> None:
        self._cogrouping = cogrouping
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
        choice, windows, first = materialized(store), self._windows, self._cogrouping.first
        builder = session_builder(
            choice,
            first.graph.names,
            COGROUP_PREFIX,
            windows,
            key_serde=first.key_serde,
            value_serde=None,
            emit_final=False,
        )
        table = self._cogrouping.aggregated(
            choice,
            name,
            builder,
            lambda aggregator: SessionAggregate(
                builder.name, windows, initializer, aggregator, session_merger
            ),
            session_windowed_serde(builder.key_serde),
            windows.retention_ms,
        )
        return KTable(table)


class ValueTransformer(Protocol[KIn, VIn, VOut]):
    """What `KTable.transform_values` runs. It may also have `init(context)` and `close()`."""

    def transform(self, key: KIn, value: VIn | None) -> VOut:
        """The value for a row; also asked about rows that go, whose value is None."""
        ...


class KTable(HintedTable, Generic[K, V]):
    """A table with keys of type K and values of type V (Kafka Streams' `KTable`).

    Comes from `StreamsBuilder.table`, `KStream.to_table`, an aggregation, or an operation on
    another table. A record says what a key's value is from now on; one without a value says that
    the key is gone. Functions are not asked about keys that go, unless it says so.

    The result of an operation gets a store of its own, which can be queried, if `store=` names one;
    otherwise it is computed as it is read.

    Attributes:
        queryable_store_name: the store in which the table can be queried; None if it has none, or
            one without a name of the user's.

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> per_user = clicks.group_by_key().count()
        >>> per_user.filter(lambda user, n: n > 9).to_stream().to("busy-users")
    """

    __slots__ = ("_table", "queryable_store_name")

    def __init__(self, table: TablePart) -> None:
        self._table = table
        self.queryable_store_name = table.queryable_store_name

    def __repr__(self) -> str:
        return self._table.part.shown("KTable", store=self.queryable_store_name)

    def filter(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which the predicate holds. A row for which it no longer holds is gone.

        Args:
            predicate: `(key, value) -> bool`.
            store: where the result is kept, if it is to be.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> prices = StreamsBuilder().table("prices", key=STRING, value=LONG)
            >>> cheap = prices.filter(lambda item, price: price < 10, store="cheap")
        """
        checked_function("filter", "predicate", predicate, "key", "value")
        return self._filtered(predicate, False, store, name)

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """The rows for which the predicate does not hold.

        Args:
            predicate: `(key, value) -> bool`.
            store: where the result is kept, if it is to be.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> prices = StreamsBuilder().table("prices", key=STRING, value=LONG)
            >>> for_sale = prices.filter_not(lambda item, price: price == 0)
        """
        checked_function("filter_not", "predicate", predicate, "key", "value")
        return self._filtered(predicate, True, store, name)

    @overload
    def map_values(
        self,
        mapper: Callable[[V], V1 | None],
        *,
        with_key: Literal[False] = False,
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]: ...
    @overload
    def map_values(
        self,
        mapper: Callable[[K, V], V1 | None],
        *,
        with_key: Literal[True],
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]: ...
    def map_values(
        self,
        mapper: Callable[..., V1 | None],
        *,
        with_key: bool = False,
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]:
        """The same rows with other values. A row for which the mapper gives None is gone.

        Args:
            mapper: `value -> value`, or `(key, value) -> value` with `with_key=True`. Without a
                store it may be called each time that a row is read.
            with_key: whether the mapper wants to see the key.
            store: where the result is kept, if it is to be; it should bring the serde of the new
                values, which is the config's default otherwise.
            name: of the operation.

        Raises:
            TopologyError: the store cannot be had.

        Example:
            >>> names = StreamsBuilder().table("names", key=STRING, value=STRING)
            >>> lengths = names.map_values(len, store=Materialized("lengths", value=LONG))
        """
        checked_function("map_values", "mapper", mapper, "value", with_key=with_key)
        table = derived_table(
            self._table,
            "KTABLE-MAPVALUES-",
            store,
            name,
            TableMapValues(mapper, with_key),
            partial(MappedGetter, mapper=mapper, with_key=with_key),
        )
        return KTable(table)

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V1 | None]],
        *,
        stores: str | Sequence[str] = (),
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]:
        """The same rows with values that an object with state gives (`KTable.transformValues`).

        Args:
            supplier: gives a new object for each task and each use of the table. It has
                `transform(key, value) -> value`, which is asked about rows that go as well, and may
                have `init(context)` and `close()`. From the context it gets its stores; it cannot
                forward.
            stores: the stores that it uses, added with `StreamsBuilder.add_state_store`: a name,
                or several.
            store: where the result is kept, if it is to be. Without one the object is also asked
                each time that a row is read.
            name: of the operation.

        Raises:
            TopologyError: a store cannot be had.

        Example:
            >>> class Shout:
            ...     def transform(self, key, value):
            ...         return None if value is None else value.upper()
            >>> names = StreamsBuilder().table("names", key=STRING, value=STRING)
            >>> loud = names.transform_values(Shout)
        """
        checked_function("transform_values", "supplier", supplier)
        if isinstance(supplier, type) and not hasattr(supplier, "transform"):
            raise wrong_type(
                f"transform_values() needs objects with a method transform(key, value), which "
                f"those of {supplier.__qualname__} have not."
            )
        advice = deferred_method_advice(supplier, TRANSFORMER_METHODS)
        if isinstance(supplier, type) and advice is not None:
            raise wrong_type(advice)
        table = derived_table(
            self._table,
            "KTABLE-TRANSFORMVALUES-",
            store,
            name,
            TableTransformValues(supplier),
            partial(TransformedGetter, supplier=supplier),
            other_stores=store_names("transform_values", stores),
        )
        return KTable(table)

    @overload
    def to_stream(self, key_selector: None = None, *, name: str | None = None) -> KStream[K, V]: ...
    @overload
    def to_stream(
        self, key_selector: Callable[[K, V], K1], *, name: str | None = None
    ) -> KStream[K1, V]: ...
    def to_stream(
        self, key_selector: Callable[[K, V], Any] | None = None, *, name: str | None = None
    ) -> KStream[Any, V]:
        """The changes of the table as a stream. A key that goes is a record without a value.

        Args:
            key_selector: `(key, value) -> key` to give the records other keys, as by
                `KStream.select_key`.
            name: of the operation.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> changes = clicks.group_by_key().count().to_stream()
        """
        part = self._table.part
        node = OperatorGraphNode(
            name=part.graph.names.processor("KTABLE-TOSTREAM-", name),
            declared_at=call_site(),
            operation=TableToStream(),
        )
        part.graph.attach(node, part.node)
        stream: KStream[K, V] = KStream(replace(part, node=node, repartition_required=False))
        return stream if key_selector is None else stream.select_key(key_selector)

    def to_lake(
        self,
        path: str | os.PathLike[str],
        *,
        format: LakeFormat,
        partition_by: Sequence[str] = (),
        trigger: Trigger | None = None,
        key: Serde[K] | None = None,
        value: Serde[V] | None = None,
        files_per_batch: int = 1,
        compact_every: int = 0,
        name: str,
    ) -> None:
        """Keep a table of the lake as this table is: a row for each key, with its last value.

        As `KStream.to_lake`, but a batch puts the last value of each key in the place of the one
        before, and a key that goes takes its row with it. The columns are `key`, `value` and
        `timestamp`. Delta merges; Iceberg gets the new rows and a list of keys whose older rows are
        no more (equality deletes), which an engine of your choice works in when it compacts.

        Args:
            path: as for `KStream.to_lake`.
            format: `"delta"` or `"iceberg"`. Parquet has no way to replace a row.
            partition_by: as for `KStream.to_lake`; for Delta only.
            trigger: when the next batch begins; by default as soon as there are changes.
            key: the serde of the keys; by default that of the table.
            value: the serde of the values; by default that of the table.
            files_per_batch: how many files a batch writes at most, in each partition.
            compact_every: as for `KStream.to_lake`.
            name: as for `KStream.to_lake`.

        Raises:
            TopologyError: as for `KStream.to_lake`, or the format cannot do it.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> counts = clicks.group_by_key().count(name="counts")
            >>> counts.to_lake("/lake/counts", format="delta", name="counts-to-lake")
        """
        checked_serdes("to_lake", key=key, value=value)
        table = lake_table(
            path,
            format,
            partition_by,
            upserts=True,
            files_per_batch=files_per_batch,
            compact_every=compact_every,
        )
        into_lake(self.to_stream()._part, table, name, trigger, key, value)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[K1, V1] | None],
        *,
        key: Serde[K1] | None = None,
        value: Serde[V1] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K1, V1]:
        """Group the rows by another key, to aggregate them. This repartitions.

        Args:
            selector: `(key, value) -> (group, value in the group)`. With None for one of the two,
                or for both, the row is in no group.
            key: the serde of the groups; by default the config's.
            value: the serde of the values in the groups; by default the config's.
            name: of the operation and of the repartition topic.

        Example:
            >>> cities = StreamsBuilder().table("city-of-user", key=STRING, value=STRING)
            >>> users = cities.group_by(lambda user, city: (city, user), key=STRING, value=STRING)
        """
        checked_function("group_by", "selector", selector, "key", "value")
        checked_serdes("group_by", key=key, value=value)
        part = self._table.part
        node = TableGraphNode(
            name=part.graph.names.processor("KTABLE-SELECT-", name),
            declared_at=call_site(),
            operation=TableSelect(selector),
        )
        part.graph.attach(node, part.node)
        self._table.inner.send_old_values(True)
        given = None if name is None else checked_name(name)
        return KGroupedTable(replace(part, node=node), key, value, given)

    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: None = None,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        with_key: Literal[False] = False,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    def join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        *,
        foreign_key: Callable[..., Any] | None = None,
        with_key: bool = False,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """The rows that both tables have, with their values joined.

        Whichever table changes, the row changes. Without a foreign key, rows of equal keys belong
        together, and the topics of both tables must have equally many partitions. With one, a row
        of this table belongs to the row of the other one whose key `foreign_key` gives, and the
        result has the keys of this table.

        Kafka Streams' `KTable.join`. Changes of a versioned table that are not the newest are
        dropped.

        Args:
            other: a table of the same builder.
            joiner: `(value, other_value) -> value`; None for no row.
            foreign_key: `value -> key of the other table`, or `(key, value) -> …` with
                `with_key=True`; None for a row that refers to nothing.
            with_key: whether `foreign_key` wants to see the key.
            store: where the result is kept, if it is to be; it should bring the serde of its
                values.
            name: of the operation.

        Raises:
            TopologyError: the tables belong to different builders, or the store cannot be had.

        Example:
            >>> builder = StreamsBuilder()
            >>> names = builder.table("names", key=STRING, value=STRING)
            >>> towns = builder.table("towns", key=STRING, value=STRING)
            >>> people = names.join(towns, lambda name, town: f"{name} of {town}")
        """
        return self._joined("join", other, joiner, foreign_key, with_key, store, name)

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: None = None,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[V], K2 | None],
        with_key: Literal[False] = False,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V, V2 | None], R | None],
        *,
        foreign_key: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]: ...
    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        *,
        foreign_key: Callable[..., Any] | None = None,
        with_key: bool = False,
        store: StoreChoice = None,
        name: str | None = None,
    ) -> KTable[K, Any]:
        """As `join`, with every row of this table: without a partner it is joined with None.

        Kafka Streams' `KTable.leftJoin`.

        Args:
            other: as for `join`.
            joiner: as for `join`; the other value may be None.
            foreign_key: as for `join`.
            with_key: as for `join`.
            store: as for `join`.
            name: as for `join`.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> names = builder.table("names", key=STRING, value=STRING)
            >>> towns = builder.table("towns", key=STRING, value=STRING)
            >>> people = names.left_join(towns, lambda name, town: f"{name} of {town or 'nowhere'}")
        """
        return self._joined("left_join", other, joiner, foreign_key, with_key, store, name)

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V | None, V2 | None], R | None],
        *,
        store: StoreChoice[K, R] = None,
        name: str | None = None,
    ) -> KTable[K, R]:
        """As `join`, with every row of either table: without a partner it is joined with None.

        Kafka Streams' `KTable.outerJoin`.

        Args:
            other: a table of the same builder.
            joiner: `(value, other_value) -> value`; one of the two may be None.
            store: as for `join`.
            name: of the operation.

        Raises:
            TopologyError: as for `join`.

        Example:
            >>> builder = StreamsBuilder()
            >>> web = builder.table("web-visits", key=STRING, value=LONG)
            >>> app = builder.table("app-visits", key=STRING, value=LONG)
            >>> visits = web.outer_join(app, lambda one, other: (one or 0) + (other or 0))
        """
        return self._joined("outer_join", other, joiner, None, False, store, name)

    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """Hold changes back: until a window closes, or for some time.

        Only the latest change of a key comes out, at once when stream time (the highest time seen
        here) says so; if no records come any more, nothing comes out any more. What is held back is
        in memory, and in a changelog from which it is restored.

        Kafka Streams' `KTable.suppress`.

        Args:
            suppressed: from `Suppressed.until_window_closes` or `Suppressed.until_time_limit`.
            name: of the operation, unless `suppressed` has one; its store is called `<name>-store`.

        Raises:
            TopologyError: the table is not one of windows, but its results are to wait for the
                end of their windows; the table is versioned; the name is not legal.

        Example:
            >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
            >>> per_minute = clicks.group_by_key().windowed_by(TimeWindows(timedelta(minutes=1)))
            >>> final = per_minute.count().suppress(
            ...     Suppressed.until_window_closes(BufferConfig.unbounded())
            ... )
        """
        if not isinstance(suppressed, Suppressed):
            raise TypeError(
                "suppress() needs Suppressed.until_window_closes(...) or "
                f"Suppressed.until_time_limit(...), but got {suppressed!r}."
            )
        return KTable(suppress(self._table, suppressed, name))

    # ---- inside

    def _filtered(
        self,
        predicate: Callable[[K, V], object],
        negate: bool,
        store: StoreChoice,
        name: str | None,
    ) -> KTable[K, V]:
        table = derived_table(
            self._table,
            "KTABLE-FILTER-",
            store,
            name,
            TableFilter(predicate, negate),
            partial(FilteredGetter, predicate=predicate, negate=negate),
            keeps_values=True,
        )
        return KTable(table)

    def _joined(
        self,
        operation: str,
        other: KTable[Any, Any],
        joiner: Callable[[Any, Any], Any],
        foreign_key: Callable[..., Any] | None,
        with_key: bool,
        store: StoreChoice,
        name: str | None,
    ) -> KTable[K, Any]:
        if not isinstance(other, KTable):
            raise TypeError(
                f"{operation}() of a table needs another KTable, but got {type(other).__name__}. "
                "To join the changes of a table with a stream, begin with the stream."
            )
        checked_function(operation, "joiner", joiner, "value", "other_value")
        if foreign_key is None:
            if with_key:
                raise TypeError(f"{operation}(with_key=True) needs foreign_key=... as well.")
            return KTable(join_by_key(self._table, other._table, joiner, operation, store, name))
        return KTable(
            foreign_key_join(
                self._table,
                other._table,
                joiner,
                foreign_key=foreign_key,
                with_key=with_key,
                left_join=operation == "left_join",
                store=store,
                name=name,
            )
        )


class KGroupedTable(Hinted, Generic[K, V]):
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

    __slots__ = ("_grouping",)

    def __init__(
        self,
        part: StreamPart,
        key_serde: Serde[K] | None,
        value_serde: Serde[V] | None,
        name: str | None,
    ) -> None:
        known = replace(part, key_serde=key_serde, value_serde=value_serde)
        self._grouping = TableGrouping(known, name)

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
        table = self._grouping.aggregated("KTABLE-AGGREGATE-", store, name, TableCount, LONG)
        return KTable(table)

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
        serde = self._grouping.part.value_serde
        return KTable(self._grouping.aggregated("KTABLE-REDUCE-", store, name, operator, serde))

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
        return KTable(self._grouping.aggregated("KTABLE-AGGREGATE-", store, name, operator, None))


def _check_chain(operation: str, chain: Callable[..., Any] | None) -> None:
    if chain is not None:
        checked_function(operation, "chain", chain, "stream")


def _is_final(strategy: EmitStrategy) -> bool:
    if not isinstance(strategy, EmitStrategy):
        raise TypeError(f"emit_strategy() takes an EmitStrategy, but got {strategy!r}.")
    return strategy is EmitStrategy.ON_WINDOW_CLOSE

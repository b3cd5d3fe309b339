"""Streams, tables and groups of the DSL.

Each class is a thin facade over its part of the logical graph (`stream_part`, `table_access`,
`aggregation`): the methods check their arguments and delegate to the other modules of this package.
The classes share one module because their methods return instances of each other.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Generic, Literal, Protocol, TypeVar, Unpack, overload

from millstream.async_checks import deferred_method_advice
from millstream.errors import TopologyError
from millstream.operators.joins.stream_join import StreamJoiner
from millstream.operators.tables.table_transform import (
    TRANSFORMER_METHODS,
    TransformedGetterSupplier,
)
from millstream.operators.tables.value_getter import FilteredGetterSupplier, MappedGetterSupplier
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.record import K, V
from millstream.serdes import LONG, Serde
from millstream.topology.argument_checks import (
    check_function,
    check_serdes,
    check_topic,
    store_names,
    type_error,
)
from millstream.topology.async_argument_checks import (
    check_thread_count,
    checked_batches,
    checked_concurrency,
    checked_mapper,
    checked_timeout,
)
from millstream.topology.call_site import call_site
from millstream.topology.dsl.aggregation import (
    COGROUP_PREFIX,
    Cogrouping,
    Grouping,
    aggregated_table,
    count_materialized,
    windowed_table,
)
from millstream.topology.dsl.foreign_key_join import foreign_key_join
from millstream.topology.dsl.global_table import GlobalKTable, join_global_table
from millstream.topology.dsl.migration_hints import Hinted, HintedStream, HintedTable
from millstream.topology.dsl.stream_dataframe import add_dataframe_stage, write_to_lake
from millstream.topology.dsl.stream_joins import (
    JOIN_METHODS,
    JoinKind,
    JoinRepartitioning,
    StreamJoinOptions,
    TableJoinOptions,
    check_join_options,
)
from millstream.topology.dsl.stream_part import StreamPart, check_same_builder
from millstream.topology.dsl.stream_process import process
from millstream.topology.dsl.stream_stream_join import join_streams
from millstream.topology.dsl.stream_table_join import join_table
from millstream.topology.dsl.table_access import TablePart
from millstream.topology.dsl.table_aggregation import TableGrouping
from millstream.topology.dsl.table_derived import derived_table, to_table
from millstream.topology.dsl.table_suppress import suppress
from millstream.topology.dsl.table_table_join import join_by_key
from millstream.topology.logical.graph_nodes import (
    BranchGraphNode,
    OperatorGraphNode,
    SinkGraphNode,
    repartition_node,
)
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
from millstream.topology.operations.operation import Operation, TableOperation
from millstream.topology.operations.tables import (
    TableFilter,
    TableMapValues,
    TableToStream,
    TableTransformValues,
)
from millstream.topology.options.lake import LakeFormat, lake_table
from millstream.topology.options.materialized import (
    Materialized,
    StoreChoice,
    key_value_builder,
    materialized,
)
from millstream.topology.options.suppressed import Suppressed
from millstream.topology.options.trigger import Trigger
from millstream.topology.options.windows import (
    AnyWindows,
    EmitStrategy,
    FixedSizeWindows,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
    check_windows,
)
from millstream.topology.physical.java_order import SourceNames
from millstream.topology.physical.nodes import Partitioner
from millstream.topology.physical.windowed_serdes import default_partitioner
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

#: The position of the default branch of a split; other branches are counted from 1.
_DEFAULT_POSITION = 0


class KStream(HintedStream, Generic[K, V]):
    """A stream of records with keys of type K and values of type V.

    Kafka Streams' `KStream`. Created by `StreamsBuilder.stream` or by an operation on another
    stream or table. Operations do not change a stream; they return new streams. Functions must not
    mutate their arguments.

    `name=` names an operation, which otherwise gets a name like `KSTREAM-FILTER-0000000001`. If a
    function raises, the processing exception handler decides how to continue. With `with_key=True`,
    a function is called with the key before the value.

    The examples of the methods use two streams: `clicks`, with pages by user, and `orders`, with
    amounts by customer.

    Example:
        >>> builder = StreamsBuilder()
        >>> lines = builder.stream("lines", key=STRING, value=STRING)
        >>> words = lines.flat_map_values(str.split).group_by(lambda _, word: word, key=STRING)
        >>> words.count(store="counts").to_stream().to("counts", value=LONG)
    """

    __slots__ = ("_part", "_repartitioning")

    def __init__(self, part: StreamPart) -> None:
        self._part = part
        self._repartitioning = JoinRepartitioning()

    def __repr__(self) -> str:
        return self._part.repr_as("KStream")

    def filter(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which the predicate holds.

        Example:
            >>> big = orders.filter(lambda customer, amount: amount > 1_000)
        """
        check_function("filter", "predicate", predicate, "key", "value")
        return self._unchanged("KSTREAM-FILTER-", name, streams.Filter(predicate))

    def filter_not(
        self, predicate: Callable[[K, V], object], *, name: str | None = None
    ) -> KStream[K, V]:
        """Keep the records for which the predicate does not hold.

        Example:
            >>> visits = clicks.filter_not(lambda user, page: page == "/health")
        """
        check_function("filter_not", "predicate", predicate, "key", "value")
        return self._unchanged("KSTREAM-FILTER-", name, streams.Filter(predicate, True))

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call a function for each record and forward the record unchanged.

        Example:
            >>> orders = orders.peek(lambda customer, amount: print(customer, amount))
        """
        check_function("peek", "action", action, "key", "value")
        return self._unchanged("KSTREAM-PEEK-", name, streams.Peek(action))

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """Merge two streams.

        Records are forwarded in the order in which they are processed. The merged stream has no
        serdes, since those of the two streams may differ.

        Raises:
            TopologyError: the streams belong to different builders.

        Example:
            >>> builder = StreamsBuilder()
            >>> everything = builder.stream("europe").merge(builder.stream("asia"))
        """
        if not isinstance(other, KStream):
            raise type_error(f"merge() takes another KStream, but got {other!r}.")
        part, other_part = self._part, other._part
        check_same_builder(part.graph, other_part.graph, "merged")
        node = OperatorGraphNode(
            name=part.graph.names.processor("KSTREAM-MERGE-", name),
            declared_at=call_site(),
            is_merge=True,
            operation=streams.PassThrough(),
        )
        part.graph.attach(node, part.node, other_part.node)
        repartition_required = part.repartition_required or other_part.repartition_required
        sources = part.sources.united(other_part.sources)
        return KStream(StreamPart(part.graph, node, None, None, sources, repartition_required))

    def map(
        self, mapper: Callable[[K, V], tuple[K1, V1]], *, name: str | None = None
    ) -> KStream[K1, V1]:
        """Replace each record.

        The key may change, so a later operation by key repartitions the stream. Use `map_values` if
        the key does not change.

        Example:
            >>> by_size = orders.map(lambda customer, amount: (amount // 100, customer))
        """
        check_function("map", "mapper", mapper, "key", "value")
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
        """Replace each value; the key does not change.

        Args:
            mapper: `value -> value`, or `(key, value) -> value` with `with_key=True`.

        Example:
            >>> lengths = clicks.map_values(len)
            >>> tagged = clicks.map_values(lambda user, page: f"{user}: {page}", with_key=True)
        """
        check_function("map_values", "mapper", mapper, "value", with_key=with_key)
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
        """Replace each value with the result of a function that waits for I/O.

        The function may call a service, a database or a model; the key does not change. Each task
        processes many records concurrently, without a topic in between. An offset is only committed
        when all records before it are completed.

        An `async def` function runs on the event loop of its process, and a plain function on
        threads. If a call raises or times out, the processing exception handler decides how to
        continue. A record is processed again if the process ends before the record's offset is
        committed, so the function should be idempotent.

        Downstream operations process the results in the order in which they are released, and this
        order determines stream time, windows and punctuations. If there is an upstream store in the
        same sub-topology, each commit waits until no record is in flight.

        Args:
            mapper: `async value -> value`, or `async (key, value) -> value` with `with_key=True`;
                or a plain function.
            concurrency: the maximum number of calls in flight per task. Each call, and each of up
                to 500 additional queued records, takes about 650 bytes in addition to the record.
            ordering: `"key"` calls the function for one record per key at a time and preserves the
                order within each key; `"partition"` runs all calls concurrently and preserves the
                order of the input partition; `"none"` preserves no order. Keys need an `__eq__`
                method, which the keys of all built-in serdes have.
            timeout: the time after which a call of an `async def` function is canceled.
            using: a callable that returns a context manager for a resource, such as an HTTP client,
                that all calls in a process share. The mapper is called with the resource as its
                first argument. The context manager is entered before the first record, and exited
                when the last task of the process is closed. For an `async def` function, the
                context manager runs on the event loop and may be asynchronous.

        Raises:
            TypeError: the mapper is not a supported function: it has the wrong signature, or is a
                generator function or a class with callable instances; or `using` cannot return a
                context manager.
            ConfigError: `concurrency` is out of range, `ordering` is unknown, or the timeout is not
                positive or is set for a plain function, which cannot be canceled.

        Example:
            >>> async def looked_up(user):
            ...     await asyncio.sleep(0.01)
            ...     return user.upper()
            >>> names = clicks.map_async(looked_up, concurrency=100, timeout=timedelta(seconds=5))
        """
        operation = streams.MapAsync(
            *checked_mapper("map_async", mapper, with_key=with_key, using=using),
            with_key,
            *checked_concurrency("map_async", concurrency, ordering),
            checked_timeout("map_async", mapper, timeout),
            using,
        )
        check_thread_count("map_async", mapper, concurrency)
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
        """Replace values in batches, with a function from Arrow columns to new values.

        The columns can be passed to NumPy, Polars, DuckDB or a model. Keys, timestamps and
        headers do not change.

        For values that are mappings, dataclasses or msgspec structs, the batch has a column for
        each field; other values form the column `value`. Records without a value bypass the
        function, so the column `value` has no nulls, and numbers convert to NumPy arrays without a
        copy.

        The function must not depend on how records are divided into batches: a batch contains all
        available records up to `max_records`, or a single record if only one is available. The new
        value of a row must depend on that row alone.

        If the function raises or returns a different number of rows, the processing exception
        handler is called for each record of the batch. If the new value of a row is null, it is
        called only for that record.

        A plain function is called in the loop and blocks it. An `async def` function runs on the
        event loop of its process, with the guarantees of `map_async`; results are in the order of
        the records. Requires pyarrow: `pip install 'millstream[arrow]'`.

        Args:
            mapper: takes a `pyarrow.RecordBatch`. Returns a record batch, table, array, dict of
                columns, list, NumPy array, or an object with Arrow's interface, such as a Polars
                frame or DuckDB relation. The elements of an array, or of `value` if it is the only
                column, become the new values; otherwise, each row
                becomes a dict.
            max_records: the maximum number of records in a batch.
            schema: a `pyarrow.Schema` of the columns, or a `pyarrow.DataType` of the column
                `value`. By default, Arrow infers the schema of each batch, so a column may contain
                integers in one batch and floats in the next. Each column must be a field of the
                dataclass or struct; a mapping must contain the columns with `nullable=False`.
            with_key: whether to add a column `key`.
            with_timestamp: whether to add a column `timestamp`.
            concurrency: the maximum number of calls of an `async def` function in flight per task;
                1 by default. One more batch may be waiting.
            timeout: the time after which a call of an `async def` function is canceled.

        Raises:
            TypeError: the mapper is not a supported function, or `schema` is neither a schema nor a
                data type.
            ConfigError: a number is out of range, a name occurs twice in the schema, or an option
                for `async def` functions is set for a plain function.
            ImportError: pyarrow is not installed.

        Example:
            >>> prices = StreamsBuilder().stream("prices", key=STRING, value=DOUBLE)
            >>> with_tax = prices.map_batches(lambda batch: batch["value"].to_numpy() * 1.19)
        """
        batches = streams.MapBatches(mapper, schema, with_key, with_timestamp, max_records)
        operation = checked_batches(batches, concurrency, timeout)
        return self._revalued("KSTREAM-MAPBATCHES-", name, operation)

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K1, V1]]], *, name: str | None = None
    ) -> KStream[K1, V1]:
        """Replace each record with any number of records.

        The keys may change, so a later operation by key repartitions the stream.

        Args:
            mapper: `(key, value) -> iterable of (key, value)`; empty for no record.

        Example:
            >>> words = clicks.flat_map(lambda user, page: [(word, user) for word in page.split()])
        """
        check_function("flat_map", "mapper", mapper, "key", "value", may_yield=True)
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
        """Replace each value with any number of values under the same key.

        Args:
            mapper: `value -> iterable of values`, or `(key, value) -> iterable of values` with
                `with_key=True`.

        Example:
            >>> words = clicks.flat_map_values(str.split)
        """
        check_function(
            "flat_map_values", "mapper", mapper, "value", with_key=with_key, may_yield=True
        )
        operation = streams.FlatMapValues(mapper, with_key)
        return self._revalued("KSTREAM-FLATMAPVALUES-", name, operation)

    def select_key(
        self, mapper: Callable[[K, V], K1], *, name: str | None = None
    ) -> KStream[K1, V]:
        """Replace the key of each record.

        A later operation by key repartitions the stream.

        Example:
            >>> by_hundreds = orders.select_key(lambda customer, amount: amount // 100)
        """
        check_function("select_key", "mapper", mapper, "key", "value")
        return KStream(self._select_key("KSTREAM-KEY-SELECT-", mapper, name))

    def split(self, *, name: str | None = None) -> BranchedKStream[K, V]:
        """Split the stream into branches.

        Each record goes to the first branch that matches.

        Args:
            name: the name of the operation, and the prefix of the branches' names.

        Example:
            >>> branches = orders.split(name="size-").branch(lambda _, n: n > 99, "big")
            >>> sorted(branches.default_branch("small"))
            ['size-big', 'size-small']
        """
        return BranchedKStream(self._part, name)

    def branch(self, *predicates: Callable[[K, V], object]) -> list[KStream[K, V]]:
        """Return one stream for each predicate.

        Each record goes to the stream of the first predicate that holds for it. Records that match
        no predicate are dropped.

        Example:
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
        """Send the records through an internal topic, which is partitioned by key.

        Operations by key do this automatically if necessary. Records without a key are dropped,
        because they belong to no partition.

        Args:
            key: the serde of the topic's keys; by default the serde of the stream.
            value: the serde of the topic's values; by default the serde of the stream.
            partitions: the number of partitions; by default as many as the topics that the stream
                is joined with, or else as many as the upstream topic with the most partitions.
            partitioner: `(topic, key, value, number_of_partitions) -> partition`. It may also
                return a collection of partitions, each of which gets a copy of the record
                (KIP-837), or None for Kafka's default. An empty collection drops the record.
            name: the topic is named `<application.id>-<name>-repartition`.

        Raises:
            TopologyError: the number of partitions is not positive, or the name is not legal.

        Example:
            >>> wide = orders.repartition(partitions=24, name="wide")
        """
        check_serdes("repartition", key=key, value=value)
        if partitions is not None and (not isinstance(partitions, int) or partitions < 1):
            raise TopologyError(
                f"repartition() needs at least 1 partition, but got {partitions!r}.",
                declared_at=call_site(),
            )
        part, names = self._part, self._part.graph.names
        node = repartition_node(
            names,
            names.processor("KSTREAM-REPARTITION-") if name is None else checked_name(name),
            key_serde=key or part.key_serde,
            value_serde=value or part.value_serde,
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
        """Transform the records with a function on Spark's streaming DataFrames.

        The function becomes a separate sub-topology. Its input passes through an internal topic,
        and its output rows return as records through another internal topic, partitioned by key. A
        Structured Streaming query runs the function in the application's Spark session.

        The function is called once, on the driver, when the query starts. Its argument has these
        columns: `key` and `value` with the Spark types of the serdes (the values of `json_of` are
        structs; types without a Spark equivalent are bytes), `timestamp`, `headers`, `partition`
        and `offset`. The returned DataFrame must have the column `key`, and either the column
        `value` or, for a serde of a struct, the fields of the struct; `timestamp` and `headers` are
        optional. Without `timestamp`, records get the time of writing.

        Under exactly-once semantics, a retried batch must produce the same rows: the function must
        be deterministic for the same batch.

        Args:
            function: `(DataFrame) -> DataFrame`. It may refer to objects on the driver, such as
                the DataFrame of a dimension table.
            trigger: when the next batch starts; by default, as soon as records are available.
            key: the serde of the resulting keys; by default the serde of the input keys.
            value: the serde of the resulting values; by default the serde of the input values.
            input_key: the serde of the input keys; by default the serde of the stream.
            input_value: the serde of the input values; by default the serde of the stream.
            name: the topics are named `<application.id>-<name>-dataframe-input-repartition` and
                `<application.id>-<name>-dataframe-output-repartition`.

        Raises:
            TopologyError: the name is missing, not legal or already in use, or the trigger is not
                valid.
            TypeError: the function does not take one argument, or a serde is not a Serde.

        Example:
            >>> loud = clicks.transform_dataframe(
            ...     lambda rows: rows.selectExpr("key", "upper(value) AS value", "timestamp"),
            ...     name="loud",
            ... )
        """
        check_function("transform_dataframe", "function", function, "DataFrame")
        check_serdes(
            "transform_dataframe",
            key=key,
            value=value,
            input_key=input_key,
            input_value=input_value,
        )
        return KStream(
            add_dataframe_stage(
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
        """Append each record as a row to a lake table, exactly once.

        Records pass through an internal topic to a Structured Streaming query, which writes them in
        batches. The columns are `key` and `value` with the Spark types of the serdes, `timestamp`,
        `headers`, and the `_topic`, `_partition` and `_offset` of the original record.

        A batch that is retried after a crash is written to a Delta or Iceberg table only once,
        because the table itself records its batches, identified by the query's checkpoint. For
        Parquet, a log next to the files, `_spark_metadata`, lists the valid files: readers that use
        the log, such as Spark, find each row once; other readers may find rows of retried batches
        twice.

        Args:
            path: the directory of the table, or a URL that Spark's Hadoop supports.
            format: `"parquet"`, `"delta"` or `"iceberg"`.
            partition_by: the columns by which files are partitioned: `"value.country"`,
                `"date(timestamp)"`, or any Spark SQL expression with a name, such as
                `"hour(timestamp) AS hour"`.
            trigger: when the next batch starts; by default, as soon as records are available.
                Longer intervals produce larger files.
            key: the serde of the keys; by default the serde of the stream.
            value: the serde of the values; by default the serde of the stream.
            files_per_batch: the maximum number of files that a batch writes per table partition.
            compact_every: for Delta, compact small files (OPTIMIZE) after this number of batches; 0
                for never.
            name: the internal topic is named `<application.id>-<name>-dataframe-input-repartition`.

        Raises:
            TopologyError: the name or an option is not valid.

        Example:
            >>> clicks.to_lake("/lake/clicks", format="delta", partition_by=["date(timestamp)"],
            ...                trigger=Trigger.processing_time("1 minute"), name="clicks-to-lake")
        """
        check_serdes("to_lake", key=key, value=value)
        table = lake_table(
            path,
            format,
            partition_by,
            upserts=False,
            files_per_batch=files_per_batch,
            compact_every=compact_every,
        )
        write_to_lake(self._part, table, name, trigger, key, value)

    def group_by_key(
        self, *, key: Serde[K] | None = None, value: Serde[V] | None = None, name: str | None = None
    ) -> KGroupedStream[K, V]:
        """Group the records by their key for aggregation.

        Args:
            key: the serde of the keys; by default the serde of the stream.
            value: the serde of the values; by default the serde of the stream.
            name: the name of the repartition topic, if one is needed.

        Example:
            >>> per_user = clicks.group_by_key().count(store="clicks-per-user")
        """
        explicit = None if name is None else checked_name(name)
        return KGroupedStream(self._part, key, value, explicit)

    def group_by(
        self,
        selector: Callable[[K, V], K1],
        *,
        key: Serde[K1] | None = None,
        value: Serde[V] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K1, V]:
        """Group the records by a new key for aggregation. This repartitions the stream.

        Args:
            key: the serde of the new keys; by default the config's `default_key_serde`.
            value: the serde of the values; by default the serde of the stream.
            name: the name of the operation and the repartition topic.

        Example:
            >>> per_page = clicks.group_by(lambda user, page: page, key=STRING).count()
        """
        check_function("group_by", "selector", selector, "key", "value")
        part = self._select_key("KSTREAM-KEY-SELECT-", selector, name)
        return KGroupedStream(part, key, value, name)

    def for_each(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call a function for each record; the stream ends here.

        Example:
            >>> clicks.for_each(lambda user, page: print(user, page))
        """
        check_function("for_each", "action", action, "key", "value")
        self._attach("KSTREAM-FOREACH-", name, streams.ForEach(action))

    def print(
        self, label: str | None = None, *, file: str | None = None, name: str | None = None
    ) -> None:
        """Print each record as `[label]: key, value`; the stream ends here.

        Args:
            label: by default the name of the preceding operation.
            file: the path of a file on the worker to append to; by default standard output.

        Example:
            >>> clicks.print("click")
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
            key: the serde of the keys; by default the serde of the stream, or else the config's
                `default_key_serde`.
            value: the serde of the values; by default the serde of the stream, or else the config's
                `default_value_serde`.
            partitioner: `(topic, key, value, number_of_partitions) -> partition`. It may also
                return a collection of partitions, each of which gets a copy of the record
                (KIP-837), or None for Kafka's default. An empty collection drops the record.

        Raises:
            TopologyError: the topic's name is not legal in Kafka.

        Example:
            >>> clicks.to(lambda user, page, context: f"clicks-{len(page)}")
            >>> clicks.map_values(len).to("lengths", value=INTEGER)
        """
        check_topic("to", topic)
        check_serdes("to", key=key, value=value)
        part = self._part
        key_serde = key or part.key_serde
        node = SinkGraphNode(
            name=part.graph.names.processor("KSTREAM-SINK-", name),
            declared_at=call_site(),
            topic=topic,
            key_serde=key_serde,
            value_serde=value or part.value_serde,
            partitioner=partitioner or default_partitioner(key_serde),
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
        """Convert the stream to a table: each record is the new value of its key.

        A record without a value deletes its key; a record without a key is dropped. If keys may
        have changed, this repartitions the stream. The table is stored if `store=` names a store,
        or if an operation needs to look up its rows.

        Args:
            key: the serde of the keys; by default the serde of the stream.
            value: the serde of the values; by default the serde of the stream.
            name: the name of the operation, and of the repartition topic if one is needed.

        Raises:
            TopologyError: the store is not valid, or the name is not legal.

        Example:
            >>> latest = clicks.to_table(store="latest-page")
        """
        check_serdes("to_table", key=key, value=value)
        return KTable(to_table(self._part, key=key, value=value, store=store, name=name))

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K1, V1]],
        *,
        stores: str | Sequence[str] = (),
        name: str | None = None,
    ) -> KStream[K1, V1]:
        """Run a `Processor` on each record; return the stream of forwarded records.

        The keys may change, so a later operation by key repartitions the stream. Use
        `process_values` if they do not change.

        Args:
            supplier: a class or function that returns a new processor for each call. If it has a
                method `stores()`, the store builders that the method returns are added and
                connected.
            stores: the names of the stores to connect, which were added with
                `StreamsBuilder.add_state_store` or belong to tables. Global stores do not
                need to be connected.
            name: the name of the operation. An upstream processor can use it to forward records
                only to this operation.

        Raises:
            TopologyError: the supplier returns no processor, or returns the same processor twice.
                From `build()`: a store is unknown.

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
        """Run a `FixedKeyProcessor` on each record.

        Returns the stream of forwarded records.

        Args:
            supplier: as for `process`.
            stores: as for `process`.

        Raises:
            TopologyError: as for `process`.

        Example:
            >>> class Age(FixedKeyProcessor[str, str, str]):
            ...     def process(self, record):
            ...         age_ms = self.context.current_stream_time_ms() - record.timestamp
            ...         self.context.forward(record.with_value(f"{record.value}, {age_ms} ms old"))
            >>> aged = clicks.process_values(Age, name="age")
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
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2], R],
        *,
        with_key: Literal[False] = False,
        **options: Unpack[TableJoinOptions[K, V, V2]],
    ) -> KStream[K, R]: ...
    @overload
    def join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2], R],
        *,
        with_key: Literal[True],
        **options: Unpack[TableJoinOptions[K, V, V2]],
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
        """Join the stream with another stream, a table or a global table.

        Records of two streams match if they have the same key and their timestamps are close enough
        (`windows`). With a table, a record is joined with the current row of its key; with a global
        table, with the row whose key `key_selector` returns. Records without a partner are dropped,
        and so are records without a value and records without a key (with a global table, those for
        which `key_selector` returns None). If keys may have changed, the stream is
        repartitioned first, except for a join with a global table.

        Kafka Streams' `KStream.join`. See docs/build/joins.md for nulls and timestamps.

        Args:
            other: a stream, a table or a global table of the same builder.
            joiner: `(value, other_value) -> value`, or `(key, value, other_value) -> value` with
                `with_key=True`.
            windows: for streams only, the maximum time difference between two records.
            name: the name of the operation, its nodes, and its repartition topics.
            options: for streams and tables, the serdes `key`, `value` and `other_value`, by default
                those of the two sides. A join with a stream also takes `store_name`, the prefix of
                the stores' names; `this_store` and `other_store`, window stores from `Stores` to
                use instead; and `logging`, False or the config of the stores' changelogs. A join
                with a versioned table also takes `grace`, a timedelta for which records wait for
                changes of the table. A join with a global table only takes `key_selector`,
                `(key, value) -> key of the table`.

        Raises:
            TopologyError: the two sides belong to different builders, a store does not fit the
                join, or the grace period is not valid.
            TypeError: the type of the other side or an option is not supported, or a required
                option is missing.

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
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], R],
        *,
        with_key: Literal[False] = False,
        **options: Unpack[TableJoinOptions[K, V, V2]],
    ) -> KStream[K, R]: ...
    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[K, V, V2 | None], R],
        *,
        with_key: Literal[True],
        **options: Unpack[TableJoinOptions[K, V, V2]],
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
        """Like `join`, but join records without a partner with None.

        With a stream, the result is emitted once no partner can arrive anymore: when stream time
        has passed the end of the window by the grace period. With a table, it is emitted
        immediately. A record without a key never has a partner (with a global table, a record for
        which `key_selector` returns None); a record without a value is still dropped.

        Raises the same errors as `join`. Kafka Streams' `KStream.leftJoin`. See docs/build/joins.md
        for nulls and timestamps.

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
        **options: Unpack[StreamJoinOptions[K, V, V2]],
    ) -> KStream[K, R]: ...
    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], R],
        windows: JoinWindows,
        *,
        with_key: Literal[True],
        **options: Unpack[StreamJoinOptions[K, V, V2]],
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
        """Join two streams, and emit the unmatched records of both.

        Like `left_join` with a stream, but unmatched records of the other stream are emitted too.
        Either value passed to the joiner may be None, but not both. Kafka Streams'
        `KStream.outerJoin`. See docs/build/joins.md for nulls and timestamps.

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

    # ---- internals

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
        check_function(operation, "joiner", joiner, "value", "other_value", with_key=with_key)
        if windows is not None:
            options["windows"] = windows
        check_join_options(operation, other, kind, options)
        part = self._part
        common: dict[str, Any] = {"left": kind == "left", "with_key": with_key, "name": name}
        if isinstance(other, KStream):
            check_same_builder(part.graph, other._part.graph, "joined")
            return KStream(self._join_stream(kind, other, joiner, with_key, name, **options))
        if isinstance(other, KTable):
            table = other._table
            check_same_builder(part.graph, table.part.graph, "joined")
            part = self._repartitioning.repartitioned(
                part, name, options.get("key"), options.get("value")
            )
            return KStream(join_table(part, table, joiner, **common, **options))
        check_same_builder(part.graph, other._graph, "joined")
        return KStream(join_global_table(part, other, joiner, **common, **options))

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
        part = self._repartitioning.repartitioned(self._part, left, key, value)
        other_part = other._repartitioning.repartitioned(other._part, right, key, other_value)
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

    def _unchanged(self, prefix: str, name: str | None, operation: Operation) -> KStream[K, V]:
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
    """The result of `KStream.split`, to which branches are added (KIP-418).

    A record goes to the first branch whose predicate holds, or else to the default branch; without
    a default branch, it is silently dropped. The name of a branch is the name of the split followed
    by the branch's own name or its position, counted from 1; the default branch has position 0.

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
            name: appended to the name of the split.
            chain: called with the branch's stream. The stream that it returns replaces the branch
                in the result; if it returns None, the branch is left out.

        Example:
            >>> split = orders.split().branch(lambda _, n: n > 99, chain=lambda big: big.to("big"))
            >>> split.no_default_branch()
            {}
        """
        check_function("branch", "predicate", predicate, "key", "value")
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
        """Add a branch for all other records; return the branches by name.

        Args:
            name: appended to the name of the split.
            chain: as for `branch`.

        Example:
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
        """Return the branches by name. Records that match no branch are dropped.

        Example:
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
        self, part: StreamPart, chain: Callable[[KStream[K, V]], KStream[K, V] | None] | None
    ) -> None:
        branch: KStream[K, V] = KStream(part)
        stream = branch if chain is None else chain(branch)
        if stream is not None:
            self._streams[part.name] = stream


class KGroupedStream(Hinted, Generic[K, V]):
    """Records grouped by key, for aggregation (Kafka Streams' `KGroupedStream`).

    Created by `KStream.group_by` and `KStream.group_by_key`. If keys may have changed, each
    aggregation first sends the records through a repartition topic; the aggregations of a named
    grouping share one topic. Records without a key or value are dropped.

    The aggregates are stored in a state store, which can be queried if `store=` names it: with a
    string, a `Materialized` that has a name, or a supplier from `Stores`.

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
        check_serdes("group_by", key=key_serde, value=value_serde)
        self._grouping = Grouping(part.with_serdes(key_serde, value_serde), name)

    def count(
        self, *, store: StoreChoice[K, int] = None, name: str | None = None
    ) -> KTable[K, int]:
        """Count the records of each key.

        Args:
            store: the store of the counts, whose serde is LONG unless the store specifies another
                serde.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> clicks.group_by_key().count().to_stream().to("clicks-per-user")
        """
        choice = count_materialized(self._grouping, store)
        return self._aggregated(_AGGREGATE, choice, name, StreamCount, LONG)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each key. The first value of a key is used as is.

        Args:
            reducer: `(aggregate, value) -> aggregate`; None deletes the key.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> largest = orders.group_by_key().reduce(max)
        """
        check_function("reduce", "reducer", reducer, "aggregate", "value")
        operation = partial(StreamReduce, reducer=reducer)
        value_serde = self._grouping.part.value_serde
        return self._aggregated(_REDUCE, materialized(store), name, operation, value_serde)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Aggregate the values of each key into a result of any type.

        Args:
            initializer: `() -> aggregate`, called for a key without an aggregate.
            aggregator: `(key, value, aggregate) -> aggregate`; None deletes the key.
            store: the store of the aggregates. It should specify the serde of the values, which is
                otherwise the config's `default_value_serde`.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> totals = orders.group_by_key().aggregate(
            ...     lambda: 0,
            ...     lambda customer, amount, total: total + amount,
            ...     store=Materialized("totals", value=LONG),
            ... )
        """
        check_function("aggregate", "initializer", initializer)
        check_function("aggregate", "aggregator", aggregator, "key", "value", "aggregate")
        operation = partial(StreamAggregate, initializer=initializer, aggregator=aggregator)
        return self._aggregated(_AGGREGATE, materialized(store), name, operation, None)

    @overload
    def windowed_by(
        self, windows: TimeWindows | UnlimitedWindows | SlidingWindows
    ) -> TimeWindowedKStream[K, V]: ...
    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream[K, V]: ...
    def windowed_by(
        self, windows: AnyWindows
    ) -> TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V]:
        """Group the records by windows as well as by key.

        Example:
            >>> per_user = clicks.group_by_key()
            >>> hourly = per_user.windowed_by(TimeWindows(timedelta(hours=1))).count()
        """
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._grouping, windows)
        return TimeWindowedKStream(self._grouping, windows)

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Aggregate this stream with others that are grouped by the same key (KIP-150).

        Args:
            aggregator: `(key, value, aggregate) -> aggregate` for the records of this stream.

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
        table = aggregated_table(self._grouping, prefix, choice, name, operation, value_serde)
        return KTable(table)


class TimeWindowedKStream(Hinted, Generic[K, V]):
    """Records grouped by key and windows of a fixed size.

    Created by `KGroupedStream.windowed_by` (Kafka Streams' `TimeWindowedKStream`). Each aggregation
    returns a table with keys of type `Windowed`: the key and a window. Late records, which arrive
    after the grace period of their window, are dropped. Records without a key are dropped as well.
    Records without a value are dropped for sliding windows; for other windows, the aggregator is
    called with None.

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
        """Set when results are sent downstream; return this object.

        By default, a result is sent for each update.

        Raises:
            TopologyError: the strategy waits for the end of unlimited windows, which never end.

        Example:
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
        """Count the records of each key in each window.

        Args:
            store: the store of the counts, whose serde is LONG unless the store specifies another
                serde.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the windows.

        Example:
            >>> windows = TimeWindows(timedelta(hours=1), grace=timedelta(minutes=5))
            >>> counts = clicks.group_by_key().windowed_by(windows).count(store="hourly")
        """
        # As in Kafka Streams, a store without a name takes only one number for sliding windows.
        is_sliding = isinstance(self._windows, SlidingWindows)
        choice = materialized(store) if is_sliding else count_materialized(self._grouping, store)
        return _windowed_aggregate(self, _AGGREGATE, choice, name, WindowCount, LONG)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key in each window. The first value is used as is.

        Args:
            reducer: `(aggregate, value) -> aggregate`; None deletes the window.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the windows.

        Example:
            >>> ten_minutes = TimeWindows(timedelta(minutes=10), advance=timedelta(minutes=1))
            >>> largest = orders.group_by_key().windowed_by(ten_minutes).reduce(max)
        """
        check_function("reduce", "reducer", reducer, "aggregate", "value")
        operation = partial(WindowReduce, reducer=reducer)
        value_serde = self._grouping.part.value_serde
        return _windowed_aggregate(self, _REDUCE, materialized(store), name, operation, value_serde)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Aggregate the values of each key in each window into a result of any type.

        Args:
            initializer: `() -> aggregate`, called for a window without an aggregate.
            aggregator: `(key, value, aggregate) -> aggregate`; None deletes the window.
            store: the store of the aggregates. It should specify the serde of the values, which is
                otherwise the config's `default_value_serde`.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the windows.

        Example:
            >>> daily = orders.group_by_key().windowed_by(TimeWindows(timedelta(days=1)))
            >>> totals = daily.aggregate(
            ...     lambda: 0,
            ...     lambda customer, amount, total: total + amount,
            ...     store=Materialized("daily-totals", value=LONG),
            ... )
        """
        check_function("aggregate", "initializer", initializer)
        check_function("aggregate", "aggregator", aggregator, "key", "value", "aggregate")
        operation = partial(WindowAggregate, initializer=initializer, aggregator=aggregator)
        return _windowed_aggregate(self, _AGGREGATE, materialized(store), name, operation, None)


class SessionWindowedKStream(Hinted, Generic[K, V]):
    """Records grouped by key and by sessions.

    Kafka Streams' `SessionWindowedKStream`. Created by `KGroupedStream.windowed_by`. Each
    aggregation returns a table with keys of type `Windowed`: the key and a session, which starts
    and ends with a record. When a session grows, its key changes: the table deletes the old session
    and emits the new one. Records that arrive after the grace period are dropped, and so are
    records without a key.

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
        """Set when results are sent downstream; return this object.

        By default, a result is sent for each update.

        Example:
            >>> visits = clicks.group_by_key().windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> final = visits.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count()
        """
        self._emit_final = _is_final(strategy)
        return self

    def count(
        self, *, store: StoreChoice[K, int] = None, name: str | None = None
    ) -> KTable[Windowed[K], int]:
        """Count the records of each session.

        Args:
            store: the store of the counts, whose serde is LONG unless the store specifies another
                serde.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the sessions.

        Example:
            >>> visits = clicks.group_by_key().windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> lengths = visits.count(store="clicks-per-visit")
        """
        choice = count_materialized(self._grouping, store)
        return _windowed_aggregate(self, _AGGREGATE, choice, name, SessionCount, LONG)

    def reduce(
        self,
        reducer: Callable[[V, V], V],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each session. The first value is used as is.

        Args:
            reducer: `(aggregate, value) -> aggregate`, also called for the aggregates of two
                sessions that are merged; None deletes the session.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the sessions.

        Example:
            >>> visits = orders.group_by_key().windowed_by(SessionWindows(timedelta(minutes=1)))
            >>> largest = visits.reduce(max)
        """
        check_function("reduce", "reducer", reducer, "aggregate", "value")
        operation = partial(SessionReduce, reducer=reducer)
        value_serde = self._grouping.part.value_serde
        return _windowed_aggregate(self, _REDUCE, materialized(store), name, operation, value_serde)

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        session_merger: Callable[[K, A, A], A],
        *,
        store: StoreChoice[K, A] = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Aggregate the values of each session into a result of any type.

        Args:
            initializer: `() -> aggregate`; called for each record, before sessions are merged.
            aggregator: `(key, value, aggregate) -> aggregate`; None deletes the session.
            session_merger: `(key, one, other) -> aggregate` for two sessions that are merged; `one`
                is initially the result of the initializer.
            store: the store of the aggregates. It should specify the serde of the values, which is
                otherwise the config's `default_value_serde`.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the sessions.

        Example:
            >>> visits = orders.group_by_key().windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> totals = visits.aggregate(
            ...     lambda: 0,
            ...     lambda customer, amount, total: total + amount,
            ...     lambda customer, one, other: one + other,
            ...     store=Materialized("visit-totals", value=LONG),
            ... )
        """
        check_function("aggregate", "initializer", initializer)
        check_function("aggregate", "aggregator", aggregator, "key", "value", "aggregate")
        check_function("aggregate", "session_merger", session_merger, "key", "one", "other")
        operation = partial(
            SessionAggregate, initializer=initializer, aggregator=aggregator, merger=session_merger
        )
        return _windowed_aggregate(self, _AGGREGATE, materialized(store), name, operation, None)


def _windowed_aggregate(
    stream: TimeWindowedKStream[K, V] | SessionWindowedKStream[K, V],
    prefix: str,
    choice: Materialized[Any, Any],
    name: str | None,
    operation: Callable[..., WindowedAggregation | SessionAggregation],
    value_serde: Serde[Any] | None,
) -> KTable[Windowed[K], Any]:
    grouping, windows, emit_final = stream._grouping, stream._windows, stream._emit_final
    table = windowed_table(
        grouping, prefix, choice, name, windows, operation, value_serde, emit_final
    )
    return KTable(table)


class CogroupedKStream(Hinted, Generic[K, A]):
    """Grouped streams that are aggregated together.

    Kafka Streams' `CogroupedKStream`. Created by `KGroupedStream.cogroup`. Each stream has its own
    aggregator; all aggregators update one aggregate per key, in one store. The result is the same
    as with an outer join of one table per stream, but there is a single store instead of one for
    each table.

    The topics of all streams must have the same number of partitions.

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
        check_function("cogroup", "aggregator", aggregator, "key", "value", "aggregate")
        self._cogrouping = Cogrouping(grouping, aggregator)

    def cogroup(
        self, grouped: KGroupedStream[K, V1], aggregator: Callable[[K, V1, A], A]
    ) -> CogroupedKStream[K, A]:
        """Add another grouped stream with its own aggregator; return this object.

        The keys of all grouped streams must have the same type.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
            >>> views = builder.stream("views", key=STRING, value=STRING).group_by_key()
            >>> both = clicks.cogroup(lambda user, click, total: total + 10)
            >>> both = both.cogroup(views, lambda user, view, total: total + 1)
        """
        check_function("cogroup", "aggregator", aggregator, "key", "value", "aggregate")
        if not isinstance(grouped, KGroupedStream):
            raise type_error(
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
        """Aggregate the values of each key, from all streams, into one result.

        Args:
            initializer: `() -> aggregate`, called for a key without an aggregate.
            store: the store of the aggregates. It should specify the serde of the values, which is
                otherwise the config's `default_value_serde`.
            name: the name of the operation: its nodes are named `<name>-cogroup-agg-0` and so on,
                and `<name>-cogroup-merge`.

        Raises:
            TopologyError: the store is not valid. From `build()`: a name is already in use. If the
                keys of several streams may have changed, at most one of these groups may be
                unnamed.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING).group_by_key()
            >>> views = builder.stream("views", key=STRING, value=STRING).group_by_key()
            >>> both = clicks.cogroup(lambda user, click, total: total + 10)
            >>> both = both.cogroup(views, lambda user, view, total: total + 1)
            >>> points = both.aggregate(int, store=Materialized("points", value=LONG))
        """
        check_function("aggregate", "initializer", initializer)
        choice, first = materialized(store), self._cogrouping.first
        builder = key_value_builder(
            choice, first.graph.names, COGROUP_PREFIX, key_serde=first.key_serde, value_serde=None
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
        """Group the records by windows as well as by key.

        Example:
            >>> points = clicks.group_by_key().cogroup(lambda user, click, total: total + 10)
            >>> hourly = points.windowed_by(TimeWindows(timedelta(hours=1)))
        """
        check_windows(windows)
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._cogrouping, windows)
        return TimeWindowedCogroupedKStream(self._cogrouping, windows)


class TimeWindowedCogroupedKStream(Hinted, Generic[K, A]):
    """Grouped streams that are aggregated together in windows of a fixed size.

    Created by `CogroupedKStream.windowed_by` (Kafka Streams' `TimeWindowedCogroupedKStream`).

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
        """Aggregate the values of each key and window, from all streams, into one result.

        Args:
            initializer: `() -> aggregate`, called for a window without an aggregate.
            store: the store of the aggregates. It should specify the serde of the values, which is
                otherwise the config's `default_value_serde`.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the windows.

        Example:
            >>> points = clicks.group_by_key().cogroup(lambda user, click, total: total + 10)
            >>> hourly = points.windowed_by(TimeWindows(timedelta(hours=1)))
            >>> table = hourly.aggregate(int, store=Materialized("hourly", value=LONG))
        """
        check_function("aggregate", "initializer", initializer)
        windows = self._windows
        table = self._cogrouping.windowed(
            materialized(store),
            name,
            windows,
            lambda store, aggregator: WindowAggregate(store, windows, initializer, aggregator),
        )
        return KTable(table)


class SessionWindowedCogroupedKStream(Hinted, Generic[K, A]):
    """Grouped streams that are aggregated together in sessions.

    Created by `CogroupedKStream.windowed_by` (Kafka Streams' `SessionWindowedCogroupedKStream`).

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
        """Aggregate the values of each session, from all streams, into one result.

        Args:
            initializer: `() -> aggregate`; called for each record, before sessions are merged.
            session_merger: `(key, one, other) -> aggregate` for two sessions that are merged; `one`
                is initially the result of the initializer.
            store: the store of the aggregates. It should specify the serde of the values, which is
                otherwise the config's `default_value_serde`.

        Raises:
            TopologyError: the store is not valid, or its retention is too short for the sessions.

        Example:
            >>> points = clicks.group_by_key().cogroup(lambda user, click, total: total + 10)
            >>> visits = points.windowed_by(SessionWindows(timedelta(minutes=30)))
            >>> table = visits.aggregate(
            ...     int, lambda user, one, other: one + other, store=Materialized(value=LONG)
            ... )
        """
        check_function("aggregate", "initializer", initializer)
        check_function("aggregate", "session_merger", session_merger, "key", "one", "other")
        windows = self._windows
        table = self._cogrouping.windowed(
            materialized(store),
            name,
            windows,
            lambda store, aggregator: SessionAggregate(
                store, windows, initializer, aggregator, session_merger
            ),
        )
        return KTable(table)


class ValueTransformer(Protocol[KIn, VIn, VOut]):
    """The interface for `KTable.transform_values`.

    The methods `init(context)` and `close()` are optional.
    """

    def transform(self, key: KIn, value: VIn | None) -> VOut:
        """Return the new value of a row; called with None for rows that are deleted."""


class KTable(HintedTable, Generic[K, V]):
    """A table with keys of type K and values of type V (Kafka Streams' `KTable`).

    Created by `StreamsBuilder.table`, `KStream.to_table`, an aggregation, or an operation on
    another table. A record contains the new value of its key; a record without a value deletes the
    key. Functions are not called for deleted keys unless noted otherwise.

    The examples of the methods use three tables: `prices` by item, and `names` and `cities` by
    user.

    If `store=` names a store, the result of an operation is stored in it and can be queried;
    otherwise, rows are computed when they are read.

    Attributes:
        queryable_store_name: the store in which the table can be queried; None if the table has no
            store or the name of its store is generated.

    Example:
        >>> clicks = StreamsBuilder().stream("clicks", key=STRING, value=STRING)
        >>> per_user = clicks.group_by_key().count()
        >>> per_user.filter(lambda user, n: n > 9).to_stream().to("busy-users")
    """

    __slots__ = ("_table", "queryable_store_name")

    def __init__(self, table: TablePart) -> None:
        self._table = table
        self.queryable_store_name: str | None = table.queryable_store_name

    def __repr__(self) -> str:
        return self._table.part.repr_as("KTable", store=self.queryable_store_name)

    def filter(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the rows for which the predicate holds.

        Rows that no longer match are deleted.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> cheap = prices.filter(lambda item, price: price < 10, store="cheap")
        """
        check_function("filter", "predicate", predicate, "key", "value")
        return self._filtered(predicate, False, store, name)

    def filter_not(
        self,
        predicate: Callable[[K, V], object],
        *,
        store: StoreChoice[K, V] = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Keep the rows for which the predicate does not hold.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> for_sale = prices.filter_not(lambda item, price: price == 0)
        """
        check_function("filter_not", "predicate", predicate, "key", "value")
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
        """Replace the value of each row.

        Rows for which the mapper returns None are deleted.

        Args:
            mapper: `value -> value`, or `(key, value) -> value` with `with_key=True`. Without a
                store, the mapper may be called each time a row is read.
            store: the store of the result, if any. It should specify the serde of the new values,
                which is otherwise the config's `default_value_serde`.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> lengths = names.map_values(len, store=Materialized("lengths", value=LONG))
        """
        check_function("map_values", "mapper", mapper, "value", with_key=with_key)
        operation = TableMapValues(mapper, with_key)
        getter = partial(MappedGetterSupplier, mapper=mapper, with_key=with_key)
        prefix = "KTABLE-MAPVALUES-"
        return KTable(derived_table(self._table, prefix, store, name, operation, getter))

    def transform_values(
        self,
        supplier: Callable[[], ValueTransformer[K, V, V1 | None]],
        *,
        stores: str | Sequence[str] = (),
        store: StoreChoice[K, V1] = None,
        name: str | None = None,
    ) -> KTable[K, V1]:
        """Replace the value of each row with a stateful transformer.

        Kafka Streams' `KTable.transformValues`.

        Args:
            supplier: a callable that returns a new transformer for each task and each use of the
                table. The transformer has a method `transform(key, value) -> value`, which is also
                called for deleted rows, and may have `init(context)` and `close()`. The context
                provides access to the stores, but cannot forward records.
            stores: the names of the stores that the transformer uses, or a single name. The stores
                are added with `StreamsBuilder.add_state_store`.
            store: the store of the result, if any. Without a store, the transformer is also called
                each time a row is read.

        Raises:
            TopologyError: a store is not valid.

        Example:
            >>> class Shout:
            ...     def transform(self, key, value):
            ...         return None if value is None else value.upper()
            >>> loud = names.transform_values(Shout)
        """
        check_function("transform_values", "supplier", supplier)
        if isinstance(supplier, type) and not hasattr(supplier, "transform"):
            raise type_error(
                f"transform_values() needs objects with a method transform(key, value), but "
                f"{supplier.__qualname__} has no such method."
            )
        advice = deferred_method_advice(supplier, TRANSFORMER_METHODS)
        if isinstance(supplier, type) and advice is not None:
            raise type_error(advice)
        table = derived_table(
            self._table,
            "KTABLE-TRANSFORMVALUES-",
            store,
            name,
            TableTransformValues(supplier),
            partial(TransformedGetterSupplier, supplier=supplier),
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
        """Convert the changes of the table to a stream.

        A deletion becomes a record without a value.

        Args:
            key_selector: `(key, value) -> key` to replace the keys of the records, as with
                `KStream.select_key`.

        Example:
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
        """Keep a lake table in sync with this table, with one row per key.

        Like `KStream.to_lake`, but a batch replaces the previous row of each key with its latest
        value, and a deleted key deletes its row. The columns are `key`, `value` and `timestamp`.
        Delta merges the changes. For Iceberg, the new rows are written together with a list of keys
        whose older rows are deleted (equality deletes). Reads apply these deletes until an engine
        of your choice compacts the table.

        Args:
            format: `"delta"` or `"iceberg"`. Parquet cannot replace rows.
            partition_by: as for `KStream.to_lake`, but for Delta only.
            trigger: when the next batch starts; by default, as soon as changes are available.
            key: the serde of the keys; by default the serde of the table.
            value: the serde of the values; by default the serde of the table.

        Raises:
            TopologyError: as for `KStream.to_lake`, or the format cannot replace rows.

        Example:
            >>> counts = clicks.group_by_key().count(name="counts")
            >>> counts.to_lake("/lake/counts", format="delta", name="counts-to-lake")
        """
        check_serdes("to_lake", key=key, value=value)
        table = lake_table(
            path,
            format,
            partition_by,
            upserts=True,
            files_per_batch=files_per_batch,
            compact_every=compact_every,
        )
        write_to_lake(self.to_stream()._part, table, name, trigger, key, value)

    def group_by(
        self,
        selector: Callable[[K, V], tuple[K1, V1] | None],
        *,
        key: Serde[K1] | None = None,
        value: Serde[V1] | None = None,
        name: str | None = None,
    ) -> KGroupedTable[K1, V1]:
        """Group the rows by another key for aggregation. This repartitions the table.

        Args:
            selector: `(key, value) -> (group, value in the group)`. If the result, the group or the
                value is None, the row is in no group.
            key: the serde of the groups; by default the config's `default_key_serde`.
            value: the serde of the values in the groups; by default the config's
                `default_value_serde`.
            name: the name of the operation and the repartition topic.

        Example:
            >>> users = cities.group_by(lambda user, city: (city, user), key=STRING, value=STRING)
        """
        check_function("group_by", "selector", selector, "key", "value")
        check_serdes("group_by", key=key, value=value)
        part = self._table.part
        node = TableGraphNode(
            name=part.graph.names.processor("KTABLE-SELECT-", name),
            declared_at=call_site(),
            operation=TableSelect(selector),
        )
        part.graph.attach(node, part.node)
        self._table.access.send_old_values(True)
        explicit = None if name is None else checked_name(name)
        return KGroupedTable(replace(part, node=node), key, value, explicit)

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
        """Join this table with another table. Rows without a partner have no result.

        A change of either table updates the result. Without a foreign key, rows with equal keys are
        joined, and the topics of both tables must have the same number of partitions. With a
        foreign key, a row of this table is joined with the row of the other table whose key
        `foreign_key` returns, and the result has the keys of this table.

        Kafka Streams' `KTable.join`. Out-of-order changes of a versioned table are dropped.

        Args:
            joiner: `(value, other_value) -> value`; a value of None means no row.
            foreign_key: `value -> key of the other table`, or `(key, value) -> key of the other
                table` with `with_key=True`; None for a row that refers to no other row.
            store: the store of the result, if any. It should specify the serde of the values.

        Raises:
            TopologyError: the tables belong to different builders, or the store is not valid.

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
        """Like `join`, but join rows of this table without a partner with None.

        Raises the same errors as `join`. Kafka Streams' `KTable.leftJoin`.

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
        """Like `join`, but join rows of either table without a partner with None.

        Raises the same errors as `join`. Kafka Streams' `KTable.outerJoin`.

        Example:
            >>> builder = StreamsBuilder()
            >>> web = builder.table("web-visits", key=STRING, value=LONG)
            >>> app = builder.table("app-visits", key=STRING, value=LONG)
            >>> visits = web.outer_join(app, lambda one, other: (one or 0) + (other or 0))
        """
        return self._joined("outer_join", other, joiner, None, False, store, name)

    def suppress(self, suppressed: Suppressed, *, name: str | None = None) -> KTable[K, V]:
        """Suppress changes until their window closes or a time limit is reached.

        Only the latest change of a key is emitted, as soon as stream time (the largest timestamp
        that this operation has received) reaches the limit. If no more records arrive, no more
        changes are emitted. Suppressed changes are in memory and, unless logging is disabled, in a
        changelog from which they are restored.

        Kafka Streams' `KTable.suppress`.

        Args:
            suppressed: from `Suppressed.until_window_closes` or `Suppressed.until_time_limit`.
            name: the name of the operation, unless `suppressed` has a name; the store is named
                `<name>-store`.

        Raises:
            TopologyError: the changes should be suppressed until their windows close, but the table
                is not windowed; the table is versioned; or the name is not legal.

        Example:
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

    # ---- internals

    def _filtered(
        self,
        predicate: Callable[[K, V], object],
        negate: bool,
        store: StoreChoice,
        name: str | None,
    ) -> KTable[K, V]:
        operation = TableFilter(predicate, negate)
        getter = partial(FilteredGetterSupplier, predicate=predicate, negate=negate)
        prefix = "KTABLE-FILTER-"
        return KTable(
            derived_table(self._table, prefix, store, name, operation, getter, keeps_values=True)
        )

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
                "To join a stream with a table, call join() on the stream."
            )
        check_function(operation, "joiner", joiner, "value", "other_value")
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
    """Rows of a table grouped by another key, for aggregation (`KGroupedTable`).

    Created by `KTable.group_by`. When a row changes, its old value is removed from the aggregate of
    its old group, and its new value is added to the aggregate of its new group. `reduce` and
    `aggregate` therefore take a function for each of these steps. The changes pass through a
    repartition topic; the aggregations of a named grouping share one topic. Rows whose group or
    value is None belong to no group.

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
        grouped = replace(part, key_serde=key_serde, value_serde=value_serde)
        self._grouping = TableGrouping(grouped, name)

    def count(
        self, *, store: StoreChoice[K, int] = None, name: str | None = None
    ) -> KTable[K, int]:
        """Count the rows of each group.

        The count of a group that loses its last row is 0.

        Args:
            store: the store of the counts, whose serde is LONG unless the store specifies another
                serde.

        Raises:
            TopologyError: the store is not valid.

        Example:
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
        """Combine the values of each group. The first value of a group is used as is.

        Args:
            adder: `(aggregate, value) -> aggregate` for a value that enters the group.
            subtractor: `(aggregate, value) -> aggregate` for a value that leaves the group; None
                deletes the group.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> kinds = prices.group_by(lambda item, n: (item[0], n), key=STRING, value=LONG)
            >>> totals = kinds.reduce(lambda total, n: total + n, lambda total, n: total - n)
        """
        check_function("reduce", "adder", adder, "aggregate", "value")
        check_function("reduce", "subtractor", subtractor, "aggregate", "value")
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
        """Aggregate the values of each group into a result of any type.

        If a row changes within its group, the subtractor is first called with the old value, then
        the adder with the new value.

        Args:
            initializer: `() -> aggregate`, called for a group without an aggregate.
            adder: `(key, value, aggregate) -> aggregate` for a value that enters the group.
            subtractor: `(key, value, aggregate) -> aggregate` for a value that leaves the group;
                None deletes the group.
            store: the store of the aggregates. It should specify the serde of the values, which is
                otherwise the config's `default_value_serde`.

        Raises:
            TopologyError: the store is not valid.

        Example:
            >>> kinds = prices.group_by(lambda item, n: (item[0], n), key=STRING, value=LONG)
            >>> totals = kinds.aggregate(
            ...     lambda: 0,
            ...     lambda kind, n, total: total + n,
            ...     lambda kind, n, total: total - n,
            ...     store=Materialized("totals", value=LONG),
            ... )
        """
        check_function("aggregate", "initializer", initializer)
        check_function("aggregate", "adder", adder, "key", "value", "aggregate")
        check_function("aggregate", "subtractor", subtractor, "key", "value", "aggregate")
        operator = partial(
            TableAggregate, initializer=initializer, adder=adder, subtractor=subtractor
        )
        return KTable(self._grouping.aggregated("KTABLE-AGGREGATE-", store, name, operator, None))


def _check_chain(operation: str, chain: Callable[..., Any] | None) -> None:
    if chain is not None:
        check_function(operation, "chain", chain, "stream")


def _is_final(strategy: EmitStrategy) -> bool:
    if not isinstance(strategy, EmitStrategy):
        raise TypeError(f"emit_strategy() takes an EmitStrategy, but got {strategy!r}.")
    return strategy is EmitStrategy.ON_WINDOW_CLOSE

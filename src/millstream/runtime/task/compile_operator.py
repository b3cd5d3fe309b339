"""Creation of operators from the operations of a topology.

This is the only module that maps operations to operators. `compile_operator` is called once for
each node of a task, never for a record.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial, singledispatch
from typing import Any, Final

from millstream.operators import stateless
from millstream.operators.aggregates import aggregate
from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.operators.aggregates.fold import ReducerAggregator, increment, no_aggregate
from millstream.operators.aggregates.session_aggregate import SessionAggregateOperator
from millstream.operators.aggregates.sliding_aggregate import SlidingAggregateOperator
from millstream.operators.aggregates.window_aggregate import (
    WindowAggregateOperator,
    WindowCountOperator,
)
from millstream.operators.arrow import ArrowFormat, MapBatchesOperator
from millstream.operators.concurrent.map_async import MapAsyncOperator, Ordering
from millstream.operators.concurrent.map_batches_async import MapBatchesAsyncOperator
from millstream.operators.joins.foreign_key_join import (
    ForeignTableJoinOperator,
    ResponseResolverOperator,
    SubscriptionJoinOperator,
    SubscriptionReceiveOperator,
    SubscriptionSendOperator,
)
from millstream.operators.joins.stream_join import (
    StreamJoiner,
    StreamSelfJoinOperator,
    StreamStreamJoinOperator,
)
from millstream.operators.joins.stream_join_window import StreamJoinWindowOperator
from millstream.operators.joins.stream_table_join import (
    StreamGlobalJoinOperator,
    StreamTableJoinOperator,
)
from millstream.operators.joins.table_join import TableJoinMergeOperator, TableJoinOperator
from millstream.operators.operator import Operator
from millstream.operators.process import ProcessOperator
from millstream.operators.tables import table_aggregate
from millstream.operators.tables.suppress import TableSuppressOperator
from millstream.operators.tables.table_stateless import TableFilterOperator, TableMapValuesOperator
from millstream.operators.tables.table_store import TableSourceOperator
from millstream.operators.tables.table_transform import TableTransformValuesOperator
from millstream.operators.user_calls import UserCalls
from millstream.subscriptions.operator.subscribe_operator import SubscribeOperator
from millstream.topology.operations import aggregations, joins, streams, tables
from millstream.topology.operations.operation import ConcurrentOperation, Operation
from millstream.topology.options.windows import SlidingWindows
from millstream.topology.physical.nodes import SinkNode
from millstream.topology.physical.windowed_serdes import WindowedKeyPartitioner


@singledispatch
def compile_operator(operation: Operation) -> Operator:
    """Create the operator for one node of a task.

    Raises TypeError if no operator implements the operation.
    """
    raise TypeError(f"There is no operator for {operation!r}.")


#: The fields of operations that may contain a single user function.
_USER_FUNCTIONS: Final = frozenset(
    {
        "action",
        "adder",
        "aggregator",
        "foreign_key",
        "function",
        "initializer",
        "joiner",
        "key_selector",
        "mapper",
        "merger",
        "predicate",
        "reducer",
        "selector",
        "subtractor",
    }
)


def with_interruptible_functions(operation: Operation, calls: UserCalls) -> Operation:
    if isinstance(operation, ConcurrentOperation):
        # Concurrent operators do not call their functions in the loop.
        return operation
    interruptible: dict[str, Any] = {}
    for each in fields(operation):
        value = getattr(operation, each.name)
        if each.name in _USER_FUNCTIONS and callable(value) and not isinstance(value, type):
            interruptible[each.name] = calls.add(value)
        elif isinstance(value, StreamJoiner):
            interruptible[each.name] = replace(value, function=calls.add(value.function))
        elif each.name == "predicates":
            interruptible[each.name] = tuple(map(calls.add, value))
    return replace(operation, **interruptible) if interruptible else operation


def with_interruptible_sink(node: SinkNode, calls: UserCalls) -> SinkNode:
    """Return the sink with an interruptible topic function and partitioner."""
    topic, partitioner = node.topic, node.partitioner
    return replace(
        node,
        topic=topic if isinstance(topic, str) else calls.add(topic),
        # The built-in partitioner is fast, so it does not need to be interruptible.
        partitioner=partitioner
        if isinstance(partitioner, WindowedKeyPartitioner | None)
        else calls.add(partitioner),
    )


@compile_operator.register
def _(
    operation: streams.PassThrough
    | streams.NullKeyFilter
    | streams.Filter
    | streams.Map
    | streams.MapValues
    | streams.SelectKey
    | streams.FlatMap
    | streams.FlatMapValues
    | streams.Peek
    | streams.ForEach
    | streams.Print
    | streams.Branch,
) -> Operator:
    match operation:
        case streams.PassThrough():
            return stateless.PassThroughOperator()
        case streams.NullKeyFilter():
            return stateless.NullKeyFilterOperator()
        case streams.Filter():
            return stateless.FilterOperator(operation.predicate, operation.negate)
        case streams.Map():
            return stateless.MapOperator(operation.mapper)
        case streams.MapValues():
            return stateless.MapValuesOperator(operation.mapper, operation.with_key)
        case streams.SelectKey():
            return stateless.SelectKeyOperator(operation.selector)
        case streams.FlatMap():
            return stateless.FlatMapOperator(operation.mapper)
        case streams.FlatMapValues():
            return stateless.FlatMapValuesOperator(operation.mapper, operation.with_key)
        case streams.Peek():
            return stateless.PeekOperator(operation.action)
        case streams.ForEach():
            return stateless.ForEachOperator(operation.action)
        case streams.Print():
            return stateless.PrintOperator(operation.label, operation.file)
        case streams.Branch():
            return stateless.BranchOperator(operation.predicates, operation.children)


@compile_operator.register
def _(operation: streams.MapAsync | streams.MapBatches | streams.MapBatchesAsync) -> Operator:
    match operation:
        case streams.MapAsync():
            return MapAsyncOperator(
                operation.function,
                is_coroutine=operation.is_coroutine,
                with_key=operation.with_key,
                concurrency=operation.concurrency,
                ordering=Ordering(operation.ordering),
                timeout_ms=operation.timeout_ms,
                using=operation.using,
            )
        case streams.MapBatches():
            return MapBatchesOperator(operation.function, _arrow(operation), operation.max_records)
        case streams.MapBatchesAsync():
            batches = operation.batches
            return MapBatchesAsyncOperator(
                batches.function,
                _arrow(batches),
                batches.max_records,
                concurrency=operation.concurrency,
                timeout_ms=operation.timeout_ms,
            )


def _arrow(operation: streams.MapBatches) -> ArrowFormat:
    return ArrowFormat(
        operation.schema, with_key=operation.with_key, with_timestamp=operation.with_timestamp
    )


@compile_operator.register
def _(operation: streams.Subscribe) -> Operator:
    return SubscribeOperator(operation.part)


@compile_operator.register
def _(operation: streams.Process) -> Operator:
    return ProcessOperator(operation.supplier, fixed_key=operation.fixed_key)


@compile_operator.register
def _(
    operation: aggregations.StreamAggregate | aggregations.StreamCount | aggregations.StreamReduce,
) -> Operator:
    match operation:
        case aggregations.StreamAggregate():
            return aggregate.StreamAggregateOperator(
                operation.store,
                operation.initializer,
                operation.aggregator,
                send_old_values=operation.send_old_values,
            )
        case aggregations.StreamCount():
            return aggregate.StreamCountOperator(
                operation.store, send_old_values=operation.send_old_values
            )
        case aggregations.StreamReduce():
            return aggregate.StreamReduceOperator(
                operation.store, operation.reducer, send_old_values=operation.send_old_values
            )


@compile_operator.register
def _(
    operation: aggregations.WindowAggregate | aggregations.WindowReduce | aggregations.WindowCount,
) -> Operator:
    match operation:
        case aggregations.WindowAggregate():
            return _window_aggregate(operation, operation.initializer, operation.aggregator)
        case aggregations.WindowReduce():
            return _window_aggregate(operation, no_aggregate, ReducerAggregator(operation.reducer))
        case aggregations.WindowCount():
            if isinstance(operation.windows, SlidingWindows):
                return _window_aggregate(operation, int, increment)
            return WindowCountOperator(
                operation.store,
                operation.windows,
                emit_final=operation.emit_final,
                send_old_values=operation.send_old_values,
            )


def _window_aggregate(
    operation: aggregations.WindowedAggregation, initializer: Initializer, aggregator: Aggregator
) -> Operator:
    if isinstance(operation.windows, SlidingWindows):
        return SlidingAggregateOperator(
            operation.store,
            operation.windows,
            initializer,
            aggregator,
            emit_final=operation.emit_final,
            send_old_values=operation.send_old_values,
        )
    return WindowAggregateOperator(
        operation.store,
        operation.windows,
        initializer,
        aggregator,
        emit_final=operation.emit_final,
        send_old_values=operation.send_old_values,
    )


@compile_operator.register
def _(
    operation: aggregations.SessionAggregate
    | aggregations.SessionReduce
    | aggregations.SessionCount,
) -> Operator:
    match operation:
        case aggregations.SessionAggregate():
            return _session_aggregate(
                operation, operation.initializer, operation.aggregator, operation.merger
            )
        case aggregations.SessionReduce():
            fold = ReducerAggregator(operation.reducer)
            return _session_aggregate(operation, no_aggregate, fold, fold.merge)
        case aggregations.SessionCount():
            return _session_aggregate(operation, int, increment, _sum)


def _session_aggregate(
    operation: aggregations.SessionAggregation,
    initializer: Initializer,
    aggregator: Aggregator,
    merger: Aggregator,
) -> Operator:
    return SessionAggregateOperator(
        operation.store,
        operation.windows,
        initializer,
        aggregator,
        merger,
        emit_final=operation.emit_final,
        send_old_values=operation.send_old_values,
    )


def _sum(key: Any, one: int, other: int) -> int:
    return one + other


@compile_operator.register
def _(
    operation: aggregations.TableSelect
    | aggregations.TableAggregate
    | aggregations.TableCount
    | aggregations.TableReduce,
) -> Operator:
    match operation:
        case aggregations.TableSelect():
            return table_aggregate.TableSelectOperator(
                operation.selector,
                send_old_values=operation.send_old_values,
                versioned=operation.versioned,
            )
        case aggregations.TableAggregate():
            return table_aggregate.TableAggregateOperator(
                operation.store,
                operation.initializer,
                operation.adder,
                operation.subtractor,
                send_old_values=operation.send_old_values,
            )
        case aggregations.TableCount():
            return table_aggregate.TableCountOperator(
                operation.store, send_old_values=operation.send_old_values
            )
        case aggregations.TableReduce():
            return table_aggregate.TableReduceOperator(
                operation.store,
                operation.adder,
                operation.subtractor,
                send_old_values=operation.send_old_values,
            )


@compile_operator.register
def _(
    operation: tables.TableSource
    | tables.TableFilter
    | tables.TableMapValues
    | tables.TableTransformValues
    | tables.TableToStream
    | tables.TableSuppress
    | tables.TableJoin
    | tables.TableJoinMerge,
) -> Operator:
    match operation:
        case tables.TableSource():
            return TableSourceOperator(operation.store, send_old_values=operation.send_old_values)
        case tables.TableFilter():
            return TableFilterOperator(
                operation.predicate,
                operation.negate,
                operation.store,
                send_old_values=operation.send_old_values,
                versioned=operation.versioned,
            )
        case tables.TableMapValues():
            return TableMapValuesOperator(
                operation.mapper,
                operation.with_key,
                operation.store,
                send_old_values=operation.send_old_values,
            )
        case tables.TableTransformValues():
            return TableTransformValuesOperator(
                operation.supplier, operation.store, send_old_values=operation.send_old_values
            )
        case tables.TableToStream():
            return aggregate.TableToStreamOperator()
        case tables.TableSuppress():
            return TableSuppressOperator(operation.store, operation.limits)
        case tables.TableJoin():
            joiner = operation.joiner
            return TableJoinOperator(
                operation.other,
                partial(_joined_from_right, joiner) if operation.from_right else joiner,
                operation.side,
                send_old_values=operation.send_old_values,
                versioned=operation.versioned,
            )
        case tables.TableJoinMerge():
            return TableJoinMergeOperator(
                operation.store, send_old_values=operation.send_old_values
            )


def _joined_from_right(joiner: Any, value: Any, other_value: Any) -> Any:
    return joiner(other_value, value)


@compile_operator.register
def _(
    operation: joins.StreamJoinWindow
    | joins.StreamStreamJoin
    | joins.StreamSelfJoin
    | joins.StreamTableJoin
    | joins.StreamGlobalJoin,
) -> Operator:
    match operation:
        case joins.StreamJoinWindow():
            return StreamJoinWindowOperator(operation.store)
        case joins.StreamStreamJoin():
            return StreamStreamJoinOperator(operation.side, operation.joiner)
        case joins.StreamSelfJoin():
            return StreamSelfJoinOperator(
                operation.store,
                operation.before_ms,
                operation.after_ms,
                operation.retention_ms,
                operation.joiner,
            )
        case joins.StreamTableJoin():
            return StreamTableJoinOperator(
                operation.table,
                operation.joiner,
                left=operation.left,
                with_key=operation.with_key,
                buffer=operation.buffer,
            )
        case joins.StreamGlobalJoin():
            return StreamGlobalJoinOperator(
                operation.table,
                operation.joiner,
                operation.key_selector,
                left=operation.left,
                with_key=operation.with_key,
            )


@compile_operator.register
def _(
    operation: joins.SubscriptionSend
    | joins.SubscriptionReceive
    | joins.SubscriptionJoin
    | joins.ForeignTableJoin
    | joins.ResponseResolver,
) -> Operator:
    match operation:
        case joins.SubscriptionSend():
            foreign_key = operation.foreign_key
            return SubscriptionSendOperator(
                foreign_key if operation.with_key else partial(_value_only, foreign_key),
                operation.serdes,
                left_join=operation.left_join,
                versioned=operation.versioned,
            )
        case joins.SubscriptionReceive():
            return SubscriptionReceiveOperator(operation.store, operation.serdes)
        case joins.SubscriptionJoin():
            return SubscriptionJoinOperator(operation.right)
        case joins.ForeignTableJoin():
            return ForeignTableJoinOperator(
                operation.store, operation.serdes, versioned=operation.versioned
            )
        case joins.ResponseResolver():
            return ResponseResolverOperator(
                operation.left, operation.serdes, operation.joiner, left_join=operation.left_join
            )


def _value_only(function: Any, key: Any, value: Any) -> Any:
    return function(value)

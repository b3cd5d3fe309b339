"""From what a node does, as data, to what does it in one task.

The only place that knows which operator runs which operation. Called once for each node of a task,
never for a record.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import partial, singledispatch
from typing import Any, Final

from millstream.operators import stateless
from millstream.operators.aggregates import aggregate
from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.operators.aggregates.fold import Reduced, count_one, nothing
from millstream.operators.aggregates.session_aggregate import SessionAggregateOperator
from millstream.operators.aggregates.sliding_aggregate import SlidingAggregateOperator
from millstream.operators.aggregates.window_aggregate import (
    WindowAggregateOperator,
    WindowCountOperator,
)
from millstream.operators.apart.map_async import MapAsyncOperator, Ordering
from millstream.operators.apart.map_batches import MapBatchesAsyncOperator
from millstream.operators.apart.subscription.subscribe import SubscribeOperator
from millstream.operators.arrow import ArrowFormat
from millstream.operators.interruption import UserCalls
from millstream.operators.joins.foreign_key_join import (
    ForeignTableJoinOperator,
    ResponseResolverOperator,
    SubscriptionJoinOperator,
    SubscriptionReceiveOperator,
)
from millstream.operators.joins.foreign_key_send import SubscriptionSendOperator
from millstream.operators.joins.stream_join import StreamJoiner, StreamStreamJoinOperator
from millstream.operators.joins.stream_join_window import StreamJoinWindowOperator
from millstream.operators.joins.stream_self_join import StreamSelfJoinOperator
from millstream.operators.joins.stream_table_join import (
    StreamGlobalJoinOperator,
    StreamTableJoinOperator,
)
from millstream.operators.joins.table_join import TableJoinMergeOperator, TableJoinOperator
from millstream.operators.map_batches import MapBatchesOperator
from millstream.operators.operator import Operator
from millstream.operators.process import ProcessOperator
from millstream.operators.tables import table_aggregate
from millstream.operators.tables.suppress import TableSuppressOperator
from millstream.operators.tables.table_source import TableSourceOperator
from millstream.operators.tables.table_stateless import TableFilterOperator, TableMapValuesOperator
from millstream.operators.tables.table_transform import TableTransformValuesOperator
from millstream.topology.operations import (
    aggregations,
    foreign_keys,
    joins,
    processors,
    streams,
    subscriptions,
    tables,
)
from millstream.topology.operations.operation import ApartOperation, Operation
from millstream.topology.options.windows import SlidingWindows
from millstream.topology.physical.nodes import SinkNode
from millstream.topology.physical.windowed_serdes import PartitionByInnerKey


@singledispatch
def compile_operator(operation: Operation) -> Operator:
    """A fresh operator for one node of one task.

    Args:
        operation: what the node does.

    Raises:
        TypeError: nothing is known that does it.
    """
    raise TypeError(f"There is no operator for {operation!r}.")


#: The fields of operations that hold user functions, which are called for each record.
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


def with_guarded_calls(operation: Operation, calls: UserCalls) -> Operation:
    """The same operation, with user functions whose calls can be stopped.

    Args:
        operation: what a node does.
        calls: takes the functions.
    """
    if isinstance(operation, ApartOperation):
        # Its calls are made beside the loop.
        return operation
    guarded: dict[str, Any] = {}
    for each in fields(operation):
        value = getattr(operation, each.name)
        if each.name in _USER_FUNCTIONS and callable(value) and not isinstance(value, type):
            guarded[each.name] = calls.add(value)
        elif isinstance(value, StreamJoiner):
            guarded[each.name] = replace(value, function=calls.add(value.function))
        elif each.name == "predicates":
            guarded[each.name] = tuple(map(calls.add, value))
    return replace(operation, **guarded) if guarded else operation


def with_guarded_choices(node: SinkNode, calls: UserCalls) -> SinkNode:
    """The same sink, with a topic function and a partitioner whose calls can be stopped."""
    topic, partitioner = node.topic, node.partitioner
    return replace(
        node,
        topic=topic if isinstance(topic, str) else calls.add(topic),
        # Millstream's own partitioner is fast.
        partitioner=partitioner
        if isinstance(partitioner, PartitionByInnerKey | None)
        else calls.add(partitioner),
    )


# ---- streams


@compile_operator.register
def _(operation: streams.PassThrough) -> Operator:
    return stateless.PassThroughOperator()


@compile_operator.register
def _(operation: streams.NullKeyFilter) -> Operator:
    return stateless.NullKeyFilterOperator()


@compile_operator.register
def _(operation: streams.Filter) -> Operator:
    return stateless.FilterOperator(operation.predicate, operation.negate)


@compile_operator.register
def _(operation: streams.Map) -> Operator:
    return stateless.MapOperator(operation.mapper)


@compile_operator.register
def _(operation: streams.MapValues) -> Operator:
    return stateless.MapValuesOperator(operation.mapper, operation.with_key)


@compile_operator.register
def _(operation: streams.MapAsync) -> Operator:
    return MapAsyncOperator(
        operation.function,
        is_coroutine=operation.is_coroutine,
        with_key=operation.with_key,
        concurrency=operation.concurrency,
        ordering=Ordering(operation.ordering),
        timeout_ms=operation.timeout_ms,
        using=operation.using,
    )


@compile_operator.register
def _(operation: streams.MapBatches) -> Operator:
    return MapBatchesOperator(operation.function, _arrow(operation), operation.max_records)


@compile_operator.register
def _(operation: streams.MapBatchesAsync) -> Operator:
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
def _(operation: subscriptions.Subscribe) -> Operator:
    return SubscribeOperator(operation.part)


@compile_operator.register
def _(operation: streams.SelectKey) -> Operator:
    return stateless.SelectKeyOperator(operation.selector)


@compile_operator.register
def _(operation: streams.FlatMap) -> Operator:
    return stateless.FlatMapOperator(operation.mapper)


@compile_operator.register
def _(operation: streams.FlatMapValues) -> Operator:
    return stateless.FlatMapValuesOperator(operation.mapper, operation.with_key)


@compile_operator.register
def _(operation: streams.Peek) -> Operator:
    return stateless.PeekOperator(operation.action)


@compile_operator.register
def _(operation: streams.ForEach) -> Operator:
    return stateless.ForEachOperator(operation.action)


@compile_operator.register
def _(operation: streams.Print) -> Operator:
    return stateless.PrintOperator(operation.label, operation.file)


@compile_operator.register
def _(operation: streams.Branch) -> Operator:
    return stateless.BranchOperator(operation.predicates, operation.children)


@compile_operator.register
def _(operation: processors.Process) -> Operator:
    return ProcessOperator(operation.supplier, fixed_key=operation.fixed_key)


# ---- aggregations


@compile_operator.register
def _(operation: aggregations.StreamAggregate) -> Operator:
    return aggregate.StreamAggregateOperator(
        operation.store,
        operation.initializer,
        operation.aggregator,
        send_old_values=operation.send_old_values,
    )


@compile_operator.register
def _(operation: aggregations.StreamCount) -> Operator:
    return aggregate.StreamCountOperator(operation.store, send_old_values=operation.send_old_values)


@compile_operator.register
def _(operation: aggregations.StreamReduce) -> Operator:
    return aggregate.StreamReduceOperator(
        operation.store, operation.reducer, send_old_values=operation.send_old_values
    )


@compile_operator.register
def _(operation: aggregations.WindowAggregate) -> Operator:
    return _window_aggregate(operation, operation.initializer, operation.aggregator)


@compile_operator.register
def _(operation: aggregations.WindowReduce) -> Operator:
    return _window_aggregate(operation, nothing, Reduced(operation.reducer))


@compile_operator.register
def _(operation: aggregations.WindowCount) -> Operator:
    if isinstance(operation.windows, SlidingWindows):
        return _window_aggregate(operation, int, count_one)
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
def _(operation: aggregations.SessionAggregate) -> Operator:
    return _session_aggregate(
        operation, operation.initializer, operation.aggregator, operation.merger
    )


@compile_operator.register
def _(operation: aggregations.SessionReduce) -> Operator:
    fold = Reduced(operation.reducer)
    return _session_aggregate(operation, nothing, fold, fold.merge)


@compile_operator.register
def _(operation: aggregations.SessionCount) -> Operator:
    return _session_aggregate(operation, int, count_one, _both)


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


def _both(key: Any, one: int, other: int) -> int:
    return one + other


@compile_operator.register
def _(operation: aggregations.TableSelect) -> Operator:
    return table_aggregate.TableSelectOperator(
        operation.selector,
        send_old_values=operation.send_old_values,
        versioned=operation.versioned,
    )


@compile_operator.register
def _(operation: aggregations.TableAggregate) -> Operator:
    return table_aggregate.TableAggregateOperator(
        operation.store,
        operation.initializer,
        operation.adder,
        operation.subtractor,
        send_old_values=operation.send_old_values,
    )


@compile_operator.register
def _(operation: aggregations.TableCount) -> Operator:
    return table_aggregate.TableCountOperator(
        operation.store, send_old_values=operation.send_old_values
    )


@compile_operator.register
def _(operation: aggregations.TableReduce) -> Operator:
    return table_aggregate.TableReduceOperator(
        operation.store,
        operation.adder,
        operation.subtractor,
        send_old_values=operation.send_old_values,
    )


# ---- tables


@compile_operator.register
def _(operation: tables.TableSource) -> Operator:
    return TableSourceOperator(operation.store, send_old_values=operation.send_old_values)


@compile_operator.register
def _(operation: tables.TableFilter) -> Operator:
    return TableFilterOperator(
        operation.predicate,
        operation.negate,
        operation.store,
        send_old_values=operation.send_old_values,
        versioned=operation.versioned,
    )


@compile_operator.register
def _(operation: tables.TableMapValues) -> Operator:
    return TableMapValuesOperator(
        operation.mapper,
        operation.with_key,
        operation.store,
        send_old_values=operation.send_old_values,
    )


@compile_operator.register
def _(operation: tables.TableTransformValues) -> Operator:
    return TableTransformValuesOperator(
        operation.supplier, operation.store, send_old_values=operation.send_old_values
    )


@compile_operator.register
def _(operation: tables.TableToStream) -> Operator:
    return aggregate.TableToStreamOperator()


@compile_operator.register
def _(operation: tables.TableSuppress) -> Operator:
    return TableSuppressOperator(operation.store, operation.limits)


@compile_operator.register
def _(operation: tables.TableJoin) -> Operator:
    joiner = operation.joiner
    return TableJoinOperator(
        operation.other,
        partial(_joined_from_right, joiner) if operation.from_right else joiner,
        operation.side,
        send_old_values=operation.send_old_values,
        versioned=operation.versioned,
    )


def _joined_from_right(joiner: Any, value: Any, other_value: Any) -> Any:
    return joiner(other_value, value)


@compile_operator.register
def _(operation: tables.TableJoinMerge) -> Operator:
    return TableJoinMergeOperator(operation.store, send_old_values=operation.send_old_values)


# ---- joins


@compile_operator.register
def _(operation: joins.StreamJoinWindow) -> Operator:
    return StreamJoinWindowOperator(operation.store)


@compile_operator.register
def _(operation: joins.StreamStreamJoin) -> Operator:
    return StreamStreamJoinOperator(operation.side, operation.joiner)


@compile_operator.register
def _(operation: joins.StreamSelfJoin) -> Operator:
    return StreamSelfJoinOperator(
        operation.store,
        operation.before_ms,
        operation.after_ms,
        operation.retention_ms,
        operation.joiner,
    )


@compile_operator.register
def _(operation: joins.StreamTableJoin) -> Operator:
    return StreamTableJoinOperator(
        operation.table,
        operation.joiner,
        left=operation.left,
        with_key=operation.with_key,
        buffer=operation.buffer,
    )


@compile_operator.register
def _(operation: joins.StreamGlobalJoin) -> Operator:
    return StreamGlobalJoinOperator(
        operation.table,
        operation.joiner,
        operation.key_selector,
        left=operation.left,
        with_key=operation.with_key,
    )


@compile_operator.register
def _(operation: foreign_keys.SubscriptionSend) -> Operator:
    foreign_key = operation.foreign_key
    return SubscriptionSendOperator(
        foreign_key if operation.with_key else partial(_of_value, foreign_key),
        operation.serdes,
        left_join=operation.left_join,
        versioned=operation.versioned,
    )


def _of_value(function: Any, key: Any, value: Any) -> Any:
    return function(value)


@compile_operator.register
def _(operation: foreign_keys.SubscriptionReceive) -> Operator:
    return SubscriptionReceiveOperator(operation.store, operation.serdes)


@compile_operator.register
def _(operation: foreign_keys.SubscriptionJoin) -> Operator:
    return SubscriptionJoinOperator(operation.right)


@compile_operator.register
def _(operation: foreign_keys.ForeignTableJoin) -> Operator:
    return ForeignTableJoinOperator(
        operation.store, operation.serdes, versioned=operation.versioned
    )


@compile_operator.register
def _(operation: foreign_keys.ResponseResolver) -> Operator:
    return ResponseResolverOperator(
        operation.left, operation.serdes, operation.joiner, left_join=operation.left_join
    )

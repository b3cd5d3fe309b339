"""Asking a store at hand: a query of one store of one task, from objects to objects."""

from __future__ import annotations

import time

from millstream.query.requests.answers import FailureReason, QueryResult
from millstream.query.requests.position import Position, PositionBound
from millstream.query.requests.queries import Query, described
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.answers import read_store, unknown_query
from millstream.state.queries.codec import StoreCodec, plan


def run_query(
    opened: OpenStore,
    codec: StoreCodec,
    query: Query,
    *,
    bound: PositionBound | None = None,
    partition: int = 0,
    execution_info: bool = False,
    reached: Position | None = None,
) -> QueryResult:
    """What a store of a task answers. Iterators in it are to be closed, or read to their end.

    Args:
        opened: the store.
        codec: its serdes.
        query: what is asked.
        bound: how far the store must be; None for however far.
        partition: of its task.
        execution_info: whether it is told who has answered, and how long it took.
        reached: how far its task knows it to be, beyond what processors have put.

    Raises:
        NullKeyError: the key is None.
        SerializationError: a key does not fit the store's serde, or a stored value.
    """
    started = time.perf_counter_ns()
    planned = plan(query, codec)
    if planned is None:
        return QueryResult(
            failure_reason=FailureReason.UNKNOWN_QUERY_TYPE,
            failure_message=unknown_query(codec.name, described(query)),
            position=opened.position.position(),
        )
    answer = read_store(
        codec.name,
        opened,
        planned.read,
        bound=(bound or PositionBound.unbounded()).position,
        partition=partition,
        reached=reached,
    )
    info = executed(codec.name, time.perf_counter_ns() - started) if execution_info else ()
    if answer.pairs is None:
        return QueryResult(
            failure_reason=answer.reason,
            failure_message=answer.message,
            position=answer.position,
            execution_info=info,
        )
    return QueryResult(planned.finish(answer.pairs), position=answer.position, execution_info=info)


def executed(store: str, took_ns: int) -> tuple[str, ...]:
    """Who has answered, and how long it took."""
    return (f"Handled in store {store} in {took_ns}ns",)

"""Reads of one store of one task, which return pairs or the reason for a failure."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from millstream.errors import StreamsError
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.codec import StoreCodec, plan_query
from millstream.state.queries.read_requests import ReadKind, ReadRequest
from millstream.state.queries.requests.position import Position, PositionBound
from millstream.state.queries.requests.queries import Query, query_name
from millstream.state.queries.requests.query_results import FailureReason, QueryResult
from millstream.state.storage.bytes_store import ByteItems, iterate

#: The position in results for which no position was requested.
NO_POSITION: Final = Position()


class StoreReadResult(NamedTuple):
    """The result of a read.

    Args:
        pairs: None if the read failed.
        retriable: whether the failure is temporary.
    """

    position: Position
    pairs: ByteItems | None = None
    reason: FailureReason | None = None
    message: str = ""
    retriable: bool = False


def read_store(
    name: str,
    opened: OpenStore,
    request: ReadRequest,
    *,
    bound: Position,
    partition: int,
    reached: Position | None = None,
    with_position: bool = True,
) -> StoreReadResult:
    """Read a store if it has reached the bound.

    The result is a snapshot of the store. Follows Kafka Streams'
    `StoreQueryUtils.handleBasicQueries`.

    Args:
        reached: a position that the task tracks in addition to that of the processors' writes.
    """
    position = NO_POSITION
    if with_position or bound:
        position = opened.position.position(skip_cache=request.skip_cache)
    if reached is not None:
        position = position.merge(reached)
    if not position.reaches(bound, partition):
        return StoreReadResult(
            position,
            reason=FailureReason.NOT_UP_TO_BOUND,
            message=(
                f"Partition {partition} of store {name} is at {position}, before the bound "
                f"{bound}. Retry later."
            ),
        )
    if request.kind is ReadKind.NOTHING:
        return StoreReadResult(position, iterate())
    try:
        pairs = None if opened.read is None else opened.read(request)
    except StreamsError as error:
        return read_failure(position, error)
    if pairs is None:
        return StoreReadResult(
            position,
            reason=FailureReason.UNKNOWN_QUERY_TYPE,
            message=unknown_query_message(name, request.kind.value),
        )
    return StoreReadResult(position, pairs)


def read_failure(position: Position, error: StreamsError) -> StoreReadResult:
    return StoreReadResult(
        position,
        reason=FailureReason.STORE_EXCEPTION,
        message=str(error),
        retriable=error.retriable,
    )


def unknown_query_message(store: str, query: str) -> str:
    return (
        f"Store {store} does not support queries of type {query}. Use a query for stores of its "
        "kind."
    )


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
    """Run a query on a store of a task.

    Close iterators in the result, or exhaust them.

    Raises:
        NullKeyError: the key is None.
        SerializationError: a serde rejected a key or a stored value.
    """
    started = time.perf_counter_ns()
    planned = plan_query(query, codec)
    if planned is None:
        return QueryResult(
            failure_reason=FailureReason.UNKNOWN_QUERY_TYPE,
            failure_message=unknown_query_message(codec.name, query_name(query)),
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
    info = (
        describe_execution(codec.name, time.perf_counter_ns() - started) if execution_info else ()
    )
    if answer.pairs is None:
        return QueryResult(
            failure_reason=answer.reason,
            failure_message=answer.message,
            position=answer.position,
            execution_info=info,
        )
    return QueryResult(planned.finish(answer.pairs), position=answer.position, execution_info=info)


def describe_execution(store: str, took_ns: int) -> tuple[str, ...]:
    return (f"Handled in store {store} in {took_ns}ns",)

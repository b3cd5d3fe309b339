"""What one store of one task says to a read: pairs, or why there are none."""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.errors import StreamsError
from millstream.query.requests.answers import FailureReason
from millstream.query.requests.position import Position
from millstream.state.opening.open_store import OpenStore
from millstream.state.queries.reads import Read, ReadKind, nothing
from millstream.state.storage.bytes_store import ByteItems

#: Of who was not asked for one.
NO_POSITION: Final = Position()


class StoreAnswer(NamedTuple):
    """What a store says.

    Args:
        position: the input that it stands for.
        pairs: what it has; None if it does not answer.
        reason: why it does not.
        message: the same in words.
        retriable: whether it has failed with something that passes by itself.
    """

    position: Position
    pairs: ByteItems | None = None
    reason: FailureReason | None = None
    message: str = ""
    retriable: bool = False


def read_store(
    name: str,
    opened: OpenStore,
    asked: Read,
    *,
    bound: Position,
    partition: int,
    reached: Position | None = None,
    with_position: bool = True,
) -> StoreAnswer:
    """Read a store, if it is far enough. What is read is the store as it is at this moment.

    Follows Kafka Streams' `StoreQueryUtils.handleBasicQueries`.

    Args:
        name: of the store.
        opened: the store.
        asked: what is read.
        bound: how far it must be.
        partition: of its task.
        reached: how far its task knows it to be, beyond what processors have put.
        with_position: whether anybody wants to know how far it is.
    """
    position = NO_POSITION
    if with_position or bound:
        position = opened.position.position(past_cache=asked.past_cache)
    if reached is not None:
        position = position.merge(reached)
    if not position.reaches(bound, partition):
        return StoreAnswer(
            position,
            reason=FailureReason.NOT_UP_TO_BOUND,
            message=(
                f"Partition {partition} of store {name} is at {position}, and {bound} was asked "
                "for. Ask again when it has read on."
            ),
        )
    if asked.kind is ReadKind.NOTHING:
        return StoreAnswer(position, nothing())
    try:
        pairs = None if opened.reader is None else opened.reader.read(asked)
    except StreamsError as error:
        return failed(position, error)
    if pairs is None:
        return StoreAnswer(
            position,
            reason=FailureReason.UNKNOWN_QUERY_TYPE,
            message=unknown_query(name, asked.kind.value),
        )
    return StoreAnswer(position, pairs)


def failed(position: Position, error: StreamsError) -> StoreAnswer:
    """What is said where reading a store has failed."""
    return StoreAnswer(
        position,
        reason=FailureReason.STORE_EXCEPTION,
        message=str(error),
        retriable=error.retriable,
    )


def unknown_query(store: str, query: str) -> str:
    """Why a store does not answer a query of a kind that it does not know."""
    return (
        f"Store {store} does not know how to answer a {query}. Ask it with a query for stores of "
        "its kind."
    )

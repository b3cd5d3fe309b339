"""Requests and replies of state store queries: plain data, with keys in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec

from millstream.record import TopicPartition
from millstream.runtime.thread_control import ThreadRequest
from millstream.state.queries.read_requests import ReadRequest
from millstream.state.queries.requests.query_results import FailureReason

R = TypeVar("R")

#: Pairs of stored keys and values.
Page = tuple[tuple[bytes, bytes], ...]
#: Offsets by topic and partition.
Offsets = Mapping[str, Mapping[int, int]]


#: The timeout of a query. Threads answer queries between batches, so a thread that does not respond
#: within this time has probably stalled.
ANSWER_TIMEOUT_MS: Final = 10_000


class CompactMessage(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message with a compact encoding.

    Such messages contain no user objects. At a thousand queries per second, pickling them (6 us
    each way) would be noticeable; encoding and decoding take 0.3 and 0.6 us instead.
    """


class StoreRequest(CompactMessage, ThreadRequest[R], frozen=True, kw_only=True):
    """A request about state stores, which may be dropped after its timeout."""

    timeout_ms: int = ANSWER_TIMEOUT_MS


#: The value for results without a position.
_NO_POSITION: Final[Offsets] = {}


class TaskQueryResult(NamedTuple):
    """The result of a query for one task.

    Args:
        role: the name of the task's state (RUNNING, RESTORING or STANDBY), or GLOBAL for a global
            store.
        cursor: the cursor for further pairs; None if there are none.
        position: the input positions that the result reflects.
    """

    partition: int
    role: str
    page: Page = ()
    cursor: str | None = None
    reason: FailureReason | None = None
    message: str = ""
    position: Offsets = _NO_POSITION
    took_ns: int = 0
    retriable: bool = False


class ThreadQueryResult(CompactMessage, frozen=True):
    """The result of a query for one thread."""

    tasks: tuple[TaskQueryResult, ...] = ()


class QueryStore(StoreRequest[ThreadQueryResult], frozen=True):
    """Query a state store of the thread's tasks.

    Args:
        read: the read operation; None for a query that stores of this kind do not support.
        partitions: the partitions of the queried tasks; None for all.
        active_only: whether a task that is not running returns a failure instead of a result.
        page_bytes: the size of a page, in bytes of keys and values; a single pair may exceed it.
    """

    store: str
    read: ReadRequest | None
    query: str
    partitions: frozenset[int] | None = None
    active_only: bool = False
    bound: Offsets = msgspec.field(default_factory=dict)
    with_position: bool = True
    page_bytes: int = 256 * 1024


class NextPage(CompactMessage, frozen=True):
    """Further pairs of a result, and the cursor for the rest, if any."""

    page: Page
    cursor: str | None


class FetchNextPage(StoreRequest[NextPage], frozen=True):
    """Fetch the next page of a result.

    Args:
        page_number: the number of the page, starting at 1 for the page after the first, which was
            returned with the cursor. The latest page may be requested again if its delivery is
            uncertain.
        page_bytes: see `QueryStore`; 0 requests an empty page, which only keeps the cursor open.
    """

    cursor: str
    page_number: int
    page_bytes: int = 256 * 1024


class CloseCursor(StoreRequest[None], frozen=True):
    """Close a cursor."""

    cursor: str


@dataclass(frozen=True)
class StoreOffset:
    """The changelog position of a task's store.

    Args:
        next_offset: the offset after the last restored record; None for a running task, which
            writes the changelog itself.
    """

    store: str
    changelog: TopicPartition
    next_offset: int | None


class GetStoreOffsets(StoreRequest[tuple[StoreOffset, ...]], frozen=True):
    """Request the changelog positions of the tasks' stores."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(
    QueryStore | FetchNextPage | CloseCursor | GetStoreOffsets | ThreadQueryResult | NextPage
)


def encode_compact(value: CompactMessage) -> bytes:
    return _ENCODER.encode(value)


def decode_compact(data: bytes) -> CompactMessage:
    """Decode a message from `encode_compact`.

    Raises msgspec.DecodeError if the message is invalid.
    """
    decoded: CompactMessage = _DECODER.decode(data)
    return decoded

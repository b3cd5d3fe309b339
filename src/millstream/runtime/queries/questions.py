"""What a stream thread is asked of its stores, and what it answers: plain data, keys in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import msgspec

from millstream.query.requests.answers import FailureReason
from millstream.record import TopicPartition
from millstream.runtime.control import Question
from millstream.state.queries.reads import Read

R = TypeVar("R")

#: Pairs of stored keys and values.
Page = tuple[tuple[bytes, bytes], ...]
#: Offsets by topic and partition.
Offsets = Mapping[str, Mapping[int, int]]


#: How long a thread may take to answer. It does between two batches, so it hangs if it does not.
ANSWER_MS: Final = 10_000


class Compact(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """What travels in bytes of its own.

    Nothing of the user's is in it, and at a thousand questions a second a pickle of each, 6 us to
    write and as many to read, is felt (0.3 and 0.6 us).
    """


class StoreQuestion(Compact, Question[R], frozen=True, kw_only=True):
    """Whatever is asked of stores.

    Args:
        within_ms: how long its asker waits; afterwards it need not be answered.
    """

    within_ms: int = ANSWER_MS


#: Of who was not asked how far he is.
_NOWHERE: Final[Offsets] = {}


class TaskAnswer(NamedTuple):
    """What one task says of a store.

    Args:
        partition: the task's.
        role: the name of the task's state: RUNNING for an active one, RESTORING, STANDBY; GLOBAL
            for a global store.
        page: the pairs, or the first of them.
        cursor: by what the thread knows the rest of them; None if these are all.
        reason: why there is no answer; None if there is one.
        message: the same in words.
        position: the input that the answer stands for.
        took_ns: how long it took, in nanoseconds.
        retriable: whether it has failed with something that passes by itself.
    """

    partition: int
    role: str
    page: Page = ()
    cursor: str | None = None
    reason: FailureReason | None = None
    message: str = ""
    position: Offsets = _NOWHERE
    took_ns: int = 0
    retriable: bool = False


class ThreadAnswer(Compact, frozen=True):
    """What a thread says of a store.

    Args:
        tasks: what each of its tasks says that has the store.
    """

    tasks: tuple[TaskAnswer, ...] = ()


class AskStore(StoreQuestion[ThreadAnswer], frozen=True):
    """What do your tasks have in this store?

    Args:
        store: its name.
        read: what is read; None for a query that stores of its kind do not know.
        query: the kind of query, for messages.
        partitions: whose tasks are asked; None for all.
        active_only: whether tasks that do not process say just that.
        bound: how far the store must be.
        with_position: whether the answer is to tell how far it is.
        page_bytes: of keys and values in one page; one pair may exceed it.
    """

    store: str
    read: Read | None
    query: str
    partitions: frozenset[int] | None = None
    active_only: bool = False
    bound: Offsets = msgspec.field(default_factory=dict)
    with_position: bool = True
    page_bytes: int = 256 * 1024


class NextPage(Compact, frozen=True):
    """Some more pairs.

    Args:
        page: the pairs.
        cursor: by what the thread knows the rest of them; None if there are no more.
    """

    page: Page
    cursor: str | None


class AskNextPage(StoreQuestion[NextPage], frozen=True):
    """What comes next?

    Args:
        cursor: of what.
        page_number: which page: 1 for the one behind the first, which came with the cursor, and so
            on. The page that was given last is given again; so it may be asked for once more where
            nobody knows whether the answer has arrived.
        page_bytes: as in `AskStore`; 0 for an empty page, which only keeps the rest from being
            dropped.
    """

    cursor: str
    page_number: int
    page_bytes: int = 256 * 1024


class CloseCursor(StoreQuestion[None], frozen=True):
    """Nobody wants the rest any more.

    Args:
        cursor: of what.
    """

    cursor: str


@dataclass(frozen=True)
class StoreOffset:
    """How far a store of a task has read its changelog.

    Args:
        store: its name.
        changelog: the changelog partition.
        following: the offset after the last record that it has; None where its task runs, and so
            is what writes it.
    """

    store: str
    changelog: TopicPartition
    following: int | None


class AskOffsets(StoreQuestion[tuple[StoreOffset, ...]], frozen=True):
    """How far have the stores of your tasks read their changelogs?"""


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(
    AskStore | AskNextPage | CloseCursor | AskOffsets | ThreadAnswer | NextPage
)


def encode_compact(value: Compact) -> bytes:
    """It in bytes."""
    return _ENCODER.encode(value)


def decode_compact(data: bytes) -> Compact:
    """The inverse of `encode_compact`.

    Raises:
        msgspec.DecodeError: it is not one.
    """
    decoded: Compact = _DECODER.decode(data)
    return decoded

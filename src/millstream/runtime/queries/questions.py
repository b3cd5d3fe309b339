"""What a stream thread is asked of its stores, and what it answers: plain data, keys in bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from millstream.query.requests.answers import FailureReason
from millstream.record import TopicPartition
from millstream.runtime.control import Plain, Question
from millstream.state.queries.reads import Read

R = TypeVar("R")

#: Pairs of stored keys and values.
Page = tuple[tuple[bytes, bytes], ...]
#: Offsets by topic and partition.
Offsets = Mapping[str, Mapping[int, int]]


#: How long a thread may take to answer. It does between two batches, so it hangs if it does not.
ANSWER_MS: Final = 10_000


@dataclass(frozen=True)
class StoreQuestion(Question[R], Plain):
    """Whatever is asked of stores.

    Args:
        within_ms: how long its asker waits; afterwards it need not be answered.
    """

    within_ms: int = field(default=ANSWER_MS, kw_only=True)


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


@dataclass(frozen=True)
class ThreadAnswer(Plain):
    """What a thread says of a store.

    Args:
        tasks: what each of its tasks says that has the store.
    """

    tasks: tuple[TaskAnswer, ...] = ()


@dataclass(frozen=True)
class AskStore(StoreQuestion[ThreadAnswer]):
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
    bound: Offsets = field(default_factory=dict)
    with_position: bool = True
    page_bytes: int = 256 * 1024


@dataclass(frozen=True)
class NextPage(Plain):
    """Some more pairs.

    Args:
        page: the pairs.
        cursor: by what the thread knows the rest of them; None if there are no more.
    """

    page: Page
    cursor: str | None


@dataclass(frozen=True)
class AskNextPage(StoreQuestion[NextPage]):
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


@dataclass(frozen=True)
class CloseCursor(StoreQuestion[None]):
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


@dataclass(frozen=True)
class AskOffsets(StoreQuestion[tuple[StoreOffset, ...]]):
    """How far have the stores of your tasks read their changelogs?"""

"""What is remembered of an application: plain data, times in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

#: By thread the ids of its active and of its standby tasks.
Ownership = Mapping[str, "OwnedTasks"]


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    """The tasks of one thread, sorted."""

    active: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateChange:
    """The application has changed its state.

    Args:
        at_ms: when.
        old: where it was.
        new: where it is.
        why: what made it.
    """

    at_ms: int
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Tasks may have changed hands.

    Args:
        number: counts from 1 for each application object.
        began_ms: when the first thread stopped for it.
        ended_ms: when all threads ran again, None while they do not.
        why: what the first thread said.
        before: who had which tasks.
        after: who has them; of an unfinished one, as far as it has come.
    """

    number: int
    began_ms: int
    ended_ms: int | None
    why: str
    before: Ownership
    after: Ownership


@dataclass(frozen=True, slots=True)
class Step:
    """What happened after something had gone wrong."""

    at_ms: int
    text: str


@dataclass(slots=True)
class Failure:
    """An error that ended a thread, or that a listener raised.

    Args:
        number: counts from 1 for each application object.
        at_ms: when the application heard of it.
        thread: which thread ended; None if none did.
        error: the class of the error.
        message: what failed, why and what to do, without the place.
        place: where, in words.
        answer: what was decided, by the user's handler or before it was asked.
        stack: of the error and what caused it, as lines of text; the end of it if it is long.
        task: the task's id.
        node: the processor node.
        topic: of the record.
        partition: of the record.
        offset: of the record.
        declared_at: file and line of the user's program that declared the node.
        steps: what became of the thread, oldest first.
        over: whether the thread, or another in its place, runs again.
    """

    number: int
    at_ms: int
    thread: str | None
    error: str
    message: str
    place: str
    answer: str
    stack: tuple[str, ...]
    task: str | None = None
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    declared_at: str | None = None
    steps: list[Step] = field(default_factory=list)
    over: bool = False


RestoreKind = Literal["active", "standby", "global"]
RestoreState = Literal["running", "done", "suspended"]


@dataclass(slots=True)
class Restore:
    """How far a copy of a store's partition is.

    Args:
        store: the store's name.
        topic: the changelog.
        partition: of the changelog.
        task: the task's id.
        thread: which thread reads.
        kind: whether for a task that is to process, for a standby, or for a global store.
        start: the offset at which reading began.
        at: the offset up to which it has come, exclusive.
        end: the offset at which the changelog ended when last told.
        records: read so far.
        state: whether it goes on. A standby goes on until it moves or becomes active.
        began_ms: when.
        told_ms: when something was last told.
    """

    store: str
    topic: str
    partition: int
    task: str
    thread: str
    kind: RestoreKind
    start: int
    at: int
    end: int
    records: int
    state: RestoreState
    began_ms: int
    told_ms: int

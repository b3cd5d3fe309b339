"""The entries of the event log. All times are in milliseconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

#: The tasks of each thread.
Ownership = Mapping[str, "OwnedTasks"]


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    active: tuple[str, ...] = ()
    standby: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StateChange:
    at_ms: int
    old: str
    new: str
    why: str


@dataclass(frozen=True, slots=True)
class RebalanceEvent:
    """A rebalance of the instance.

    Args:
        number: counts from 1 for each application object.
        began_ms: when the first thread stopped processing.
        ended_ms: when all threads were running again; None before that.
        why: the reason that the first thread reported.
        after: the tasks owned after the rebalance, or now if it has not ended.
    """

    number: int
    began_ms: int
    ended_ms: int | None
    why: str
    before: Ownership
    after: Ownership


@dataclass(frozen=True, slots=True)
class FailureStep:
    """An event of a thread after its failure."""

    at_ms: int
    text: str


@dataclass(slots=True)
class FailureEvent:
    """An error that ended a thread, or that a listener raised.

    Args:
        number: counts from 1 for each application object.
        at_ms: when the application received the error.
        thread: the thread that ended; None if none did.
        message: what failed, why and what to do, without the place.
        place: the location of the failure.
        answer: the response of the user's handler, or the decision if it was not called.
        stack: the last lines of the traceback, including causes.
        declared_at: the file and line of the user's program where the node was declared.
        steps: later events of the thread, oldest first.
        over: whether the thread or its replacement is running again.
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
    steps: list[FailureStep] = field(default_factory=list)
    over: bool = False


RestoreKind = Literal["active", "standby", "global"]
RestoreState = Literal["running", "done", "suspended"]


@dataclass(slots=True)
class RestoreProgress:
    """The progress of the restoration of one partition of a store.

    Args:
        at: the offset after the last restored record.
        end: the end offset of the changelog according to the last report.
        state: a standby is `running` until it moves or becomes active.
        told_ms: the time of the last report.
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

"""The events that a group member reports to its thread, and `CommitOffset`.

A member reports each rebalance as events, in this order:

    Joining?  →  Revoked?  →  Assigned     a rebalance; Revoked only if partitions move
    Lost      →  Assigned                  the group had removed the member; it rejoined
    Failed                                 the member has ended and reports nothing else

`Joining`, `Revoked` and `Lost` block the member until they are acknowledged, so no other member
gets a partition while this thread still processes it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from millstream.clock import Deadline, SystemClock, Waker
from millstream.errors import StreamsError
from millstream.record import TopicPartition


class CommitOffset(NamedTuple):
    """A committed position in a partition."""

    #: The offset of the next record to process, not of the last record processed.
    offset: int
    #: Text that is stored with the offset. Kafka Streams stores partition times in it.
    metadata: str = ""
    #: The leader epoch of the last record processed; None if unknown.
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Joining:
    """The member is about to join a rebalance: commit, then acknowledge.

    Only reported with `announces_joins`. Between the acknowledgment and the end of the rebalance,
    which may take any time, commits are rejected.
    """


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions move to other members: commit, release them, then acknowledge.

    The member is still in the group, so commits work. It joins the follow-up rebalance, which
    assigns the partitions, only after the acknowledgment.
    """

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assigned:
    """A rebalance is complete, and this member now owns exactly these partitions.

    Also reported if nothing changed. Several rebalances may complete before the stream thread
    polls. If none of them needed an acknowledgment, only the latest is reported.
    """

    partitions: frozenset[TopicPartition]
    user_data: bytes
    generation: int
    member_id: str


@dataclass(frozen=True, slots=True)
class Lost:
    """The group removed this member: others may already own these partitions.

    Commits for them are not possible. Drop the work since the last commit, then acknowledge; the
    member rejoins after that.
    """

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Failed:
    """The member has failed with `error`. Every later poll returns this event."""

    error: StreamsError


MemberEvent: TypeAlias = Joining | Revoked | Assigned | Lost | Failed
#: Events that block the member until they are acknowledged.
BlockingEvent: TypeAlias = Joining | Revoked | Lost


class MemberEventQueue:
    """A queue of events with acknowledgments.

    The protocol bounds the queue to a handful of events: a new `Assigned` replaces one that was not
    taken yet, and after a `Joining`, `Revoked` or `Lost` event the member adds at most one `Lost`
    until all are acknowledged.

    `on_acknowledge` is called in the acknowledging thread. Each event wakes the `waker`, and other
    wakeups of the `waker` also end a `take`. By default, the queue has its own waker.
    """

    def __init__(self, on_acknowledge: Callable[[], None], waker: Waker | None = None) -> None:
        self._on_acknowledge = on_acknowledge
        self._waker = waker or Waker()
        self._is_woken_by_others = waker is not None
        self._waiting: deque[MemberEvent] = deque()
        self._unacknowledged: list[BlockingEvent] = []
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._closed = False

    def put(self, event: MemberEvent) -> None:
        """Append an event; events after `Failed` are dropped."""
        with self._lock:
            last = self._waiting[-1] if self._waiting else None
            if self._closed or isinstance(last, Failed):
                return
            if isinstance(event, Assigned) and isinstance(last, Assigned):
                self._waiting.pop()
            self._waiting.append(event)
            if isinstance(event, Joining | Revoked | Lost):
                self._unacknowledged.append(event)
        self._waker.wake()

    def take(self, timeout_ms: int) -> MemberEvent | None:
        """Return the oldest event, waiting up to `timeout_ms` or until a wakeup.

        `Failed` stays in the queue.
        """
        if timeout_ms > 0 and not self._waiting and not self._closed:
            self._wait(timeout_ms)
        with self._lock:
            if not self._waiting:
                return None
            if isinstance(self._waiting[0], Failed):
                return self._waiting[0]
            return self._waiting.popleft()

    def _wait(self, timeout_ms: int) -> None:
        if self._is_woken_by_others:
            # The owner of the waker clears it before checking for other work.
            self._waker.wait(timeout_ms)
            return
        deadline = Deadline(self._clock, timeout_ms)
        self._waker.clear()
        while not (self._waiting or self._closed):
            if not self._waker.wait(deadline.remaining_ms(timeout_ms)):
                return
            self._waker.clear()

    def acknowledge(self, event: MemberEvent) -> None:
        """Acknowledge an event. An unexpected acknowledgment is ignored."""
        with self._lock:
            self._unacknowledged = [other for other in self._unacknowledged if other is not event]
        self._on_acknowledge()

    def is_unacknowledged(self, event: BlockingEvent | None = None) -> bool:
        """Whether `event` (by default, any event) is not acknowledged yet."""
        with self._lock:
            if event is None:
                return bool(self._unacknowledged)
            return any(other is event for other in self._unacknowledged)

    def withdraw(self, event: BlockingEvent) -> bool:
        """Remove an event, unless the stream thread has already taken it."""
        with self._lock:
            for index, other in enumerate(self._waiting):
                if other is event:
                    del self._waiting[index]
                    self._unacknowledged = [
                        other for other in self._unacknowledged if other is not event
                    ]
                    return True
            return False

    def close(self) -> None:
        """Drop all events and wake the waiting thread."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._unacknowledged.clear()
        self._waker.wake()

"""Events on their way from a group member's thread to its stream thread, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from millstream.clock import Deadline, SystemClock
from millstream.kafka.member.events import Assigned, Failed, Joining, Lost, MemberEvent, Revoked
from millstream.waker import Waker

#: Events that hold the member back until they are acknowledged.
Withheld: TypeAlias = Joining | Revoked | Lost


class Mailbox:
    """A queue from one thread to another, with receipts.

    Bounded by what it holds: an `Assigned` nobody has taken yet is replaced by the next one, and
    the member puts nothing behind a `Joining`, a `Revoked` or a `Lost` but one `Lost` until they
    are acknowledged. So there are never more than a handful of events.

    Args:
        on_receipt: called, in the acknowledging thread, after a receipt has come in.
        waker: woken by each event; others that wake it end a `take`, too. None if there are none.
    """

    def __init__(self, on_receipt: Callable[[], None], waker: Waker | None = None) -> None:
        self._on_receipt = on_receipt
        self._waker = waker or Waker()
        self._is_woken_by_others = waker is not None
        self._waiting: deque[MemberEvent] = deque()
        self._unacknowledged: list[Withheld] = []
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._closed = False

    def put(self, event: MemberEvent) -> None:
        """Append an event; nothing comes after `Failed`."""
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
        """The oldest event, waiting up to `timeout_ms` for one, or until somebody wakes the waker.

        `Failed` stays in its place.
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
            # Who owns the waker clears it, before looking for what others have.
            self._waker.wait(timeout_ms)
            return
        deadline = Deadline(self._clock, timeout_ms)
        self._waker.clear()
        while not (self._waiting or self._closed):
            if not self._waker.wait(deadline.remaining_ms(timeout_ms)):
                return
            self._waker.clear()

    def acknowledge(self, event: MemberEvent) -> None:
        """Take the receipt for an event. A receipt that nobody waits for any more is ignored."""
        with self._lock:
            self._unacknowledged = [other for other in self._unacknowledged if other is not event]
        self._on_receipt()

    def awaits(self, event: Withheld | None = None) -> bool:
        """Whether the receipt for `event` is still to come; without one, whether any is."""
        with self._lock:
            if event is None:
                return bool(self._unacknowledged)
            return any(other is event for other in self._unacknowledged)

    def withdraw(self, event: Withheld) -> bool:
        """Take an event back, unless the stream thread already has it."""
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
        """Forget all events and wake whoever waits for one."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
            self._unacknowledged.clear()
        self._waker.wake()

"""By when deferred tasks have to be completed."""

from __future__ import annotations

import weakref
from collections import deque
from heapq import heappop, heappush
from itertools import count

from millstream.clock import Clock
from millstream.subscriptions.completion import Completion


class Deadlines:
    """The deadlines of deferred tasks. Keeps no completion alive.

    Args:
        clock: the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tickets = count()
        self._waiting: list[tuple[int, int, weakref.ref[Completion]]] = []
        #: From any thread.
        self._new: deque[weakref.ref[Completion]] = deque()

    def keep(self, completion: Completion) -> None:
        """Look after one; on any thread."""
        self._new.append(weakref.ref(completion))

    @property
    def are_due(self) -> bool:
        """Whether `expire` may have something to do."""
        if self._new:
            return True
        return bool(self._waiting) and self._waiting[0][0] <= self._clock.monotonic_ms()

    def expire(self) -> int:
        """Let those time out that are not completed by now; how many they are."""
        while self._new:
            self._watch(self._new.popleft())
        now_ms, expired = self._clock.monotonic_ms(), 0
        while self._waiting and self._waiting[0][0] <= now_ms:
            _, _, reference = heappop(self._waiting)
            completion = reference()
            if completion is None or completion.is_done:
                continue
            expired += 1
            completion.time_out()
            # Its time may have been extended.
            self._watch(reference)
        return expired

    def _watch(self, reference: weakref.ref[Completion]) -> None:
        completion = reference()
        if completion is not None and not completion.is_done:
            assert completion.deadline_ms is not None
            heappush(self._waiting, (completion.deadline_ms, next(self._tickets), reference))

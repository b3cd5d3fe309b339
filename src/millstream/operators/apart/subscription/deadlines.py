"""By when deferred tasks have to be completed."""

from __future__ import annotations

import weakref
from collections import deque
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Final

from millstream.clock import Clock
from millstream.subscriptions.completion import Completion

#: So many are kept in any case before it is looked for those that are done.
_FEW: Final = 1_000


class Deadlines:
    """The deadlines of deferred tasks. Keeps no completion alive.

    Args:
        clock: the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tickets = count()
        self._waiting: list[tuple[int, int, weakref.ref[Completion]]] = []
        self._most = _FEW
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
            completion.time_out()
            if completion.is_done:
                expired += 1
            else:
                # It was extended.
                self._watch(reference)
        if len(self._waiting) > self._most:
            self._forget_done()
        return expired

    def _forget_done(self) -> None:
        """Most are completed long before their time, and 100,000 of them were 18 MB."""
        waiting = [each for each in self._waiting if _is_open(each[2]())]
        heapify(waiting)
        self._waiting = waiting
        self._most = max(_FEW, 2 * len(waiting))

    def _watch(self, reference: weakref.ref[Completion]) -> None:
        completion = reference()
        if _is_open(completion):
            assert completion is not None
            assert completion.deadline_ms is not None
            heappush(self._waiting, (completion.deadline_ms, next(self._tickets), reference))


def _is_open(completion: Completion | None) -> bool:
    return completion is not None and not completion.is_done

"""Tasks that were taken but may not start yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from millstream.clock import Clock
from millstream.operators.concurrent.concurrent_calls import Call
from millstream.subscriptions.operator.admission import Admission


class QueuedTasks:
    """The tasks of a partition that may not start yet.

    They wait for their scheduled time, an earlier task of their key, or the rate limit. A task is
    charged to the rate limit only when it starts.

    Semantics: Decaton's `ExecutionScheduler`, except that Decaton also delays all other keys of the
    task's subpartition.
    """

    def __init__(self, clock: Clock, admission: Admission, *, keeps_order: bool) -> None:
        #: Whether no task may start.
        self.is_paused = False
        self._clock = clock
        self._admission = admission
        self._keeps_order = keeps_order
        self._sequence = count()
        self._size = 0
        #: Tasks before their scheduled time, and whether they block other tasks of their key.
        self._scheduled: list[tuple[int, int, Call, bool]] = []
        #: By key: the tasks that wait behind a scheduled task of the same key, with their own
        #: scheduled times.
        self._key_queues: dict[bytes, deque[tuple[int, Call]]] = {}
        #: Tasks that only wait for the rate limit.
        self._ready: deque[Call] = deque()
        #: With a rate limit: the busy units, and the tasks that wait for each of them. Calls must
        #: not queue up inside the units, since each call is charged when it starts.
        self._busy_units: set[Any] = set()
        self._waiting_for_unit: dict[Any, deque[Call]] = {}

    def __len__(self) -> int:
        return self._size

    def may_start_now(self, keys: Iterable[bytes | None]) -> bool:
        if self.is_paused or self._ready or self._admission.is_limited:
            return False
        return not self._key_queues or self._key_queues.keys().isdisjoint(keys)

    def queue_if_blocked(self, call: Call, due_ms: int) -> bool:
        """Queue a task if it may not start now. Returns whether it was queued.

        `due_ms` is 0 for a task without a scheduled time.
        """
        key: bytes | None = call.context.raw_key
        key_queue = None if key is None else self._key_queues.get(key)
        if key_queue is not None:
            key_queue.append((due_ms, call))
        elif due_ms > self._clock.now_ms():
            blocks_key = self._keeps_order and key is not None
            self._schedule(call, due_ms, blocks_key=blocks_key)
            if blocks_key and key is not None:
                self._key_queues[key] = deque()
        elif self.is_paused or self._ready or self._admission.is_limited:
            self._ready.append(call)
        else:
            return False
        self._size += 1
        return True

    def queue_until(self, call: Call, due_ms: int) -> None:
        """Queue a task until its scheduled time without blocking other tasks of its key."""
        self._schedule(call, due_ms, blocks_key=False)
        self._size += 1

    def put_back(self, calls: Sequence[Call]) -> None:
        """Put calls that were taken but not started back into the queue.

        Calls of one key may be put back in several parts.
        """
        self._ready = deque(sorted([*self._ready, *calls], key=_offset))
        self._size += len(calls)

    def may_start(self, max_calls: int | None) -> bool:
        """Return whether any task may start or has reached its scheduled time.

        `max_calls` is the number of free call slots with a rate limit; None for no maximum.
        """
        if self.is_paused:
            return False
        if self._scheduled and self._scheduled[0][0] <= self._clock.now_ms():
            return True
        if not self._ready:
            return False
        return not self._admission.is_limited or (max_calls != 0 and self._admission.permits > 0)

    def release_due(self) -> list[int]:
        """Move due tasks, and due tasks of the same keys behind them, to the ready tasks.

        Returns the delays in milliseconds of the tasks that have waited for their scheduled time.
        """
        late: list[int] = []
        now_ms, scheduled, ready = self._clock.now_ms(), self._scheduled, self._ready
        while scheduled and scheduled[0][0] <= now_ms:
            due_ms, _, call, blocks_key = heappop(scheduled)
            late.append(now_ms - due_ms)
            ready.append(call)
            if blocks_key:
                self._release_queue(call.context.raw_key, now_ms)
        return late

    def take(self, max_calls: int | None, unit: Callable[[bytes | None], Any]) -> list[Call]:
        """Take the tasks that start now, in order, and assign each its unit.

        `max_calls` is as for `may_start`.
        """
        if self.is_paused:
            return []
        ready = self._ready
        left = len(ready) if max_calls is None else max(0, max_calls)
        if not self._admission.is_limited:
            calls = [ready.popleft() for _ in range(min(left, len(ready)))]
            for call in calls:
                call.unit = unit(call.context.raw_key)
        else:
            calls = self._take_by_rate(min(left, self._admission.permits), unit)
            self._admission.charge(len(calls))
        self._size -= len(calls)
        return calls

    def release_units_of(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call.unit not in self._busy_units:
                continue
            self._busy_units.discard(call.unit)
            blocked = self._waiting_for_unit.get(call.unit)
            if blocked:
                # Put the task first, because it has waited longer than the ready tasks.
                self._ready.appendleft(blocked.popleft())
                if not blocked:
                    del self._waiting_for_unit[call.unit]

    def clear_units(self) -> None:
        """Release all tasks that wait for units.

        Called when the units change or the rate limit was removed.
        """
        if self._waiting_for_unit:
            ready = [*self._ready]
            for blocked in self._waiting_for_unit.values():
                ready += blocked
            # Restore the order of offsets within each key.
            self._ready = deque(sorted(ready, key=_offset))
        self._waiting_for_unit.clear()
        self._busy_units.clear()

    def _schedule(self, call: Call, due_ms: int, *, blocks_key: bool) -> None:
        heappush(self._scheduled, (due_ms, next(self._sequence), call, blocks_key))

    def _release_queue(self, key: bytes, now_ms: int) -> None:
        """Release the tasks of a key that precede the first one that is not due yet."""
        key_queue = self._key_queues[key]
        while key_queue:
            due_ms, call = key_queue.popleft()
            if due_ms > now_ms:
                self._schedule(call, due_ms, blocks_key=True)
                return
            self._ready.append(call)
        del self._key_queues[key]

    def _take_by_rate(self, max_calls: int, unit: Callable[[bytes | None], Any]) -> list[Call]:
        calls: list[Call] = []
        while self._ready and len(calls) < max_calls:
            call = self._ready.popleft()
            number = call.unit = unit(call.context.raw_key)
            if number in self._busy_units:
                self._waiting_for_unit.setdefault(number, deque()).append(call)
                continue
            if number is not None:
                self._busy_units.add(number)
            calls.append(call)
        return calls


def _offset(call: Call) -> int:
    offset: int = call.context.offset
    return offset

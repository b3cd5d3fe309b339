"""What was taken and may not begin yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any

from millstream.clock import Clock
from millstream.operators.apart.calls import Call
from millstream.operators.apart.subscription.admission import Admission


class Waiting:
    """The tasks of a partition that wait for their time, for one of their key that does, or for the
    rate. Each costs a permit where it begins, and no sooner.

    Semantics: Decaton's `ExecutionScheduler`, which lets everything else in a task's subpartition
    wait as well, whatever its key.

    Args:
        clock: the time.
        admission: knows the rate.
        keeps_order: whether tasks wait for those before them that have the same key.

    Attributes:
        is_held: whether nothing may begin at all.
    """

    def __init__(self, clock: Clock, admission: Admission, *, keeps_order: bool) -> None:
        self.is_held = False
        self._clock = clock
        self._admission = admission
        self._keeps_order = keeps_order
        self._tickets = count()
        self._size = 0
        #: Those whose time has not come, and whether others wait in the line of their key.
        self._scheduled: list[tuple[int, int, Call, bool]] = []
        #: By key: those behind one whose time has not come, with their own times.
        self._lines: dict[bytes, deque[tuple[int, Call]]] = {}
        #: Those that wait for nothing but the rate.
        self._ready: deque[Call] = deque()
        #: With a rate: the units that are at work, and what waits for one of them. A call costs a
        #: permit, so it is not to queue up elsewhere.
        self._busy: set[Any] = set()
        self._blocked: dict[Any, deque[Call]] = {}

    def __len__(self) -> int:
        return self._size

    def lets_pass(self, keys: Iterable[bytes | None]) -> bool:
        """Whether tasks with these keys may begin at once, if their time has come. Asked for many
        at a time: the one question that tasks without rate and schedule cost."""
        if self.is_held or self._ready or self._admission.is_limited:
            return False
        return not self._lines or self._lines.keys().isdisjoint(keys)

    def keep(self, call: Call, due_ms: int) -> bool:
        """Keep a task if it may not begin now; whether it is kept.

        Args:
            call: the task.
            due_ms: its time; 0 for none.
        """
        key: bytes | None = call.context.raw_key
        line = None if key is None else self._lines.get(key)
        if line is not None:
            line.append((due_ms, call))
        elif due_ms > self._clock.now_ms():
            leads = self._keeps_order and key is not None
            self._schedule(call, due_ms, leads=leads)
            if leads and key is not None:
                self._lines[key] = deque()
        elif self.is_held or self._ready or self._admission.is_limited:
            self._ready.append(call)
        else:
            return False
        self._size += 1
        return True

    def keep_alone(self, call: Call, due_ms: int) -> None:
        """Keep one until its time that nothing waits for."""
        self._schedule(call, due_ms, leads=False)
        self._size += 1

    def put_back(self, calls: Sequence[Call]) -> None:
        """These were let go, and have not begun after all. Those of a key may come in parts."""
        self._ready = deque(sorted([*self._ready, *calls], key=_offset))
        self._size += len(calls)

    def may_begin(self, most: int | None) -> bool:
        """Whether any may begin now, or has come to its time.

        Args:
            most: how many calls there is room for, if there is a rate; None for any number.
        """
        if self.is_held:
            return False
        if self._scheduled and self._scheduled[0][0] <= self._clock.now_ms():
            return True
        if not self._ready:
            return False
        return not self._admission.is_limited or (most != 0 and self._admission.permits > 0)

    def let_due(self) -> list[int]:
        """Those whose time has come wait for the rate from now on, with those behind them.

        Returns:
            How late each of those is that had a time.
        """
        late: list[int] = []
        now_ms, scheduled, ready = self._clock.now_ms(), self._scheduled, self._ready
        while scheduled and scheduled[0][0] <= now_ms:
            due_ms, _, call, leads = heappop(scheduled)
            late.append(now_ms - due_ms)
            ready.append(call)
            if leads:
                self._let_line(call.context.raw_key, now_ms)
        return late

    def take(self, most: int | None, unit: Callable[[bytes | None], Any]) -> list[Call]:
        """Those that begin now, in their order; each is given its unit.

        Args:
            most: how many at most, as for `may_begin`.
            unit: which one works on the next task of a key.
        """
        if self.is_held:
            return []
        ready = self._ready
        left = len(ready) if most is None else max(0, most)
        if not self._admission.is_limited:
            calls = [ready.popleft() for _ in range(min(left, len(ready)))]
            for call in calls:
                call.unit = unit(call.context.raw_key)
        else:
            calls = self._take_by_rate(min(left, self._admission.permits), unit)
            self._admission.charge(len(calls))
        self._size -= len(calls)
        return calls

    def ended(self, calls: Iterable[Call]) -> None:
        """The units of these are free again."""
        for call in calls:
            if call.unit not in self._busy:
                continue
            self._busy.discard(call.unit)
            blocked = self._blocked.get(call.unit)
            if blocked:
                # In front: it has waited for longer than what is ready.
                self._ready.appendleft(blocked.popleft())
                if not blocked:
                    del self._blocked[call.unit]

    def forget_units(self) -> None:
        """There are other units from now on, or no rate any more: nothing waits for a unit."""
        if self._blocked:
            all_of_them = [*self._ready]
            for blocked in self._blocked.values():
                all_of_them += blocked
            # Those of a key are in the order of their offsets, wherever they were.
            self._ready = deque(sorted(all_of_them, key=_offset))
        self._blocked.clear()
        self._busy.clear()

    def _schedule(self, call: Call, due_ms: int, *, leads: bool) -> None:
        heappush(self._scheduled, (due_ms, next(self._tickets), call, leads))

    def _let_line(self, key: bytes, now_ms: int) -> None:
        """The first of a key has its time: those behind it go on, up to one that has not."""
        line = self._lines[key]
        while line:
            due_ms, call = line.popleft()
            if due_ms > now_ms:
                self._schedule(call, due_ms, leads=True)
                return
            self._ready.append(call)
        del self._lines[key]

    def _take_by_rate(self, most: int, unit: Callable[[bytes | None], Any]) -> list[Call]:
        calls: list[Call] = []
        while self._ready and len(calls) < most:
            call = self._ready.popleft()
            number = call.unit = unit(call.context.raw_key)
            if number in self._busy:
                self._blocked.setdefault(number, deque()).append(call)
                continue
            if number is not None:
                self._busy.add(number)
            calls.append(call)
        return calls


def _offset(call: Call) -> int:
    offset: int = call.context.offset
    return offset

"""Plain functions on threads, those of a unit one after the other."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millstream.operators.apart.calls import Call
from millstream.operators.apart.landing import Ended, Landing

#: So long a thread without work stays.
_IDLE_S = 10.0


class _Seat:
    """A queue of calls, and the thread that makes them, while there are any."""

    __slots__ = ("calls", "is_running", "is_taken", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.calls: queue.SimpleQueue[Sequence[Call]] = queue.SimpleQueue()
        self.is_taken = False
        self.is_running = False


class Threads:
    """Takes what `Apart.threads` takes, and where to tell that calls have ended. It is `Units`.

    A unit belongs to one of the threads, by its hash; a call without a unit to whichever has time
    first. A thread gets what it is to do of a batch at once: handing over a call costs 0.1 us, not
    the 2 us of a queue.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        most: int,
        landing: Landing,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._landing = landing
        self._ended = Ended(landing)
        self._seats = [_Seat(number) for number in range(most)]
        #: Calls for anybody. Who adds looks for somebody idle, and who is about to be idle looks
        #: here, under this lock: none is overlooked.
        self._free: deque[Call] = deque()
        self._lock = threading.Lock()
        self._halted = False
        self._closed = False

    @property
    def have_ended(self) -> bool:
        """Whether calls have ended since `ended`."""
        return bool(self._ended)

    @property
    def are_running(self) -> bool:
        """Whether calls were begun that are not to be had from `ended` yet."""
        return any(seat.is_running for seat in self._seats)

    def halt(self) -> None:
        """Begin no more."""
        self._halted = True

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls as soon as their threads have time."""
        count = len(self._seats)
        by_seat: dict[int, list[Call]] = {}
        free: list[Call] = []
        for call in calls:
            if call.unit is None:
                free.append(call)
            else:
                by_seat.setdefault(hash(call.unit) % count, []).append(call)
        for number, mine in by_seat.items():
            self._seat(self._seats[number], mine)
        if free:
            with self._lock:
                self._free.extend(free)
                idle = [seat for seat in self._seats if not seat.is_running][: len(free)]
            for seat in idle:
                self._seat(seat, ())

    def _seat(self, seat: _Seat, calls: Sequence[Call]) -> None:
        """Let a thread make these calls, or look for those that are for anybody."""
        with self._lock:
            seat.calls.put(calls)
            if seat.is_taken:
                return
            seat.is_taken = True
        threading.Thread(
            target=self._work, args=(seat,), name=f"unit-{seat.number}", daemon=True
        ).start()

    def ended(self) -> list[Call]:
        """The calls that have ended since the last time."""
        return self._ended.take()

    def close(self, *, cancel: bool = True) -> None:
        """Begin no more. What runs cannot be ended."""
        self._halted = self._closed = True
        for seat in self._seats:
            seat.calls.put(())

    def _work(self, seat: _Seat) -> None:
        while not self._closed:
            try:
                calls = seat.calls.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if seat.calls.empty():
                        seat.is_taken = False
                        return
                continue
            # Before it is asked whether to begin: whoever halts looks at the two the other way.
            seat.is_running = True
            for call in calls:
                if self._halted:
                    break
                self._make(call)
            while (free := self._next_free(seat)) is not None:
                self._make(free)
            if self._halted and not self._closed:
                self._landing.tell()

    def _next_free(self, seat: _Seat) -> Call | None:
        """A call for anybody; None, and the seat is idle, if there is none, or it has its own."""
        with self._lock:
            others: Sequence[_Seat] = ()
            if self._free and not self._halted:
                if seat.calls.empty():
                    return self._free.popleft()
                others = [other for other in self._seats if not other.is_running][:1]
            seat.is_running = False
        for other in others:
            self._seat(other, ())
        return None

    def _make(self, call: Call) -> None:
        try:
            call.result = self._function(*self._arguments(call))
        except BaseException as error:
            call.error = error
        if not self._closed:
            self._ended.add(call)

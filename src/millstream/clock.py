"""Injectable clocks, deadlines, and wakeups of waiting threads.

Only this module reads the system's clocks.
"""

from __future__ import annotations

import queue
import time
from typing import Final, Protocol


class Clock(Protocol):
    """The engine's source of time, which tests replace."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch, for timestamps."""

    def monotonic_ms(self) -> int:
        """Return milliseconds from an arbitrary start, for intervals and deadlines."""

    def sleep_ms(self, milliseconds: int) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1_000)


class ManualClock:
    """A clock that only moves on `advance` and `sleep_ms`, for the test driver."""

    def __init__(self, now_ms: int = 0) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._now_ms

    def sleep_ms(self, milliseconds: int) -> None:
        self.advance(milliseconds)

    def advance(self, milliseconds: int) -> None:
        """Move forward by `milliseconds`, which must not be negative."""
        if milliseconds < 0:
            raise ValueError(f"Time only moves forward, but advance() got {milliseconds} ms.")
        self._now_ms += milliseconds


class Deadline:
    """A point in time at which a timeout expires; a timeout of None never expires."""

    def __init__(self, clock: Clock, timeout_ms: int | None) -> None:
        self._clock = clock
        self._at_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms

    @property
    def passed(self) -> bool:
        return self._at_ms is not None and self._clock.monotonic_ms() >= self._at_ms

    @property
    def left_ms(self) -> int | None:
        """The remaining milliseconds, at least zero; None without a timeout."""
        return None if self._at_ms is None else max(0, self._at_ms - self._clock.monotonic_ms())

    def remaining_ms(self, max_ms: int) -> int:
        """Return the remaining milliseconds, at most `max_ms` and at least zero."""
        if self._at_ms is None:
            return max_ms
        return max(0, min(max_ms, self._at_ms - self._clock.monotonic_ms()))


_CLOCK: Final = SystemClock()


class Waker:
    """Ends the wait of its owning thread, from any other thread or a signal handler.

    A wakeup outside of a wait is not lost: later waits return immediately until the owner calls
    `clear`. An owner that calls `clear` before it checks for work therefore misses no wakeup.
    """

    def __init__(self) -> None:
        self._is_set = False
        # `SimpleQueue.put` takes no lock that the interrupted code could hold.
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def is_set(self) -> bool:
        """Whether `wake` was called since the last `clear`.

        For waits that cannot be interrupted and are therefore split into slices.
        """
        return self._is_set

    def wake(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._tokens.put(None)

    def wait(self, timeout_ms: int) -> bool:
        """Wait for a wakeup. Returns whether one arrived."""
        deadline = Deadline(_CLOCK, timeout_ms)
        # A wakeup that was cleared may have left a token.
        while not self._is_set:
            try:
                self._tokens.get(timeout=deadline.remaining_ms(timeout_ms) / 1_000)
            except queue.Empty:
                break
        return self._is_set

    def clear(self) -> None:
        """Reset the waker. Call this before checking for work."""
        self._is_set = False
        while not self._tokens.empty():
            try:
                self._tokens.get_nowait()
            except queue.Empty:
                return

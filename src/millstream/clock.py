"""Time, as something that can be handed in: only here is the machine asked what time it is."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What the engine asks for the time, so that tests can give it theirs."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: for timestamps."""
        ...

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back, from an arbitrary start: for intervals and deadlines."""
        ...

    def sleep_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, milliseconds: int) -> None:
        time.sleep(milliseconds / 1_000)


class ManualClock:
    """A clock that moves only when told to. The test driver's.

    Args:
        now_ms: the wall-clock time to begin with, in milliseconds since the epoch.
    """

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
            raise ValueError(
                f"Time only moves forward, but was asked to move by {milliseconds} ms."
            )
        self._now_ms += milliseconds


class Deadline:
    """A moment by which something must have happened.

    Args:
        clock: where the time is read.
        timeout_ms: milliseconds from now; None means never.
    """

    def __init__(self, clock: Clock, timeout_ms: int | None) -> None:
        self._clock = clock
        self._at_ms = None if timeout_ms is None else clock.monotonic_ms() + timeout_ms

    @property
    def passed(self) -> bool:
        return self._at_ms is not None and self._clock.monotonic_ms() >= self._at_ms

    @property
    def left_ms(self) -> int | None:
        """Milliseconds left, no less than zero; None where it never comes."""
        return None if self._at_ms is None else max(0, self._at_ms - self._clock.monotonic_ms())

    def remaining_ms(self, most: int) -> int:
        """Milliseconds left, but no more than `most` and no less than zero."""
        if self._at_ms is None:
            return most
        return max(0, min(most, self._at_ms - self._clock.monotonic_ms()))

"""How often the log repeats that something does not work yet."""

from __future__ import annotations

from typing import Final

from millstream.clock import Clock

_LONGEST_MS: Final = 30_000


class LogInterval:
    """When a repeated log line is due: after intervals that double, up to 30 s.

    An outage of 5 minutes takes 13 lines that way, and 300 with one each second.

    Args:
        clock: the time.
        first_ms: from now to the first line, and from there to the second; 0 for a line at once.
        least_ms: the shortest interval after the first line.
    """

    def __init__(self, clock: Clock, *, first_ms: int, least_ms: int = 1_000) -> None:
        self._clock = clock
        self._pause_ms = max(first_ms, least_ms)
        self._due_ms = clock.monotonic_ms() + first_ms

    @property
    def is_due(self) -> bool:
        """Whether a line is due now; the next one is due after twice the interval."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _LONGEST_MS)
        return True

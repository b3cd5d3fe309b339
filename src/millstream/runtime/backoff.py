"""Pauses before something that failed is tried again: longer each time, up to a longest one."""

from __future__ import annotations

from millstream.clock import Clock


class Backoff:
    """The pauses of one thing that may fail again and again. When to give up is for its owner.

    Args:
        clock: tells how long it went well in between.
        first_ms: the first pause; each further one is twice as long.
        most_ms: the longest pause.
        calm_ms: after going well for so long the next pause is a first one; None leaves that to
            `reset`.
    """

    def __init__(
        self, clock: Clock, *, first_ms: int, most_ms: int, calm_ms: int | None = None
    ) -> None:
        self._clock = clock
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._calm_ms = calm_ms
        self._pause_ms = first_ms
        self._tried_again_ms: int | None = None

    def next_pause_ms(self) -> int:
        """It failed: how long to pause, in milliseconds."""
        now_ms = self._clock.monotonic_ms()
        if self._calm_ms is not None and self._tried_again_ms is not None:
            went_well_ms = now_ms - self._tried_again_ms
            if went_well_ms >= self._calm_ms:
                self.reset()
        pause_ms = min(self._pause_ms, self._most_ms)
        self._pause_ms = 2 * pause_ms
        self._tried_again_ms = now_ms + pause_ms
        return pause_ms

    def reset(self) -> None:
        """It works: the next pause is a first one."""
        self._pause_ms = self._first_ms

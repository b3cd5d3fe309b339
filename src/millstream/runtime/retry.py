"""Trying again what may work later: with growing pauses, without blocking, and not for ever."""

from __future__ import annotations

import logging

from millstream.clock import Clock

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 100
_LAST_PAUSE_MS = 10_000


class Retry:
    """When something that failed is tried next.

    Args:
        what: for the log, for example "opening task 0_1".
        clock: for the pauses.
        timeout_ms: after failing for so long the error is raised; None never raises it.
    """

    def __init__(self, what: str, clock: Clock, timeout_ms: int | None) -> None:
        self._what = what
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._pause_ms = _FIRST_PAUSE_MS
        self._next_ms = clock.monotonic_ms()
        self._failing_since_ms: int | None = None

    @property
    def is_due(self) -> bool:
        """Whether to try now."""
        return self._clock.monotonic_ms() >= self._next_ms

    def failed(self, error: Exception) -> None:
        """It failed: pause, or raise the error if it has failed for too long."""
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        failing_ms = now_ms - self._failing_since_ms
        if self._timeout_ms is not None and failing_ms >= self._timeout_ms:
            raise error
        logger.info("%s did not work, trying again in %d ms: %s", self._what, self._pause_ms, error)
        self._next_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _LAST_PAUSE_MS)

    def worked(self) -> None:
        """It worked: the next failure is a first one again."""
        self._failing_since_ms = None
        self._pause_ms = _FIRST_PAUSE_MS

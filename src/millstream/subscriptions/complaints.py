"""Telling in the log what goes wrong again and again, only once in a while."""

from __future__ import annotations

import logging
from typing import Final

from millstream.clock import Clock

_EVERY_MS: Final = 10_000


class Complaints:
    """Warnings of one kind: the first at once, then at most one in ten seconds, which says how many
    there were in between.

    Args:
        logger: where they go.
        clock: the time.
    """

    def __init__(self, logger: logging.Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._untold = 0
        self._next_ms: int | None = None

    def tell(self, what: str, error: BaseException) -> None:
        """Something went wrong, with this error."""
        now_ms = self._clock.monotonic_ms()
        if self._next_ms is not None and now_ms < self._next_ms:
            self._untold += 1
            return
        before = f" ({self._untold} more were not told)" if self._untold else ""
        self._logger.warning("%s: %s%s", what, error, before, exc_info=error)
        self._untold, self._next_ms = 0, now_ms + _EVERY_MS

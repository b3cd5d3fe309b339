"""Telling in the log what goes wrong again and again, only once in a while."""

from __future__ import annotations

import logging
import threading
from typing import Final

from millstream.clock import Clock
from millstream.errors import text_of

_EVERY_MS: Final = 10_000


class Complaints:
    """Warnings of one kind: the first at once, then at most one in ten seconds, which says how many
    there were in between. Usable from several threads.

    Args:
        logger: where they go.
        clock: the time.
        every_ms: how often there may be one, in milliseconds.
    """

    def __init__(self, logger: logging.Logger, clock: Clock, every_ms: int = _EVERY_MS) -> None:
        self._every_ms = every_ms
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._untold = 0
        self._next_ms: int | None = None

    def tell(self, what: str, error: BaseException | None = None) -> None:
        """Something went wrong, with this error if it was one."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if self._next_ms is not None and now_ms < self._next_ms:
                self._untold += 1
                return
            untold, self._untold, self._next_ms = self._untold, 0, now_ms + self._every_ms
        before = f" ({untold} more were not told)" if untold else ""
        if error is None:
            self._logger.warning("%s%s", what, before)
        else:
            self._logger.warning("%s: %s%s", what, text_of(error), before, exc_info=error)

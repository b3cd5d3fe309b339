"""Rate-limited warnings for repeated problems."""

from __future__ import annotations

import logging
import threading
from typing import Final

from millstream.clock import Clock
from millstream.errors import text_of

_EVERY_MS: Final = 10_000


class RateLimitedLog:
    """Logs warnings of one kind at a limited rate. Thread-safe.

    The first warning is logged immediately, then at most one per `every_ms` (10 seconds by
    default), with the number of suppressed warnings.
    """

    def __init__(self, logger: logging.Logger, clock: Clock, every_ms: int = _EVERY_MS) -> None:
        self._every_ms = every_ms
        self._logger = logger
        self._clock = clock
        self._lock = threading.Lock()
        self._suppressed = 0
        self._next_ms: int | None = None

    def warning(self, message: str, error: BaseException | None = None) -> None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if self._next_ms is not None and now_ms < self._next_ms:
                self._suppressed += 1
                return
            suppressed, self._suppressed, self._next_ms = (
                self._suppressed,
                0,
                now_ms + self._every_ms,
            )
        suffix = f" ({suppressed} more were suppressed)" if suppressed else ""
        if error is None:
            self._logger.warning("%s%s", message, suffix)
        else:
            self._logger.warning("%s: %s%s", message, text_of(error), suffix, exc_info=error)

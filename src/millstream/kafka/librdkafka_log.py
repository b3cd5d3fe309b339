"""What librdkafka has to say, as lines of Python's `logging`, and each not more often than is
useful.

While no broker can be reached, every client reports every attempt to connect, several a second. The
same news is logged once in half a minute.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

from millstream.clock import Clock, SystemClock

_SILENT_MS: Final = 30_000
#: Different news that are remembered; when there are more, all are logged anew.
_REMEMBERED_MAX: Final = 200
#: Names of threads, times and addresses change from line to line, the news does not.
_CHANGING: Final = re.compile(r"\[thrd:[^\]]*\]|\d+")
#: What passes by itself, as a rule: a broker's coordinator that has just started.
_PASSING: Final = re.compile(r"Coordinator load in progress.*retrying")


class ClientLog:
    """Stands in for a logger where confluent-kafka wants one. Called from several threads.

    Args:
        logger: where lines go.
        clock: for how long the same news is left out.
    """

    def __init__(self, logger: logging.Logger, clock: Clock | None = None) -> None:
        self._logger = logger
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: When each news was logged last, and how often it was left out since.
        self._seen: dict[str, tuple[int, int]] = {}

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a line unless its like was logged a moment ago."""
        # Trouble with a connection is an error to librdkafka, which then tries again; nothing
        # failed yet.
        level = min(level, logging.WARNING)
        if not self._logger.isEnabledFor(level):
            return
        text = message % arguments if arguments else message
        left_out = self._left_out(_CHANGING.sub("", text))
        if left_out is not None:
            if not left_out and _PASSING.search(text):
                # Worth a warning only if it is still so in half a minute.
                level = min(level, logging.INFO)
            more = f" ({left_out} lines like this were left out)" if left_out else ""
            self._logger.log(level, "%s%s", text, more)

    def _left_out(self, news: str) -> int | None:
        """How often it was left out before this time; None if it is to be left out now, too."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            last_ms, left_out = self._seen.get(news, (None, 0))
            if last_ms is not None and now_ms - last_ms < _SILENT_MS:
                self._seen[news] = (last_ms, left_out + 1)
                return None
            if len(self._seen) >= _REMEMBERED_MAX:
                self._seen.clear()
            self._seen[news] = (now_ms, 0)
            return left_out


#: Of all data clients of this process.
CLIENT_LOG: Final = ClientLog(logging.getLogger("millstream.kafka.librdkafka"))

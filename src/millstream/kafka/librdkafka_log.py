"""Forwards librdkafka's log to Python's `logging`, with rate limiting.

While no broker is reachable, every client reports every connection attempt, several per second.
Each message is logged at most once every 30 seconds.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

from millstream.clock import Clock, SystemClock

_INTERVAL_MS: Final = 30_000
#: Maximum number of tracked messages; when it is reached, tracking starts over.
_TRACKED_MAX: Final = 200
#: The variable parts of a message: thread names, times and addresses.
_VARIABLE: Final = re.compile(r"\[thrd:[^\]]*\]|\d+")
#: A usually temporary problem: a broker that has just started is loading the coordinator's state.
_TRANSIENT: Final = re.compile(r"Coordinator load in progress.*retrying")


class LibrdkafkaLogger:
    """A rate-limited logger for confluent-kafka. Thread-safe."""

    def __init__(self, logger: logging.Logger, clock: Clock | None = None) -> None:
        self._logger = logger
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        #: For each message, the time of its latest log line and the number suppressed since.
        self._seen: dict[str, tuple[int, int]] = {}

    def log(self, level: int, message: str, *arguments: object) -> None:
        """Log a message unless the same message was logged within the last 30 seconds."""
        # librdkafka logs connection problems as errors, although it retries and no request has
        # failed yet.
        level = min(level, logging.WARNING)
        if not self._logger.isEnabledFor(level):
            return
        text = message % arguments if arguments else message
        suppressed = self._suppressed(_VARIABLE.sub("", text))
        if suppressed is not None:
            if not suppressed and _TRANSIENT.search(text):
                # A warning only if the problem persists for 30 seconds.
                level = min(level, logging.INFO)
            more = f" ({suppressed} similar lines were suppressed)" if suppressed else ""
            self._logger.log(level, "%s%s", text, more)

    def _suppressed(self, message: str) -> int | None:
        """Return how often the message was suppressed; None to suppress it again."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            last_ms, suppressed = self._seen.get(message, (None, 0))
            if last_ms is not None and now_ms - last_ms < _INTERVAL_MS:
                self._seen[message] = (last_ms, suppressed + 1)
                return None
            if len(self._seen) >= _TRACKED_MAX:
                self._seen.clear()
            self._seen[message] = (now_ms, 0)
            return suppressed


#: Shared by all librdkafka clients of this process.
LIBRDKAFKA_LOGGER: Final = LibrdkafkaLogger(logging.getLogger("millstream.kafka.librdkafka"))

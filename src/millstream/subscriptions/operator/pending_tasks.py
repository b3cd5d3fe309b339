"""Started tasks that are not completed yet."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from millstream.clock import Clock
from millstream.subscriptions.processing_context import ProcessingContext
from millstream.subscriptions.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)

#: The age at which an uncompleted task is logged, and the interval between logs. The age matches
#: the default `max.poll.interval.ms` of Kafka's consumers.
OLD_TASK_MS: Final = 300_000
LOG_INTERVAL_MS: Final = 60_000
#: How often the age is checked.
_CHECK_INTERVAL_MS: Final = 10_000


class PendingTasks:
    """Tracks started tasks that are not completed yet.

    Logs the oldest task if it is too old, because it blocks the commits of its partition.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms: dict[ProcessingContext, int] = {}
        self._log = RateLimitedLog(logger, clock, every_ms=LOG_INTERVAL_MS)
        self._next_check_ms = clock.monotonic_ms() + _CHECK_INTERVAL_MS

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, contexts: Iterable[ProcessingContext]) -> None:
        """Add started tasks. Takes 0.05 us per task."""
        self._since_ms.update(dict.fromkeys(contexts, self._clock.monotonic_ms()))

    def remove(self, contexts: Iterable[ProcessingContext]) -> None:
        for context in contexts:
            del self._since_ms[context]

    @property
    def oldest_age_ms(self) -> int:
        """The age of the oldest task; 0 without tasks."""
        oldest = self._oldest()
        return 0 if oldest is None else self._clock.monotonic_ms() - oldest[1]

    @property
    def is_check_due(self) -> bool:
        """Whether `log_oldest` may have work to do."""
        return bool(self._since_ms) and self._next_check_ms <= self._clock.monotonic_ms()

    def log_oldest(self) -> None:
        if not self.is_check_due:
            return
        now_ms = self._clock.monotonic_ms()
        self._next_check_ms = now_ms + _CHECK_INTERVAL_MS
        oldest = self._oldest()
        if oldest is None or now_ms - oldest[1] < OLD_TASK_MS:
            return
        context, since_ms = oldest
        self._log.warning(
            f"{context.describe()} was started {now_ms - since_ms} ms ago and is not completed, so "
            "no later offsets are committed. Either its processor has not returned, or its "
            "completion is still open; deferred_complete_timeout_ms limits the latter"
        )

    def _oldest(self) -> tuple[ProcessingContext, int] | None:
        # The dict is ordered by start time.
        return next(iter(self._since_ms.items()), None)

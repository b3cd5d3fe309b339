"""Non-blocking retries with backoff and a timeout."""

from __future__ import annotations

import logging
from typing import Final

from millstream.clock import Clock
from millstream.errors import LockError, UnknownTopicError

logger = logging.getLogger(__name__)

_INITIAL_BACKOFF_MS: Final = 100
#: The maximum backoff. A thread recovers from an outage at most this long after the brokers.
_MAX_BACKOFF_MS: Final = 2_000
#: The maximum backoff for locks. It is lower than for brokers, because locking a file takes
#: microseconds and a free lock should be taken immediately.
_MAX_LOCK_BACKOFF_MS: Final = 500
#: The minimum wait for a lock, because its owner may be closing: a worker gets ten seconds when its
#: machine shuts down, and the final commit takes some more time.
_MIN_LOCK_TIMEOUT_MS: Final = 30_000
#: The minimum wait for a topic, because a new topic is not immediately visible on every broker.
_MIN_TOPIC_TIMEOUT_MS: Final = 5_000
#: How often repeated failures are logged.
_LOG_INTERVAL_MS: Final = 10_000


class Backoff:
    """The exponential backoff between the retries of one operation.

    The caller limits the retries. The backoff resets after `reset_after_ms` without failures; with
    None, only `reset` resets it.
    """

    def __init__(
        self, clock: Clock, *, initial_ms: int, max_ms: int, reset_after_ms: int | None = None
    ) -> None:
        self._clock = clock
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._reset_after_ms = reset_after_ms
        self._next_ms = initial_ms
        self._retried_ms: int | None = None

    def next_pause_ms(self) -> int:
        """Return the pause before the next retry, in milliseconds."""
        now_ms = self._clock.monotonic_ms()
        if self._reset_after_ms is not None and self._retried_ms is not None:
            without_failure_ms = now_ms - self._retried_ms
            if without_failure_ms >= self._reset_after_ms:
                self.reset()
        pause_ms = min(self._next_ms, self._max_ms)
        self._next_ms = 2 * pause_ms
        self._retried_ms = now_ms + pause_ms
        return pause_ms

    def reset(self) -> None:
        self._next_ms = self._initial_ms


class RetrySchedule:
    """Schedules the retries of an operation.

    The caller continues with other work in the meantime. Callers that need the result immediately
    use `kafka.cluster.retries.retry_until_available`.

    The timeout is Kafka Streams' `task.timeout.ms`: with 0, the first failure raises its error;
    with a larger value, there is at least one retry, however long an attempt takes. Unknown topics
    are retried for at least five seconds.
    """

    def __init__(
        self, action: str, clock: Clock, timeout_ms: int, *, max_backoff_ms: int = _MAX_BACKOFF_MS
    ) -> None:
        self._action = action
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._backoff = Backoff(clock, initial_ms=_INITIAL_BACKOFF_MS, max_ms=max_backoff_ms)
        self._next_ms = clock.monotonic_ms()
        self._logged_ms: int | None = None
        self._failing_since_ms: int | None = None

    @property
    def is_due(self) -> bool:
        return self._clock.monotonic_ms() >= self._next_ms

    def failed(self, error: Exception) -> None:
        """Record a failure: schedule a retry, or raise the error after the timeout."""
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        failing_ms = now_ms - self._failing_since_ms
        min_timeout_ms = _MIN_TOPIC_TIMEOUT_MS if isinstance(error, UnknownTopicError) else 0
        if failing_ms >= max(self._timeout_ms, min_timeout_ms):
            raise self._final_error(error)
        if self._logged_ms is None:
            self._logged_ms = now_ms
            logger.info("%s failed, retrying: %s", self._action, error)
        elif now_ms - self._logged_ms >= _LOG_INTERVAL_MS:
            self._logged_ms = now_ms
            logger.warning(
                "%s has been failing for %d s: %s", self._action, failing_ms // 1000, error
            )
        self._next_ms = now_ms + self._backoff.next_pause_ms()

    def succeeded(self) -> None:
        self._failing_since_ms = None
        self._logged_ms = None
        self._backoff.reset()

    def _final_error(self, error: Exception) -> Exception:
        return error


class LockRetry(RetrySchedule):
    """The schedule of attempts to lock a directory that another process has locked.

    The timeout is at least 30 seconds, because a lock is not necessarily a failure. The final
    error names the owner of the lock.
    """

    def __init__(self, action: str, clock: Clock, timeout_ms: int) -> None:
        self._lock_timeout_ms = max(timeout_ms, _MIN_LOCK_TIMEOUT_MS)
        super().__init__(action, clock, self._lock_timeout_ms, max_backoff_ms=_MAX_LOCK_BACKOFF_MS)

    def _final_error(self, error: Exception) -> Exception:
        if not isinstance(error, LockError):
            return error
        return LockError(
            f"Gave up {self._action} after {self._lock_timeout_ms // 1_000} s. {error.message}",
            task_id=error.task_id,
        )

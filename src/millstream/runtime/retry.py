"""Trying again what may work later: with growing pauses, without blocking, and not for ever."""

from __future__ import annotations

import logging
from typing import Final

from millstream.clock import Clock
from millstream.errors import LockError, UnknownTopicError
from millstream.runtime.backoff import Backoff

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS: Final = 100
#: Brokers that are back are found soon: an outage costs no more than this beyond its end.
_LAST_PAUSE_MS: Final = 2_000
#: Trying to lock a file costs microseconds, and who waits for one wants it as soon as it is free.
_LAST_LOCK_PAUSE_MS: Final = 500
#: How long a lock is waited for at least: whoever holds it may be closing just now, for which a
#: worker has ten seconds when its machine ends it, and a commit at last takes some more.
_LEAST_LOCK_WAIT_MS: Final = 30_000
#: How long a topic is looked for at least: of one that was created just now, not every broker knows
#: yet.
_NEW_TOPIC_MS: Final = 5_000
#: How often the log tells that something still does not work.
_SAY_MS: Final = 10_000


class Retry:
    """When something that failed is tried next, by a caller who goes on with other work meanwhile.

    Who can do nothing without it waits in `kafka.cluster.insisting.insist`.

    The timeout is Kafka Streams' `task.timeout.ms`: with 0 the first failure raises its error, with
    more it is tried again at least once, however long a try takes.

    Args:
        what: for the log, for example "opening task 0_1".
        clock: for the pauses.
        timeout_ms: after failing for so long the error is raised.
        last_pause_ms: pauses double up to this.
    """

    def __init__(
        self, what: str, clock: Clock, timeout_ms: int, *, last_pause_ms: int = _LAST_PAUSE_MS
    ) -> None:
        self._what = what
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._backoff = Backoff(clock, first_ms=_FIRST_PAUSE_MS, most_ms=last_pause_ms)
        self._next_ms = clock.monotonic_ms()
        self._said_ms: int | None = None
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
        least_ms = _NEW_TOPIC_MS if isinstance(error, UnknownTopicError) else 0
        if failing_ms >= max(self._timeout_ms, least_ms):
            raise self._at_last(error)
        if self._said_ms is None:
            self._said_ms = now_ms
            logger.info("%s did not work, trying again: %s", self._what, error)
        elif now_ms - self._said_ms >= _SAY_MS:
            self._said_ms = now_ms
            logger.warning("%s has not worked for %d s: %s", self._what, failing_ms // 1000, error)
        self._next_ms = now_ms + self._backoff.next_pause_ms()

    def worked(self) -> None:
        """It worked: the next failure is a first one again."""
        self._failing_since_ms = None
        self._said_ms = None
        self._backoff.reset()

    def _at_last(self, error: Exception) -> Exception:
        """What is raised when there is no time left."""
        return error


class LockRetry(Retry):
    """When a directory is tried next that another process has locked.

    It is waited for as long as the task timeout, but at least 30 seconds: that somebody holds a
    lock is no failure yet. The error then raised names the holder.

    Args:
        what: for the log and the error, for example "opening task 0_1".
        clock: for the pauses.
        timeout_ms: `task.timeout.ms`.
    """

    def __init__(self, what: str, clock: Clock, timeout_ms: int) -> None:
        self._waits_ms = max(timeout_ms, _LEAST_LOCK_WAIT_MS)
        super().__init__(what, clock, self._waits_ms, last_pause_ms=_LAST_LOCK_PAUSE_MS)

    def _at_last(self, error: Exception) -> Exception:
        if not isinstance(error, LockError):
            return error
        return LockError(
            f"Gave up {self._what} after {self._waits_ms // 1_000} s. {error.message}",
            task_id=error.task_id,
        )

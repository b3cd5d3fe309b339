"""Blocking retries of requests to the cluster, with rate-limited log lines."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError

_MAX_INTERVAL_MS: Final = 30_000

_log = logging.getLogger(__name__)

_PAUSE_MS: Final = 100
#: The length of a step, during which Python handles no signals.
_STEP_MS: Final = 1_000

T = TypeVar("T")


class LogInterval:
    """Schedules a repeated log line with intervals that double, up to 30 s.

    An outage of 5 minutes causes 14 lines, instead of 300 with one line per second. `first_ms` is
    the time before the first line, and the interval between the first two lines unless it is below
    `min_ms`; 0 logs immediately.
    """

    def __init__(self, clock: Clock, *, first_ms: int, min_ms: int = 1_000) -> None:
        self._clock = clock
        self._pause_ms = max(first_ms, min_ms)
        self._due_ms = clock.monotonic_ms() + first_ms

    @property
    def is_due(self) -> bool:
        """Whether a line is due now; if so, schedules the next one."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._due_ms:
            return False
        self._due_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _MAX_INTERVAL_MS)
        return True


def retry_until_available(
    attempt: Callable[[], T],
    operation: str,
    timeout_ms: int,
    clock: Clock,
    on_wait: Callable[[], None],
    *,
    pause_ms: int = _PAUSE_MS,
    overall: Deadline | None = None,
) -> T:
    """Retry a request while the cluster does not respond, and return the response.

    For callers that cannot continue without the response. Callers that do other work meanwhile use
    a `Retry` of the runtime.

    Args:
        operation: describes the waiting operation in the log: "in cannot be written to".
        timeout_ms: how long to retry after the first attempt has failed
            (`task.timeout.ms`); 0 for no retries.
        pause_ms: the pause before each retry; 0 if each failed attempt already takes long.
        overall: the deadline for all attempts, if any.

    Raises:
        BrokerUnavailableError: no response within the timeout.
    """
    failing: Deadline | None = None
    warnings = LogInterval(clock, first_ms=0)
    while True:
        try:
            return attempt()
        except BrokerUnavailableError as error:
            failing = failing or Deadline(clock, timeout_ms)
            if failing.passed or (overall is not None and overall.passed):
                raise
            if warnings.is_due:
                _log.warning("%s yet, retrying: %s", operation, error)
            on_wait()
            if pause_ms:
                clock.sleep_ms(pause_ms)


def wait_in_steps(
    attempt: Callable[[int], object], deadline: Deadline, on_wait: Callable[[], None]
) -> None:
    """Wait in steps for an operation that continues by itself.

    `attempt` waits for up to the given number of milliseconds. `on_wait` is called after each step
    except the last. Raises BrokerUnavailableError at the deadline.
    """
    while True:
        try:
            attempt(deadline.remaining_ms(_STEP_MS))
            return
        except BrokerUnavailableError:
            if deadline.passed:
                raise
        on_wait()

"""Asking the cluster again while it does not answer, on behalf of a caller who has to wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError
from millstream.kafka.cluster.log_interval import LogInterval

_log = logging.getLogger(__name__)

_PAUSE_MS: Final = 100
#: How long a step may keep the caller from anything else. Python handles no signal meanwhile.
_STEP_MS: Final = 1_000

T = TypeVar("T")


def insist(
    ask: Callable[[], T],
    what: str,
    timeout_ms: int,
    clock: Clock,
    on_wait: Callable[[], None],
    *,
    pause_ms: int = _PAUSE_MS,
    whole: Deadline | None = None,
) -> T:
    """The answer to a question, which is asked again until it comes.

    For callers who have nothing to do without it. Who goes on with other work meanwhile, and looks
    again later, takes a `Retry` of the runtime.

    Args:
        ask: one attempt, with a timeout of its own.
        what: what waits for the answer, for the log: "in cannot be written to".
        timeout_ms: how long it is asked again after the first attempt without an answer, which has
            the time that it needs (`task.timeout.ms`); with 0 it is asked once.
        clock: where the time is read.
        on_wait: called after each attempt without an answer.
        pause_ms: before each further attempt; 0 where an attempt itself waits for long.
        whole: nothing is tried after it; None for no such bound.

    Raises:
        BrokerUnavailableError: no answer for the whole timeout.
    """
    failing: Deadline | None = None
    warnings = LogInterval(clock, first_ms=0)
    while True:
        try:
            return ask()
        except BrokerUnavailableError as error:
            failing = failing or Deadline(clock, timeout_ms)
            if failing.passed or (whole is not None and whole.passed):
                raise
            if warnings.is_due:
                _log.warning("%s yet, trying again: %s", what, error)
            on_wait()
            if pause_ms:
                clock.sleep_ms(pause_ms)


def in_steps(
    attempt: Callable[[int], object], deadline: Deadline, on_wait: Callable[[], None]
) -> None:
    """Wait for something that goes on by itself, a step at a time.

    Args:
        attempt: waits for it once more, for that many milliseconds.
        deadline: the end of the last step.
        on_wait: called after each step but the last.

    Raises:
        BrokerUnavailableError: it was not done by the deadline.
    """
    while True:
        try:
            attempt(deadline.remaining_ms(_STEP_MS))
            return
        except BrokerUnavailableError:
            if deadline.passed:
                raise
        on_wait()

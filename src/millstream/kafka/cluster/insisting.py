"""Asking the cluster again while it does not answer, on behalf of a caller who has to wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError

_log = logging.getLogger(__name__)

_PAUSE_MS: Final = 100

T = TypeVar("T")


def insist(
    ask: Callable[[], T], what: str, timeout_ms: int, clock: Clock, on_wait: Callable[[], None]
) -> T:
    """The answer to a question, which is asked again until it comes.

    Args:
        ask: one attempt, with a timeout of its own.
        what: what waits for the answer, for the log: "in cannot be written to".
        timeout_ms: how long the cluster may not answer (`task.timeout.ms`); with 0 it is asked
            once.
        clock: where the time is read.
        on_wait: called after each attempt without an answer.

    Raises:
        BrokerUnavailableError: no answer for the whole timeout.
    """
    deadline = Deadline(clock, timeout_ms)
    while True:
        try:
            return ask()
        except BrokerUnavailableError as error:
            if deadline.passed:
                raise
            _log.warning("%s yet, trying again: %s", what, error)
            on_wait()
            clock.sleep_ms(_PAUSE_MS)

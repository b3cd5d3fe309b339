"""The exit of a thread as reported to the driver."""

from __future__ import annotations

import pytest

from millstream.errors import BrokerUnavailableError, ProcessingError
from millstream.runtime.thread_control import ThreadOutcome
from millstream.spark.connection.messages import ThreadExit
from millstream.spark.worker.thread_main import thread_exit

DOWN = BrokerUnavailableError("no answer")
USERS = ProcessingError("division by zero")


@pytest.mark.parametrize("stopped_by", ["SIGTERM", "no connection to the driver for 30 s"])
def test_a_thread_stopped_by_the_machine_is_restarted_despite_errors(
    stopped_by: str,
) -> None:
    """Detects a failing last commit that closes the application instead."""
    ended = thread_exit(ThreadOutcome(None, ["closed"], DOWN), stopped_by)
    assert ended == ThreadExit("lost", DOWN, ("closed",), f"{stopped_by}; while closing: {DOWN}")
    assert thread_exit(ThreadOutcome(), stopped_by) == ThreadExit("lost", reason=stopped_by)


def test_a_thread_closed_by_the_user_reports_errors() -> None:
    assert thread_exit(ThreadOutcome(close_error=DOWN), None) == ThreadExit("error", DOWN)
    assert thread_exit(ThreadOutcome(), None) == ThreadExit("closed")
    left = ThreadOutcome(has_drained=False)
    assert thread_exit(left, None) == ThreadExit("closed", has_drained=False)


@pytest.mark.parametrize("stopped_by", [None, "SIGTERM"])
def test_an_error_before_the_stop_reaches_the_handler(stopped_by: str | None) -> None:
    """It is not hidden by a signal that arrives while the thread closes because of it."""
    ended = thread_exit(ThreadOutcome(USERS, close_error=DOWN), stopped_by)
    assert ended == ThreadExit("error", USERS)

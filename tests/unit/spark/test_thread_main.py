"""What the driver is told of a thread's end."""

from __future__ import annotations

import pytest

from millstream.errors import BrokerUnavailableError, ProcessingError
from millstream.runtime.control import ThreadOutcome
from millstream.spark.connection.messages import ThreadExit
from millstream.spark.worker.thread_main import thread_exit

DOWN = BrokerUnavailableError("no answer")
USERS = ProcessingError("division by zero")


@pytest.mark.parametrize("stopped_by", ["SIGTERM", "no connection to the driver for 30 s"])
def test_what_the_user_did_not_stop_runs_again_whatever_went_wrong_on_the_way_out(
    stopped_by: str,
) -> None:
    """Hunts for a last commit that fails and ends the application instead."""
    ended = thread_exit(ThreadOutcome(None, ["closed"], DOWN), stopped_by)
    assert ended == ThreadExit("lost", DOWN, ("closed",), f"{stopped_by}; while closing: {DOWN}")
    assert thread_exit(ThreadOutcome(), stopped_by) == ThreadExit("lost", reason=stopped_by)


def test_what_the_user_closes_tells_what_went_wrong() -> None:
    assert thread_exit(ThreadOutcome(close_error=DOWN), None) == ThreadExit("error", DOWN)
    assert thread_exit(ThreadOutcome(), None) == ThreadExit("closed")
    left = ThreadOutcome(has_drained=False)
    assert thread_exit(left, None) == ThreadExit("closed", has_drained=False)


@pytest.mark.parametrize("stopped_by", [None, "SIGTERM"])
def test_an_error_before_the_stop_is_for_the_handler(stopped_by: str | None) -> None:
    """Not hidden by a signal that comes while the thread closes because of it."""
    ended = thread_exit(ThreadOutcome(USERS, close_error=DOWN), stopped_by)
    assert ended == ThreadExit("error", USERS)

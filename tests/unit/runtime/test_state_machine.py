"""The history of a state machine is readable."""

from __future__ import annotations

import time

import pytest

from millstream.clock import ManualClock
from millstream.errors import IllegalStateError
from millstream.runtime.states.thread_states import CLIENT_TRANSITIONS, ClientState, StateMachine


def test_history_has_times_of_day() -> None:
    """Local times, not milliseconds since 1970."""
    at = time.mktime((2026, 1, 31, 14, 31, 7, 0, 0, -1))
    clock = ManualClock(int(at) * 1_000 + 42)
    machine = StateMachine("Application shop", ClientState.CREATED, CLIENT_TRANSITIONS, clock)
    machine.transition_to(ClientState.REBALANCING, "start requested")
    assert machine.history == ["14:31:07.042 CREATED to REBALANCING: start requested"]
    with pytest.raises(IllegalStateError, match="14:31:07"):
        machine.transition_to(ClientState.NOT_RUNNING, "invalid")

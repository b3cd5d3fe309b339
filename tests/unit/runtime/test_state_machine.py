"""The story of a state machine is for people to read."""

from __future__ import annotations

import time

import pytest

from millstream.clock import ManualClock
from millstream.errors import IllegalStateError
from millstream.runtime.state_machine import StateMachine
from millstream.runtime.states import CLIENT_STATES, ClientState


def test_the_story_has_times_of_day() -> None:
    """Goal: times as people's clocks show them, not milliseconds since 1970."""
    at = time.mktime((2026, 1, 31, 14, 31, 7, 0, 0, -1))
    clock = ManualClock(int(at) * 1_000 + 42)
    machine = StateMachine("Application shop", ClientState.CREATED, CLIENT_STATES, clock)
    machine.transition_to(ClientState.REBALANCING, "told to start")
    assert machine.story == ["14:31:07.042 CREATED to REBALANCING: told to start"]
    with pytest.raises(IllegalStateError, match="14:31:07"):
        machine.transition_to(ClientState.NOT_RUNNING, "a leap")

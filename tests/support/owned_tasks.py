"""Short notation for the tasks that threads own."""

from __future__ import annotations

from collections.abc import Mapping

from millstream.runtime.states.thread_states import OwnedTask


def owned(states: Mapping[str, str]) -> dict[str, OwnedTask]:
    """The tasks of a thread by id and state; those in the state STANDBY are standbys."""
    return {task: OwnedTask(state, state == "STANDBY") for task, state in states.items()}

"""A custom task assignor replaces the built-in one."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from millstream import StreamsConfig
from millstream.assignment import (
    ApplicationState,
    ProcessAssignment,
    ProcessState,
    TaskInfo,
    assign_high_availability,
    assign_sticky,
)
from millstream.errors import ConfigError
from millstream.record import TaskId
from millstream.runtime.task_management.thread_assignor import configured_assignor


class FirstProcessAssignor:
    def assign(self, state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
        first, *others = state.order
        given = dict.fromkeys(others, ProcessAssignment())
        return {first: ProcessAssignment(active=frozenset(state.tasks)), **given}


def config(assignor: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", bootstrap_servers="broker:9092", task_assignor_class=assignor
    )


def test_the_high_availability_assignor_is_the_default() -> None:
    assert configured_assignor(config(None)) is assign_high_availability


def test_assignor_can_be_a_function_an_object_or_a_class() -> None:
    assert configured_assignor(config(assign_sticky)) is assign_sticky
    one, other, task = uuid.UUID(int=1), uuid.UUID(int=2), TaskId(0, 0)
    state = ApplicationState(
        {task: TaskInfo(frozenset(), is_stateful=True)},
        {other: ProcessState(1), one: ProcessState(1)},
    )
    for given in (FirstProcessAssignor, FirstProcessAssignor()):
        assigned = configured_assignor(config(given))(state)
        assert assigned[one].active == {task}
        assert not assigned[other].active


def test_invalid_assignor_is_rejected() -> None:
    with pytest.raises(ConfigError, match="is not an assignor"):
        configured_assignor(config("org.example.MyAssignor"))

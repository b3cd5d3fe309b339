"""A task assignor of the user's takes the place of the built-in one."""

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
from millstream.runtime.ownership.thread_assignor import chosen_assignor


class ToTheFirst:
    def assign(self, state: ApplicationState) -> dict[uuid.UUID, ProcessAssignment]:
        first, *others = state.order
        given = dict.fromkeys(others, ProcessAssignment())
        return {first: ProcessAssignment(active=frozenset(state.tasks)), **given}


def config(assignor: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", bootstrap_servers="broker:9092", task_assignor_class=assignor
    )


def test_the_high_availability_assignor_is_the_default() -> None:
    assert chosen_assignor(config(None)) is assign_high_availability


def test_a_function_an_object_or_a_class_can_take_its_place() -> None:
    assert chosen_assignor(config(assign_sticky)) is assign_sticky
    one, other, task = uuid.UUID(int=1), uuid.UUID(int=2), TaskId(0, 0)
    state = ApplicationState(
        {task: TaskInfo(frozenset(), is_stateful=True)},
        {other: ProcessState(1), one: ProcessState(1)},
    )
    for given in (ToTheFirst, ToTheFirst()):
        assigned = chosen_assignor(config(given))(state)
        assert assigned[one].active == {task}
        assert not assigned[other].active


def test_anything_else_is_refused() -> None:
    with pytest.raises(ConfigError, match="assigns nothing"):
        chosen_assignor(config("org.example.MyAssignor"))

"""The process and the thread that get a task."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

import pytest

from millstream.assignment.leader_assignor import spread_over_threads
from millstream.assignment.placement.sticky import assign_sticky
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    ProcessState,
    TaskInfo,
    check_assignment,
)
from millstream.errors import TaskAssignmentError
from millstream.record import TaskId

A, B, C = (uuid.UUID(int=number) for number in (1, 2, 3))


def _ids(*texts: str) -> frozenset[TaskId]:
    return frozenset(TaskId.parse(text) for text in texts)


def _had(*active: str, standby: Iterable[str] = (), threads: int = 1) -> ProcessState:
    return ProcessState(threads, _ids(*active), _ids(*standby))


def _assign(tasks: Iterable[str], **processes: ProcessState) -> dict[str, list[str]]:
    names = {"a": A, "b": B, "c": C}
    state = ApplicationState(
        {task_id: TaskInfo(frozenset(), True) for task_id in sorted(_ids(*tasks))},
        {names[name]: process for name, process in sorted(processes.items())},
    )
    given = assign_sticky(state)
    check_assignment(state, given)
    return {name: sorted(map(str, given[names[name]].active)) for name in sorted(processes)}


@pytest.mark.parametrize(
    ("tasks", "processes", "expected"),
    [
        # Without previous tasks, each task goes to the process with the fewest tasks per thread.
        ("0_0 0_1 0_2", {"a": _had(), "b": _had()}, {"a": "0_0 0_2", "b": "0_1"}),
        # A new process gets a share; the others lose no more than that.
        (
            "0_0 0_1 0_2 0_3",
            {"a": _had("0_0", "0_1", "0_2", "0_3"), "b": _had()},
            {"a": "0_0 0_1", "b": "0_2 0_3"},
        ),
        # Above the quota, but no process is less busy: nothing moves.
        (
            "0_0 0_1 0_2",
            {"a": _had("0_0", "0_2"), "b": _had("0_1")},
            {"a": "0_0 0_2", "b": "0_1"},
        ),
        # The owner of two tasks has left: the processes with the state get them.
        (
            "0_0 0_1 0_2 0_3",
            {"a": _had("0_0", standby=["0_3"]), "b": _had("0_1", standby=["0_2"])},
            {"a": "0_0 0_3", "b": "0_1 0_2"},
        ),
        # State has priority over taking turns.
        ("0_0 0_1", {"a": _had(standby=["0_1"]), "b": _had()}, {"a": "0_1", "b": "0_0"}),
        # Threads are in balance although processes are not quite: nothing moves.
        (
            "0_0 0_1 0_2 0_3",
            {"a": _had("0_0", "0_1", "0_2", threads=2), "b": _had("0_3", threads=1)},
            {"a": "0_0 0_1 0_2", "b": "0_3"},
        ),
        # More threads get more tasks.
        (
            "0_0 0_1 0_2 0_3 0_4 0_5",
            {"a": _had(threads=1), "b": _had(threads=2)},
            {"a": "0_0 0_3", "b": "0_1 0_2 0_4 0_5"},
        ),
        # Idle threads remain, so tasks do not need to move to another process.
        (
            "0_0 0_1",
            {"a": _had("0_0", "0_1", threads=2), "b": _had(threads=2)},
            {"a": "0_0 0_1", "b": ""},
        ),
        # Removed tasks are ignored.
        ("0_0", {"a": _had("0_7", "0_8"), "b": _had("0_0")}, {"a": "", "b": "0_0"}),
        ("", {"a": _had("0_0")}, {"a": ""}),
    ],
)
def test_sticky_assignment(
    tasks: str, processes: dict[str, ProcessState], expected: dict[str, str]
) -> None:
    given = _assign(tasks.split(), **processes)
    assert given == {name: texts.split() for name, texts in expected.items()}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("processes", "tasks", "replicas"), [(4, 4, 1), (4, 8, 1), (5, 15, 2)])
def test_no_two_processes_have_the_same_tasks(
    processes: int, tasks: int, replicas: int, threads: int
) -> None:
    """Processes with the same active tasks and standbys would fail together."""
    state = ApplicationState(
        {TaskId(0, number): TaskInfo(frozenset(), True) for number in range(tasks)},
        {uuid.UUID(int=1 + number): ProcessState(threads) for number in range(processes)},
        AssignmentConfig(num_standby_replicas=replicas),
    )
    given = assign_sticky(state)
    check_assignment(state, given)
    assert len({each.active | each.standby for each in given.values()}) == processes
    assert sum(len(each.standby) for each in given.values()) == tasks * replicas


def test_existing_standbys_stay_even_if_two_processes_have_the_same_tasks() -> None:
    had = {A: _had("0_0", standby=["0_1"]), B: _had("0_1", standby=["0_0"]), C: _had("0_2")}
    state = ApplicationState(
        {task_id: TaskInfo(frozenset(), True) for task_id in sorted(_ids("0_0", "0_1", "0_2"))},
        had,
        AssignmentConfig(num_standby_replicas=1),
    )
    given = assign_sticky(state)
    assert _ids("0_1") <= given[A].standby
    assert _ids("0_0") <= given[B].standby


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({A: ProcessAssignment(_ids("0_0", "0_1"))}, "MISSING_PROCESS_ID"),
        (
            {A: ProcessAssignment(_ids("0_0")), B: ProcessAssignment(), C: ProcessAssignment()},
            "UNKNOWN_PROCESS_ID",
        ),
        (
            {A: ProcessAssignment(_ids("0_0", "0_1", "5_5")), B: ProcessAssignment()},
            "UNKNOWN_TASK_ID",
        ),
        (
            {A: ProcessAssignment(_ids("0_0", "0_1")), B: ProcessAssignment(_ids("0_1"))},
            "ACTIVE_TASK_ASSIGNED_MULTIPLE_TIMES",
        ),
        (
            {
                A: ProcessAssignment(_ids("0_0", "0_1"), standby=_ids("0_0")),
                B: ProcessAssignment(),
            },
            "INVALID_STANDBY_TASK",
        ),
        (
            {
                A: ProcessAssignment(_ids("0_0", "0_1")),
                B: ProcessAssignment(standby=_ids("0_1")),
            },
            "INVALID_STANDBY_TASK",
        ),
        ({A: ProcessAssignment(_ids("0_0")), B: ProcessAssignment()}, "UNASSIGNED_ACTIVE_TASK"),
    ],
)
def test_an_invalid_assignment_is_rejected(
    given: dict[uuid.UUID, ProcessAssignment], rule: str
) -> None:
    """A faulty task assignor stops the rebalance. 0_0 is stateful, 0_1 is not."""
    state = ApplicationState(
        {
            TaskId(0, 0): TaskInfo(frozenset(), True),
            TaskId(0, 1): TaskInfo(frozenset(), False),
        },
        {A: ProcessState(1), B: ProcessState(1)},
    )
    with pytest.raises(TaskAssignmentError, match=rule):
        check_assignment(state, given)


def _spread(
    tasks: str,
    previous: dict[str, str],
    loads: dict[str, int] | None = None,
    consumers: str = "x y z",
) -> dict[str, str]:
    given = spread_over_threads(
        _ids(*tasks.split()),
        consumers.split(),
        {name: [TaskId.parse(t) for t in had.split()] for name, had in previous.items()},
        {} if loads is None else loads,
    )
    return {name: " ".join(map(str, task_ids)) for name, task_ids in given.items()}


def test_threads_are_filled_in_turn() -> None:
    assert _spread("0_0 0_1 0_2 0_3 0_4", {}) == {"x": "0_0 0_3", "y": "0_1 0_4", "z": "0_2"}


def test_threads_keep_previous_tasks_up_to_their_share() -> None:
    assert _spread("0_0 0_1 0_2 1_0 1_1 1_2", {"x": "0_0 0_1 0_2 1_1", "z": "1_0"}) == {
        "x": "0_0 0_1",
        "y": "0_2 1_2",
        "z": "1_0 1_1",
    }


def test_remaining_tasks_stay_with_their_previous_thread() -> None:
    assert _spread("0_0 0_1 0_2 0_3", {"z": "0_1 0_2", "x": "0_0", "y": "0_3"}) == {
        "x": "0_0",
        "y": "0_3",
        "z": "0_1 0_2",
    }


def test_tasks_of_earlier_kinds_count_as_load() -> None:
    loads = {"x": 2, "y": 1, "z": 1}
    assert _spread("2_0 2_1 2_2", {}, loads) == {"x": "2_2", "y": "2_0", "z": "2_1"}
    assert loads == {"x": 3, "y": 2, "z": 2}

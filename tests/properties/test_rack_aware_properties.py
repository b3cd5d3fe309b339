"""Properties of rack-aware assignments of random groups."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.assignment.placement.high_availability import assign_high_availability
from millstream.assignment.placement.sticky import assign_sticky
from millstream.assignment.racks import rack_aware
from millstream.assignment.racks.min_cost_flow import FlowGraph
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    ProcessState,
    TaskAssignor,
    TaskInfo,
    check_assignment,
)
from millstream.record import TaskId, TopicPartition

_RACKS = ("a", "b", "c")


@st.composite
def states(draw: st.DrawFn) -> ApplicationState:
    """Create groups without previous tasks and with known racks."""
    tasks: dict[TaskId, TaskInfo] = {}
    replicas: dict[TopicPartition, frozenset[str]] = {}
    for subtopology in range(draw(st.integers(1, 3))):
        is_stateful = draw(st.booleans())
        for number in range(draw(st.integers(1, 6))):
            source = TopicPartition(f"in-{subtopology}", number)
            logs = {TopicPartition(f"log-{subtopology}", number)} if is_stateful else set()
            for partition in (source, *logs):
                replicas[partition] = draw(st.frozensets(st.sampled_from(_RACKS), min_size=1))
            task_id = TaskId(subtopology, number)
            tasks[task_id] = TaskInfo(frozenset([source]), is_stateful, frozenset(logs))
    racks = draw(st.lists(st.sampled_from(_RACKS), min_size=1, max_size=6))
    processes = {
        uuid.UUID(int=number): ProcessState(draw(st.integers(1, 3)), rack=rack)
        for number, rack in enumerate(racks)
    }
    config = AssignmentConfig(
        num_standby_replicas=draw(st.integers(0, 2)),
        rack_aware_assignment_strategy=draw(
            st.sampled_from(["min_traffic", "balance_subtopology"])
        ),
        rack_aware_traffic_cost=10,
        rack_aware_non_overlap_cost=1,
    )
    return ApplicationState(tasks, processes, config, replica_racks=replicas)


def without_racks(state: ApplicationState) -> ApplicationState:
    config = dataclasses.replace(state.config, rack_aware_assignment_strategy="none")
    return dataclasses.replace(state, config=config)


def traffic(state: ApplicationState, given: Mapping[uuid.UUID, ProcessAssignment]) -> int:
    """The number of partitions that active tasks read from other racks."""
    return sum(
        state.processes[process_id].rack not in state.replica_racks[partition]
        for process_id, mine in given.items()
        for task_id in mine.active
        for partition in state.tasks[task_id].partitions
    )


def counts(
    state: ApplicationState, given: Mapping[uuid.UUID, ProcessAssignment]
) -> dict[uuid.UUID, tuple[int, int]]:
    """The numbers of stateful and stateless tasks of each process."""
    totals: dict[uuid.UUID, tuple[int, int]] = {}
    for process_id, mine in given.items():
        stateful = sum(state.tasks[task_id].is_stateful for task_id in mine.active)
        totals[process_id] = (stateful, len(mine.active) - stateful)
    return totals


def check(assign: TaskAssignor, state: ApplicationState) -> None:
    given = assign(state)
    check_assignment(state, given)
    assert given == assign(state)
    before = assign(without_racks(state))
    assert counts(state, given) == counts(state, before)
    wanted = sum(len(mine.standby) for mine in before.values())
    assert sum(len(mine.standby) for mine in given.values()) == wanted
    if state.config.rack_aware_assignment_strategy == "min_traffic":
        assert traffic(state, given) <= traffic(state, before)


@given(state=states())
@settings(max_examples=60)
def test_processes_keep_their_loads_and_read_less_from_other_racks(state: ApplicationState) -> None:
    check(assign_high_availability, state)
    check(assign_sticky, state)


@given(state=states())
@settings(max_examples=40)
def test_the_same_holds_if_tasks_are_swapped_between_racks(state: ApplicationState) -> None:
    """Swaps are used in groups that are too large for a search among processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rack_aware, "_MAX_ARCS_BY_ROLE", {"active": 0, "standby": 0})
        check(assign_high_availability, state)
        check(assign_sticky, state)


@given(costs=st.lists(st.lists(st.integers(0, 30), min_size=4, max_size=4), min_size=4, max_size=4))
@settings(max_examples=60)
def test_the_flow_has_the_minimum_cost(costs: list[list[int]]) -> None:
    graph = FlowGraph(10)
    edges = {}
    for row in range(4):
        graph.add_edge(0, 1 + row, 1, 0, flow=1)
        graph.add_edge(5 + row, 9, 1, 0, flow=1)
        for column in range(4):
            cost = costs[row][column]
            edges[row, column] = graph.add_edge(1 + row, 5 + column, 1, cost, int(row == column))
    assert graph.minimize_cost(1_000_000)
    chosen = [place for place, edge in edges.items() if graph.flow(edge)]
    assert (
        sorted(row for row, _ in chosen) == sorted(column for _, column in chosen) == [0, 1, 2, 3]
    )
    cheapest = min(
        sum(costs[row][column] for row, column in enumerate(order))
        for order in permutations(range(4))
    )
    assert sum(costs[row][column] for row, column in chosen) == cheapest

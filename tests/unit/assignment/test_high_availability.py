"""The high-availability assignor makes the recorded decisions of Kafka Streams 4.3.1.

The recorded cases are random groups with random lags, tags and settings, run through
`HighAvailabilityTaskAssignor`. In the last 60, process ids are random in all bits, and several
standbys of one task move at once, or tags leave standbys unassigned.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.broker.recorded_groups import as_recorded, recorded, state_of

from millstream.assignment.placement.high_availability import assign_high_availability
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    ProcessState,
    TaskInfo,
    check_assignment,
)
from millstream.assignment.wire_format import LATEST_OFFSET
from millstream.record import TaskId

CASES = recorded(Path(__file__).with_name("high_availability_4_3_1.jsonl"))
ONE, TWO, THREE = (uuid.UUID(int=number) for number in (1, 2, 3))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_decisions_equal_those_of_kafka_streams(number: int) -> None:
    case = CASES[number]
    state = state_of(case)
    given = assign_high_availability(state)
    check_assignment(state, given)
    assert as_recorded(given) == case["result"]
    assert any(mine.follow_up_ms is not None for mine in given.values()) == case["probing"]


def two_processes(lags: Mapping[TaskId, int], **config: Any) -> ApplicationState:
    """A process with state, a new one without, and two stateful tasks."""
    tasks = {TaskId(0, number): TaskInfo(frozenset(), True) for number in range(2)}
    return ApplicationState(
        tasks=tasks,
        processes={
            ONE: ProcessState(1, lags=lags),
            TWO: ProcessState(1, lags=dict.fromkeys(tasks, 50_000)),
        },
        config=AssignmentConfig(**config),
        leader=TWO,
        now_ms=1_000,
    )


def test_a_new_process_warms_up_before_it_takes_over() -> None:
    running = {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): LATEST_OFFSET}
    given = assign_high_availability(two_processes(running, probing_rebalance_interval_ms=500))
    assert given[ONE].active == {TaskId(0, 0), TaskId(0, 1)}
    assert given[TWO] == ProcessAssignment(standby=frozenset([TaskId(0, 1)]), follow_up_ms=1_500)


def test_a_nearly_caught_up_process_takes_over_immediately() -> None:
    running = {TaskId(0, 0): LATEST_OFFSET, TaskId(0, 1): LATEST_OFFSET}
    given = assign_high_availability(two_processes(running, acceptable_recovery_lag=50_000))
    assert given[TWO] == ProcessAssignment(active=frozenset([TaskId(0, 1)]))


def test_the_number_of_warmups_is_limited() -> None:
    tasks = {TaskId(0, number): TaskInfo(frozenset(), True) for number in range(9)}
    state = ApplicationState(
        tasks=tasks,
        processes={
            ONE: ProcessState(1, lags=dict.fromkeys(tasks, LATEST_OFFSET)),
            TWO: ProcessState(1, lags=dict.fromkeys(tasks, 50_000)),
            THREE: ProcessState(1, lags=dict.fromkeys(tasks, 50_000)),
        },
        config=AssignmentConfig(max_warmup_replicas=2),
    )
    given = assign_high_availability(state)
    assert given[ONE].active == tasks.keys()
    assert len(given[TWO].standby) + len(given[THREE].standby) == 2

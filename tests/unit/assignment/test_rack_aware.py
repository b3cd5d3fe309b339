"""Rack-aware assignments equal recorded ones of Kafka Streams 4.3.1.

The recorded cases are random groups with random racks, costs, lags and tags. Cases of the kind `ha`
were run through `HighAvailabilityTaskAssignor`; in those of the kinds `active` and `standby`,
`RackAwareTaskAssignor` improved a random assignment.
"""

from __future__ import annotations

import dataclasses
import logging
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.broker.recorded_groups import as_recorded, recorded

from millstream.assignment.placement.client_load import ClientLoad
from millstream.assignment.placement.high_availability import assign_high_availability
from millstream.assignment.placement.sticky import assign_sticky
from millstream.assignment.racks import rack_aware
from millstream.assignment.racks.rack_aware import Costs, rack_awareness
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessState,
    TaskInfo,
    check_assignment,
)
from millstream.record import TaskId, TopicPartition

CASES = recorded(Path(__file__).with_name("rack_aware_4_3_1.jsonl"))
ONE, TWO = (uuid.UUID(int=number) for number in (1, 2))


def partition(text: str) -> TopicPartition:
    topic, number = text.rsplit("-", 1)
    return TopicPartition(topic, int(number))


def state_of(case: Mapping[str, Any]) -> ApplicationState:
    logs = case["changelogs"]
    processes = {
        uuid.UUID(process["id"]): ProcessState(
            process["threads"],
            client_tags=process["tags"],
            lags={TaskId.parse(name): lag for name, lag in process["lags"].items()},
            rack=process["rack"],
        )
        for process in case["processes"]
    }
    tasks = {
        TaskId.parse(name): TaskInfo(
            frozenset(map(partition, sources)),
            name in logs,
            frozenset(map(partition, logs.get(name, ()))),
        )
        for name, sources in case["tasks"].items()
    }
    return ApplicationState(
        tasks=dict(sorted(tasks.items())),
        processes=dict(sorted(processes.items())),
        config=AssignmentConfig(
            num_standby_replicas=case["standbys"],
            max_warmup_replicas=case["warmups"],
            acceptable_recovery_lag=case["acceptable"],
            rack_aware_assignment_tags=tuple(case["tags"]),
            rack_aware_assignment_strategy=case["strategy"],
            rack_aware_traffic_cost=case["traffic"],
            rack_aware_non_overlap_cost=case["overlap"],
        ),
        now_ms=1_000,
        replica_racks={partition(name): frozenset(at) for name, at in case["racks"].items()},
    )


def improved(case: Mapping[str, Any], state: ApplicationState) -> dict[uuid.UUID, Any]:
    """Return the random assignment after its rack-aware optimization."""
    loads = [ClientLoad(process_id, state.processes[process_id]) for process_id in state.order]
    for load in loads:
        before = case["before"][str(load.process_id)]
        load.active |= set(map(TaskId.parse, before["active"]))
        load.standby |= set(map(TaskId.parse, before["standby"]))
    if racks := rack_awareness(state):
        costs = Costs(
            1 if case["traffic"] is None else case["traffic"],
            10 if case["overlap"] is None else case["overlap"],
        )
        if case["mode"] == "active":
            racks.optimize_active(map(TaskId.parse, case["some"]), loads, costs)
        else:
            racks.optimize_standby(loads, costs)
    return {load.process_id: load.assignment for load in loads}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_decisions_equal_those_of_kafka_streams(number: int) -> None:
    case = CASES[number]
    state = state_of(case)
    given = assign_high_availability(state) if case["mode"] == "ha" else improved(case, state)
    if case["mode"] == "ha":
        check_assignment(state, given)
    assert as_recorded(given) == case["result"]


def crossed(**config: Any) -> ApplicationState:
    """Two processes, and two tasks that are assigned to the wrong rack if racks are ignored."""
    config = {"rack_aware_assignment_strategy": "min_traffic", **config}
    sources = [TopicPartition("in", number) for number in range(2)]
    logs = [TopicPartition("log", number) for number in range(2)]
    return ApplicationState(
        tasks={
            TaskId(0, number): TaskInfo(
                frozenset([sources[number]]), True, frozenset([logs[number]])
            )
            for number in range(2)
        },
        processes={ONE: ProcessState(1, rack="a"), TWO: ProcessState(1, rack="b")},
        config=AssignmentConfig(**config),
        replica_racks={
            sources[0]: frozenset("b"),
            sources[1]: frozenset("a"),
            logs[0]: frozenset("a"),
            logs[1]: frozenset("b"),
        },
    )


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_tasks_are_assigned_to_racks_of_their_partitions(strategy: str) -> None:
    given = assign_high_availability(crossed(rack_aware_assignment_strategy=strategy))
    assert given[ONE].active == {TaskId(0, 1)}
    assert given[TWO].active == {TaskId(0, 0)}
    given = assign_high_availability(crossed(rack_aware_assignment_strategy="none"))
    assert given[ONE].active == {TaskId(0, 0)}


def test_standbys_are_assigned_to_racks_of_their_changelogs() -> None:
    state = crossed(num_standby_replicas=1)
    three, four = (uuid.UUID(int=number) for number in (3, 4))
    more = {three: ProcessState(1, rack="b"), four: ProcessState(1, rack="a")}
    given = assign_high_availability(
        dataclasses.replace(state, processes={**state.processes, **more})
    )
    assert [mine.active for mine in given.values()] == [{(0, 1)}, {(0, 0)}, set(), set()]
    assert given[four].standby == {TaskId(0, 0)}
    assert given[three].standby == {TaskId(0, 1)}


def test_the_sticky_assignor_takes_racks_into_account_if_both_costs_are_set(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = crossed(rack_aware_traffic_cost=10, rack_aware_non_overlap_cost=1)
    assert assign_sticky(state)[ONE].active == {TaskId(0, 1)}
    assert not caplog.records
    # Tasks that are expensive to move stay.
    state = crossed(rack_aware_traffic_cost=1, rack_aware_non_overlap_cost=10)
    assert assign_sticky(state)[ONE].active == {TaskId(0, 0)}
    state = crossed(rack_aware_traffic_cost=10)
    assert assign_sticky(state)[ONE].active == {TaskId(0, 0)}
    assert "also needs" in caplog.text


def without_client_rack(state: ApplicationState) -> ApplicationState:
    return dataclasses.replace(state, processes={**state.processes, TWO: ProcessState(1)})


def without_racks_of(topic: str, state: ApplicationState) -> ApplicationState:
    racks = {place: at for place, at in state.replica_racks.items() if place.topic != topic}
    return dataclasses.replace(state, replica_racks=racks)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (without_client_rack(crossed()), f"process {TWO} has no client.rack"),
        (without_racks_of("in", crossed()), "the racks of the replicas of in-0 (task 0_0)"),
        (
            without_racks_of("log", crossed(num_standby_replicas=1)),
            "the racks of the replicas of log-0 (task 0_0)",
        ),
    ],
)
def test_unknown_racks_are_ignored_and_logged(
    state: ApplicationState, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = assign_high_availability(state)
    assert given[ONE].active == {TaskId(0, 0)}
    (line,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert message in line.getMessage()


def test_changelogs_are_ignored_without_standbys() -> None:
    given = assign_high_availability(without_racks_of("log", crossed()))
    assert given[ONE].active == {TaskId(0, 1)}


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_the_search_ends_early_for_large_groups(
    strategy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rack_aware, "_MAX_ARCS", 1)
    state = crossed(rack_aware_assignment_strategy=strategy)
    given = assign_high_availability(state)
    check_assignment(state, given)
    assert "too many tasks and processes" in caplog.text

"""The work of an assignment grows with the number of tasks, not with tasks times processes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from support.tasks.fixed_cluster import FixedCluster

from millstream.assignment import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    ProcessState,
    TaskAssignor,
    TaskInfo,
    assign_high_availability,
    assign_sticky,
)
from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.placement.client_load import ClientLoad, LeastLoaded
from millstream.assignment.placement.high_availability import CaughtUpClients
from millstream.assignment.placement.task_lags import TaskLags
from millstream.assignment.racks import rack_aware
from millstream.assignment.racks.rack_aware import exchange_between_racks, sorted_racks
from millstream.assignment.task_assignor import check_assignment
from millstream.assignment.topic_metadata import TopicGroup, TopologyTopics
from millstream.assignment.wire_format import LATEST_OFFSET, SubscriptionInfo
from millstream.kafka.membership.member_assignor import MemberSubscription
from millstream.record import TaskId, TopicPartition

TASKS = [TaskId(0, partition) for partition in range(600)]
ENDS = dict.fromkeys(TASKS, 50_000)


class CountedLags(TaskLags):
    """Counts its lookups."""

    lookups = 0

    def __getitem__(self, task_id: TaskId) -> int:
        CountedLags.lookups += 1
        return super().__getitem__(task_id)

    def get(self, task_id: TaskId, default: Any = None) -> Any:
        CountedLags.lookups += 1
        return super().get(task_id, default)


class CountedThreads(int):
    """A number of threads that counts how often a load is computed from it."""

    lookups = 0

    def __rtruediv__(self, count: int) -> float:
        CountedThreads.lookups += 1
        return count / int(self)


def state(processes: int, threads: int = 1) -> ApplicationState:
    """All processes run tasks, and a new one has joined, so that some tasks must move."""
    owners = [uuid.UUID(int=number + 1) for number in range(processes)]
    running: dict[uuid.UUID, dict[TaskId, int]] = {owner: {} for owner in owners}
    for number, task_id in enumerate(TASKS):
        running[owners[number % (processes - 1)]][task_id] = LATEST_OFFSET
    return ApplicationState(
        {
            task_id: TaskInfo(frozenset({TopicPartition("in", task_id.partition)}), True)
            for task_id in TASKS
        },
        {
            owner: ProcessState(
                CountedThreads(threads),
                previous_active=frozenset(tasks),
                lags=CountedLags(tasks, ENDS),
            )
            for owner, tasks in running.items()
        },
        AssignmentConfig(num_standby_replicas=1),
    )


@pytest.mark.parametrize("assign", [assign_high_availability, assign_sticky])
def test_ten_times_the_processes_do_not_cause_ten_times_the_work(assign: TaskAssignor) -> None:
    lookups: list[int] = []
    for processes in (20, 200):
        CountedLags.lookups = CountedThreads.lookups = 0
        given = assign(state(processes))
        lookups.append(CountedLags.lookups + CountedThreads.lookups)
        assert sum(len(each.active) for each in given.values()) == len(TASKS)
        assert sum(len(each.standby) for each in given.values()) >= len(TASKS)
    assert lookups[1] < 3 * lookups[0], lookups


def test_the_least_loaded_equals_that_of_a_full_scan() -> None:
    chance = random.Random(4)
    loads = {name: chance.randrange(5) for name in range(40)}
    by_load = LeastLoaded(enumerate(loads), lambda name: loads[name])
    for _ in range(500):
        barred = set(chance.sample(sorted(loads), chance.choice((0, 3, 20, 40))))
        fitting = [name for name in loads if name not in barred]
        expected = min(fitting, key=lambda name: loads[name], default=None)
        assert by_load.first(lambda name: name not in barred) == expected  # noqa: B023
        if expected is not None:
            loads[expected] += chance.randrange(3)


def test_task_lags_behave_like_a_full_mapping() -> None:
    one, two, three = TASKS[:3]
    lags = TaskLags(
        {one: LATEST_OFFSET, two: 49_000, TaskId(9, 9): 5}, {one: 5, two: 50_000, three: 7}
    )
    assert lags == {one: LATEST_OFFSET, two: 1_000, three: 7}
    assert len(lags) == 3
    assert lags.get(TaskId(9, 9)) is None


@pytest.mark.parametrize("is_full", [False, True])
def test_caught_up_clients_are_found_in_the_order_of_lags(is_full: bool) -> None:
    """Whether processes report a few tasks or all."""
    task_id = TASKS[0]
    reported: list[dict[TaskId, int]] = [
        {},
        {task_id: 49_999},
        {task_id: 0},
        {},
        {task_id: 30_000},
        {task_id: LATEST_OFFSET},
    ]
    lags = [TaskLags(sums, ENDS) for sums in reported]
    clients = [
        ClientLoad(uuid.UUID(int=n), ProcessState(1, lags=dict(each) if is_full else each))
        for n, each in enumerate(lags)
    ]
    at_hand = CaughtUpClients(clients, 10_000)
    assert at_hand.caught_up(task_id) == [clients[1], clients[5]]
    assert at_hand.min_lag(task_id) == LATEST_OFFSET
    in_order = sorted(clients, key=lambda client: client.lag(task_id))
    for client in clients:
        ahead = in_order[: in_order.index(client)]
        assert list(at_hand.ahead_of(client, task_id)) == ahead


def test_exchanges_between_racks_have_the_minimum_cost() -> None:
    """An exchange that only considers racks is as cheap as the best of all assignments, for small
    random groups."""
    chance = random.Random(7)
    for _ in range(60):
        racks = [chance.choice("abc") for _ in range(chance.randrange(1, 5))]
        owners = [chance.randrange(len(racks)) for _ in range(chance.randrange(1, 7))]
        order = sorted_racks(racks)
        costs = [tuple(chance.choice((0, 10, 20)) for _ in order) for _ in owners]
        overlap = chance.choice((0, 1, 15))

        def total(new: Sequence[int]) -> int:
            return sum(
                costs[task][order.index(racks[owner])] + (overlap if owner != owners[task] else 0)  # noqa: B023
                for task, owner in enumerate(new)
            )

        found, left = exchange_between_racks(owners, racks, costs, overlap, 1_000_000)
        assert sorted(found) == sorted(owners), "each process keeps its number of tasks"
        assert total(found) == min(map(total, set(permutations(owners))))
        assert left


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_tasks_of_a_group_too_large_for_a_full_search_are_in_their_racks(strategy: str) -> None:
    """Each task has its replicas in one rack, and the rack has enough space for all its tasks."""
    racks = "abc"
    plain = state(201)
    owners = list(plain.processes)
    rack_of = {owner: racks[number % 3] for number, owner in enumerate(owners)}
    large = replace(
        plain,
        processes={
            owner: replace(process, rack=rack_of[owner], lags={}, previous_active=frozenset())
            for owner, process in plain.processes.items()
        },
        config=AssignmentConfig(rack_aware_assignment_strategy=strategy),
        replica_racks={
            TopicPartition("in", number): frozenset({racks[number // 2 % 3]})
            for number in range(len(TASKS))
        },
    )
    given = assign_high_availability(large)
    check_assignment(large, given)
    away = [
        task_id
        for owner, tasks in given.items()
        for task_id in tasks.active
        if rack_of[owner] not in large.replica_racks[TopicPartition("in", task_id.partition)]
    ]
    assert len(away) <= 3, "of 600; the racks do not have quite equal capacity"
    assert {len(tasks.active) for tasks in given.values()} <= {2, 3}


def test_standbys_of_large_processes_are_in_their_racks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two processes with a hundred standbys each exchange them at once. A full search finds nothing
    cheaper, and takes a hundred times as long for a thousand standbys."""
    racks = "abc"
    owners = [uuid.UUID(int=number + 1) for number in range(6)]
    rack_of = {owner: racks[number % 3] for number, owner in enumerate(owners)}
    logs = {task_id: TopicPartition("log", task_id.partition) for task_id in TASKS}
    group = ApplicationState(
        {
            task_id: TaskInfo(
                frozenset({TopicPartition("in", task_id.partition)}), True, frozenset({log})
            )
            for task_id, log in logs.items()
        },
        {owner: ProcessState(1, rack=rack_of[owner]) for owner in owners},
        AssignmentConfig(num_standby_replicas=1, rack_aware_assignment_strategy="min_traffic"),
        replica_racks={
            TopicPartition(topic, task_id.partition): frozenset(
                racks[(task_id.partition // step + at) % 3] for at in range(2)
            )
            for task_id in TASKS
            for topic, step in (("in", 1), ("log", 5))
        },
    )

    def away(given: Mapping[uuid.UUID, ProcessAssignment]) -> int:
        return sum(
            rack_of[owner] not in group.replica_racks[logs[task_id]]
            for owner, tasks in given.items()
            for task_id in tasks.standby
        )

    without = replace(group, config=AssignmentConfig(num_standby_replicas=1))
    exchanged = assign_high_availability(group)
    check_assignment(group, exchanged)
    monkeypatch.setattr(rack_aware, "_MAX_ARCS_BY_ROLE", {"active": 10**9, "standby": 10**9})
    searched = assign_high_availability(group)
    assert away(exchanged) == away(searched) < away(assign_high_availability(without))


def test_the_leader_warns_before_the_broker_rejects_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With addresses, the metadata of 40 processes with 4,000 partitions is too large for the
    group's topic; without them, it is not."""
    topics = TopologyTopics((TopicGroup(0, ("in",)),))
    for end_point, warnings in (("", 0), ("a-host:80{}", 1)):
        caplog.clear()
        members = {
            f"member-{number}": MemberSubscription(
                ("in",),
                SubscriptionInfo(uuid.UUID(int=number + 1), end_point.format(number)).encode(),
                (),
                None,
                None,
            )
            for number in range(40)
        }
        given = LeaderAssignor(topics, FixedCluster({"in": 4_000}, 0)).assign(members)
        assert sum(len(each.partitions) for each in given.values()) == 4_000
        messages = [record.getMessage() for record in caplog.records if "message.max" in record.msg]
        assert len(messages) == warnings, messages

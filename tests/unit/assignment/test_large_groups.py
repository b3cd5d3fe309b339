"""With many processes and tasks, only those are looked at that matter: what is counted here grows
with the tasks, not with tasks times processes."""

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
from millstream.assignment.placing.client_load import ClientLoad
from millstream.assignment.placing.lags import TaskLags
from millstream.assignment.placing.least_loaded import LeastLoaded
from millstream.assignment.placing.state_at_hand import StateAtHand
from millstream.assignment.racks import rack_aware
from millstream.assignment.racks.rack_flow import exchange_between_racks, sorted_racks
from millstream.assignment.task_assignor import check_assignment
from millstream.assignment.topics import TopicGroup, TopologyTopics
from millstream.assignment.wire.protocol import LATEST_OFFSET
from millstream.assignment.wire.subscription_info import SubscriptionInfo
from millstream.kafka.member.member_assignor import MemberSubscription
from millstream.record import TaskId, TopicPartition

TASKS = [TaskId(0, partition) for partition in range(600)]
ENDS = dict.fromkeys(TASKS, 50_000)


class CountedLags(TaskLags):
    """Counts how often it is looked at."""

    looks = 0

    def __getitem__(self, task_id: TaskId) -> int:
        CountedLags.looks += 1
        return super().__getitem__(task_id)

    def get(self, task_id: TaskId, default: Any = None) -> Any:
        CountedLags.looks += 1
        return super().get(task_id, default)


class CountedThreads(int):
    """A number of threads that counts how often a load is made of it."""

    looks = 0

    def __rtruediv__(self, count: int) -> float:
        CountedThreads.looks += 1
        return count / int(self)


def state(processes: int, threads: int = 1) -> ApplicationState:
    """Each process runs its tasks, and one has just come: some are to move there."""
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
def test_ten_times_the_processes_are_not_ten_times_the_work(assign: TaskAssignor) -> None:
    looks: list[int] = []
    for processes in (20, 200):
        CountedLags.looks = CountedThreads.looks = 0
        given = assign(state(processes))
        looks.append(CountedLags.looks + CountedThreads.looks)
        assert sum(len(each.active) for each in given.values()) == len(TASKS)
        assert sum(len(each.standby) for each in given.values()) >= len(TASKS)
    assert looks[1] < 3 * looks[0], looks


def test_the_least_loaded_is_the_one_that_looking_through_all_would_find() -> None:
    choose = random.Random(4)
    loads = {name: choose.randrange(5) for name in range(40)}
    by_load = LeastLoaded(enumerate(loads), lambda name: loads[name])
    for _ in range(500):
        barred = set(choose.sample(sorted(loads), choose.choice((0, 3, 20, 40))))
        fitting = [name for name in loads if name not in barred]
        expected = min(fitting, key=lambda name: loads[name], default=None)
        assert by_load.first(lambda name: name not in barred) == expected  # noqa: B023
        if expected is not None:
            loads[expected] += choose.randrange(3)


def test_a_mapping_of_lags_is_what_a_full_one_would_be() -> None:
    one, two, three = TASKS[:3]
    lags = TaskLags(
        {one: LATEST_OFFSET, two: 49_000, TaskId(9, 9): 5}, {one: 5, two: 50_000, three: 7}
    )
    assert lags == {one: LATEST_OFFSET, two: 1_000, three: 7}
    assert len(lags) == 3
    assert lags.get(TaskId(9, 9)) is None


@pytest.mark.parametrize("is_full", [False, True])
def test_who_is_ahead_is_found_in_the_order_of_lags(is_full: bool) -> None:
    """Whether processes say something of a few tasks or of all makes no difference."""
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
    at_hand = StateAtHand(clients, 10_000)
    assert at_hand.caught_up(task_id) == [clients[1], clients[5]]
    assert at_hand.least_lag(task_id) == LATEST_OFFSET
    in_order = sorted(clients, key=lambda client: client.lag(task_id))
    for client in clients:
        ahead = in_order[: in_order.index(client)]
        assert list(at_hand.ahead_of(client, task_id)) == ahead


def test_exchanges_between_racks_cost_as_little_as_any() -> None:
    """Goal: what is found by looking at racks alone is as cheap as what looking at all would find.

    Method: small random groups, and all ways to deal their tasks out.
    """
    choose = random.Random(7)
    for _ in range(60):
        racks = [choose.choice("abc") for _ in range(choose.randrange(1, 5))]
        owners = [choose.randrange(len(racks)) for _ in range(choose.randrange(1, 7))]
        order = sorted_racks(racks)
        costs = [tuple(choose.choice((0, 10, 20)) for _ in order) for _ in owners]
        overlap = choose.choice((0, 1, 15))

        def total(new: Sequence[int]) -> int:
            return sum(
                costs[task][order.index(racks[owner])] + (overlap if owner != owners[task] else 0)  # noqa: B023
                for task, owner in enumerate(new)
            )

        found, left = exchange_between_racks(owners, racks, costs, overlap, 1_000_000)
        assert sorted(found) == sorted(owners), "each has as many as before"
        assert total(found) == min(map(total, set(permutations(owners))))
        assert left


@pytest.mark.parametrize("strategy", ["min_traffic", "balance_subtopology"])
def test_a_group_too_large_for_a_search_among_processes_is_near_its_racks(strategy: str) -> None:
    """Each task has its replicas in one rack, in which there is a place for each of them."""
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
    assert len(away) <= 3, "of 600, where the racks do not have quite equally many places"
    assert {len(tasks.active) for tasks in given.values()} <= {2, 3}


def test_standbys_of_large_processes_are_near_their_racks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two processes with a hundred standbys each exchange them at once; a search among them finds
    nothing cheaper, and takes a hundred times as long for a thousand."""
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
    monkeypatch.setattr(rack_aware, "_EFFORT_OF", {"active": 10**9, "standby": 10**9})
    searched = assign_high_availability(group)
    assert away(exchanged) == away(searched) < away(assign_high_availability(without))


def test_the_leader_warns_before_the_broker_refuses_the_group(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A group of 40 processes that tell of each other's 4,000 partitions is too large; without
    addresses it is not."""
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
        said = [record.getMessage() for record in caplog.records if "message.max" in record.msg]
        assert len(said) == warnings, said

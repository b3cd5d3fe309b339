"""With many processes and tasks, only those are looked at that matter: what is counted here grows
with the tasks, not with tasks times processes."""

from __future__ import annotations

import random
import uuid

import pytest

from millstream.assignment import (
    ApplicationState,
    AssignmentConfig,
    ProcessState,
    TaskAssignor,
    TaskInfo,
    assign_high_availability,
    assign_sticky,
)
from millstream.assignment.client_load import ClientLoad
from millstream.assignment.lags import TaskLags
from millstream.assignment.least_loaded import LeastLoaded
from millstream.assignment.protocol import LATEST_OFFSET
from millstream.assignment.state_at_hand import StateAtHand
from millstream.record import TaskId, TopicPartition

TASKS = [TaskId(0, partition) for partition in range(600)]
ENDS = dict.fromkeys(TASKS, 50_000)


class CountedLags(TaskLags):
    """Counts how often it is looked at."""

    looks = 0

    def __getitem__(self, task_id: TaskId) -> int:
        CountedLags.looks += 1
        return super().__getitem__(task_id)


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

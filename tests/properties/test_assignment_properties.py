"""Properties of assignments for random topologies and random changes of the group.

These tests use the sticky assignor; `test_high_availability_properties.py` has the other one.

Method: random groups of processes and threads. The cooperative protocol is simulated round by
round, with encoded messages: a member immediately revokes the tasks that it is no longer assigned,
and rejoins if it revoked tasks or the assignment schedules a rebalance.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from support.tasks.fixed_cluster import FixedCluster

from millstream.assignment.leader_assignor import LeaderAssignor, spread_over_threads
from millstream.assignment.placement.sticky import assign_sticky
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import (
    ApplicationState,
    ProcessState,
    TaskInfo,
    check_assignment,
)
from millstream.assignment.topic_metadata import ChangelogSpec, TopicGroup, TopologyTopics
from millstream.assignment.wire_format import LATEST_OFFSET, SubscriptionInfo
from millstream.clock import ManualClock
from millstream.kafka.membership.member_assignor import MemberSubscription
from millstream.record import TaskId, TopicPartition

#: One round each to revoke tasks, to assign them, and to find the assignment stable. Since a
#: withheld task has no owner in the next round, other tasks may move once more.
_ROUNDS = 5


@dataclass
class Member:
    process: uuid.UUID
    topics: tuple[str, ...] = ()
    tasks: dict[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    joins: int = 0
    stateful: frozenset[int] = frozenset()
    rack_id: str | None = None

    @property
    def owned_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for tps in self.tasks.values() for tp in tps)

    @property
    def subscription(self) -> MemberSubscription:
        sums = {
            task_id: LATEST_OFFSET for task_id in self.tasks if task_id.subtopology in self.stateful
        }
        info = SubscriptionInfo(self.process, task_offset_sums=sums, unique_field=self.joins)
        owned = self.owned_partitions
        return MemberSubscription(self.topics, info.encode(), owned, None, self.rack_id)


@st.composite
def topologies(draw: st.DrawFn) -> tuple[TopologyTopics, dict[str, int]]:
    """Create up to three sub-topologies, some stateful, with one or two topics each."""
    groups = []
    counts: dict[str, int] = {}
    for number in range(draw(st.integers(1, 3))):
        topics = tuple(f"in-{number}-{i}" for i in range(draw(st.integers(1, 2))))
        counts |= {topic: draw(st.integers(1, 6)) for topic in topics}
        changelogs = {f"log-{number}": ChangelogSpec()} if draw(st.booleans()) else {}
        groups.append(TopicGroup(number, topics, changelog_topics=changelogs))
    return TopologyTopics(tuple(groups)), counts


#: Consecutive numbers of threads of each process; a process without threads is gone.
_HISTORIES = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any), min_size=1, max_size=4
)


class Simulation:
    """A changing group that rebalances; checks the invariants of every round."""

    def __init__(self, topics: TopologyTopics, counts: dict[str, int]) -> None:
        self._cluster = FixedCluster(dict(counts), 100_000)
        self._assignor = LeaderAssignor(topics, self._cluster, assign_sticky, clock=ManualClock(0))
        self._stateful = frozenset(g.subtopology_id for g in topics.groups if g.is_stateful)
        self.members: dict[str, Member] = {}

    def resize(self, threads: Sequence[int]) -> None:
        """Add and remove members to match the number of threads per process."""
        wanted = {
            f"p{process}-t{thread}": process
            for process, count in enumerate(threads)
            for thread in range(count)
        }
        for name in self.members.keys() - wanted.keys():
            del self.members[name]
        for name, process in wanted.items():
            process_id = uuid.UUID(int=process + 1)
            self.members.setdefault(name, Member(process_id, stateful=self._stateful))

    def round(self) -> bool:
        """Rebalance once. Return whether another rebalance is needed."""
        for member in self.members.values():
            member.joins += 1
        members = {name: member.subscription for name, member in self.members.items()}
        given = self._assignor.assign(members)
        assert given == self._assignor.assign(dict(reversed(members.items())))
        again = False
        new: dict[str, TaskAssignment] = {}
        for name, member in self.members.items():
            new[name] = decode_assignment(given[name].partitions, given[name].user_data)
            revokes = not set(member.owned_partitions) <= set(given[name].partitions)
            again |= revokes or new[name].next_rebalance_ms == 0
        self._check_nothing_is_owned_twice(new)
        for name, member in self.members.items():
            member.tasks = dict(new[name].active)
        return again

    def _check_nothing_is_owned_twice(self, new: Mapping[str, TaskAssignment]) -> None:
        # Some members still process their old tasks while others already start their new ones.
        owner: dict[TopicPartition, str] = {}
        for name, member in self.members.items():
            partitions = {tp for tps in new[name].active.values() for tp in tps}
            for partition in {*member.owned_partitions, *partitions}:
                assert owner.setdefault(partition, name) == name

    def settle(self) -> int:
        """Rebalance until the group is stable. Return the number of rounds."""
        for rounds in range(1, _ROUNDS + 1):
            if not self.round():
                return rounds
        raise AssertionError(f"not stable after {_ROUNDS} rounds")

    @property
    def tasks(self) -> list[TaskId]:
        return sorted(task_id for member in self.members.values() for task_id in member.tasks)


@settings(max_examples=150, deadline=None)
@given(topologies(), _HISTORIES)
def test_any_group_settles_with_balanced_tasks(
    topology: tuple[TopologyTopics, dict[str, int]], history: list[list[int]]
) -> None:
    """Aim: a few rounds after any change, each task has exactly one owner and threads are balanced
    to within one task; at any time, each partition has at most one owner."""
    topics, counts = topology
    expected = [
        TaskId(group.subtopology_id, partition)
        for group in topics.groups
        for partition in range(max(counts[topic] for topic in group.source_topics))
    ]
    group = Simulation(topics, counts)
    for threads in history:
        group.resize(threads)
        group.settle()
        assert group.tasks == expected
        partitions = [tp for member in group.members.values() for tp in member.owned_partitions]
        assert sorted(partitions) == sorted(
            TopicPartition(topic, number) for topic in counts for number in range(counts[topic])
        )
        sizes = [len(member.tasks) for member in group.members.values()]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=80, deadline=None)
@given(topologies(), _HISTORIES)
def test_an_unchanged_group_moves_no_tasks(
    topology: tuple[TopologyTopics, dict[str, int]], history: list[list[int]]
) -> None:
    """Aim: a rebalance without a change moves no tasks and takes one round."""
    group = Simulation(*topology)
    for threads in history:
        group.resize(threads)
        group.settle()
    before = {name: dict(member.tasks) for name, member in group.members.items()}
    assert group.settle() == 1
    assert {name: member.tasks for name, member in group.members.items()} == before


@st.composite
def states(draw: st.DrawFn) -> ApplicationState:
    """Create tasks and processes with previous tasks, some claimed by several processes."""
    tasks = [TaskId(i % 3, i // 3) for i in range(draw(st.integers(0, 14)))]
    some = st.frozensets(st.sampled_from([*tasks, TaskId(9, 9)]), max_size=10)
    processes = {
        uuid.UUID(int=number): ProcessState(draw(st.integers(1, 4)), draw(some), draw(some))
        for number in range(1, draw(st.integers(1, 5)) + 1)
    }
    return ApplicationState(
        {task_id: TaskInfo(frozenset(), task_id.subtopology == 0) for task_id in sorted(tasks)},
        processes,
    )


@settings(max_examples=300, deadline=None)
@given(states())
def test_sticky_balances_threads_after_any_previous_assignment(state: ApplicationState) -> None:
    """Aim: every task is assigned once, and threads are balanced to within one task."""
    assignment = assign_sticky(state)
    check_assignment(state, assignment)
    assert sum(len(given.active) for given in assignment.values()) == len(state.tasks)
    loads = [
        load
        for process_id, given in assignment.items()
        for load in _thread_loads(given.active, state.processes[process_id].threads)
    ]
    assert max(loads) - min(loads) <= 1


@settings(max_examples=200, deadline=None)
@given(states())
def test_sticky_keeps_its_own_assignment(state: ApplicationState) -> None:
    """Aim: the assignment is a fixed point."""
    first = assign_sticky(state)
    again = ApplicationState(
        state.tasks,
        {
            process_id: ProcessState(process.threads, first[process_id].active)
            for process_id, process in state.processes.items()
        },
    )
    assert assign_sticky(again) == first


@settings(max_examples=100, deadline=None)
@given(states())
def test_when_a_process_leaves_only_its_tasks_move(state: ApplicationState) -> None:
    """Aim: the remaining processes keep all of their tasks."""
    first = assign_sticky(state)
    gone = next(iter(state.processes))
    rest = {
        process_id: ProcessState(process.threads, first[process_id].active)
        for process_id, process in state.processes.items()
        if process_id != gone
    }
    second = assign_sticky(ApplicationState(state.tasks, rest))
    for process_id in rest:
        assert first[process_id].active <= second[process_id].active


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_each_kind_of_tasks_is_spread_evenly_over_threads(data: st.DataObject) -> None:
    """Aim: after each kind, threads differ by at most one task, and each task is assigned once."""
    names = [f"t{i}" for i in range(data.draw(st.integers(1, 5)))]
    loads: dict[str, int] = {}
    for kind in range(3):
        tasks = [TaskId(kind, i) for i in range(data.draw(st.integers(0, 9)))]
        had = st.lists(st.sampled_from([*tasks, TaskId(8, 8)]), unique=True, max_size=6)
        previous = {name: data.draw(had) for name in names}
        spread = spread_over_threads(tasks, names, previous, loads)
        assert sorted(task_id for given in spread.values() for task_id in given) == tasks
        assert max(loads.values()) - min(loads.values()) <= 1


def _thread_loads(tasks: Iterable[TaskId], threads: int) -> list[int]:
    count = len(list(tasks))
    return [count // threads + (thread < count % threads) for thread in range(threads)]

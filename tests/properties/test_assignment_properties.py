"""What holds for the assignment of any topology to any group, through any history of the group.

With the sticky assignor; what holds for the high-availability one is in a file of its own.

Method: random groups of processes and threads; the cooperative protocol is simulated round by
round, through the bytes: a member gives up at once what it was not assigned, and joins again
when it gave something up or was told to.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from support.tasks.fixed_cluster import FixedCluster

from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.placing.sticky import assign_sticky
from millstream.assignment.placing.thread_shares import spread_over_threads
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import (
    ApplicationState,
    ProcessState,
    TaskInfo,
    check_assignment,
)
from millstream.assignment.topics import ChangelogSpec, TopicGroup, TopologyTopics
from millstream.assignment.wire.protocol import LATEST_OFFSET
from millstream.assignment.wire.subscription_info import SubscriptionInfo
from millstream.clock import ManualClock
from millstream.record import TaskId, TopicPartition

#: A round in which tasks are given up, one in which they are taken, one to find it stable. A task
#: that is withheld counts as nobody's in the next round, so that others may move once more.
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
    def user_data(self) -> bytes:
        sums = {
            task_id: LATEST_OFFSET for task_id in self.tasks if task_id.subtopology in self.stateful
        }
        return SubscriptionInfo(
            self.process, task_offset_sums=sums, unique_field=self.joins
        ).encode()


@st.composite
def topologies(draw: st.DrawFn) -> tuple[TopologyTopics, dict[str, int]]:
    """Up to three sub-topologies, some stateful, of one or two topics each."""
    groups = []
    counts: dict[str, int] = {}
    for number in range(draw(st.integers(1, 3))):
        topics = tuple(f"in-{number}-{i}" for i in range(draw(st.integers(1, 2))))
        counts |= {topic: draw(st.integers(1, 6)) for topic in topics}
        changelogs = {f"log-{number}": ChangelogSpec()} if draw(st.booleans()) else {}
        groups.append(TopicGroup(number, topics, changelog_topics=changelogs))
    return TopologyTopics(tuple(groups)), counts


#: How many threads each process has, as the group changes; a process may be gone.
_HISTORIES = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any), min_size=1, max_size=4
)


class Simulation:
    """A group whose members come, go and rebalance; checks what must hold in every round."""

    def __init__(self, topics: TopologyTopics, counts: dict[str, int]) -> None:
        self._cluster = FixedCluster(dict(counts), 100_000)
        self._assignor = LeaderAssignor(topics, self._cluster, assign_sticky, clock=ManualClock(0))
        self._stateful = frozenset(g.subtopology_id for g in topics.groups if g.is_stateful)
        self.members: dict[str, Member] = {}

    def resize(self, threads: Sequence[int]) -> None:
        """Let members come and go until there are so many threads per process."""
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
        """One rebalance; whether another is called for."""
        for member in self.members.values():
            member.joins += 1
        given = self._assignor.assign(self.members)
        assert given == self._assignor.assign(dict(reversed(self.members.items())))
        again = False
        new: dict[str, TaskAssignment] = {}
        for name, member in self.members.items():
            new[name] = decode_assignment(*given[name])
            gives_up = not set(member.owned_partitions) <= set(given[name].partitions)
            again |= gives_up or new[name].next_rebalance_ms == 0
        self._check_nothing_is_owned_twice(new)
        for name, member in self.members.items():
            member.tasks = dict(new[name].active)
        return again

    def _check_nothing_is_owned_twice(self, new: Mapping[str, TaskAssignment]) -> None:
        # Some members still work on what they had while others already begin with what is new.
        owner: dict[TopicPartition, str] = {}
        for name, member in self.members.items():
            partitions = {tp for tps in new[name].active.values() for tp in tps}
            for partition in {*member.owned_partitions, *partitions}:
                assert owner.setdefault(partition, name) == name

    def settle(self) -> int:
        """Rebalance until the group is stable; how many rounds it took."""
        for rounds in range(1, _ROUNDS + 1):
            if not self.round():
                return rounds
        raise AssertionError(f"not stable after {_ROUNDS} rounds")

    @property
    def tasks(self) -> list[TaskId]:
        return sorted(task_id for member in self.members.values() for task_id in member.tasks)


@settings(max_examples=150, deadline=None)
@given(topologies(), _HISTORIES)
def test_any_group_settles_with_every_task_once_and_in_balance(
    topology: tuple[TopologyTopics, dict[str, int]], history: list[list[int]]
) -> None:
    """Aim: whatever comes and goes, after a few rounds each task has one owner, each
    partition had at most one at any time, and no thread has two tasks more than another that
    could have one of them."""
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
def test_a_group_that_does_not_change_moves_nothing(
    topology: tuple[TopologyTopics, dict[str, int]], history: list[list[int]]
) -> None:
    """Aim: a rebalance without a cause costs nothing: nothing moves, in one round."""
    group = Simulation(*topology)
    for threads in history:
        group.resize(threads)
        group.settle()
    before = {name: dict(member.tasks) for name, member in group.members.items()}
    assert group.settle() == 1
    assert {name: member.tasks for name, member in group.members.items()} == before


@st.composite
def states(draw: st.DrawFn) -> ApplicationState:
    """Tasks and processes with any previous tasks, claimed by several processes even."""
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
def test_sticky_balances_threads_whatever_was_before(state: ApplicationState) -> None:
    """Aim: every task once, and no thread has two tasks more than another one anywhere."""
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
def test_sticky_keeps_what_it_decided(state: ApplicationState) -> None:
    """Aim: its own result is a fixed point: asked again, it changes nothing."""
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
def test_a_process_that_leaves_moves_only_its_own_tasks(state: ApplicationState) -> None:
    """Aim: when a process goes, the others keep everything they had."""
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
def test_threads_share_each_kind_of_tasks_evenly(data: st.DataObject) -> None:
    """Aim: kind after kind, threads differ by one task at most, and nothing is lost or doubled."""
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

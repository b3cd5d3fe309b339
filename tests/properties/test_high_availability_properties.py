"""Properties of assignments of stateful tasks, through random changes of the group.

Method: random groups of processes and threads go through random changes. The cooperative protocol
is simulated round by round, with encoded messages, as is the state of each process: standbys catch
up between a rebalance and the following probing rebalance.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from support.tasks.fixed_cluster import FixedCluster

from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import AssignmentConfig
from millstream.assignment.topic_metadata import ChangelogSpec, TopicGroup, TopologyTopics
from millstream.assignment.wire_format import LATEST_OFFSET, SubscriptionInfo
from millstream.clock import ManualClock
from millstream.kafka.membership.member_assignor import MemberSubscription
from millstream.record import TaskId, TopicPartition

#: The end offset of every changelog.
END = 50_000
PROBING_MS = 1_000
#: One round each to revoke tasks, to assign them, and to find the assignment stable.
ROUNDS = 3


@dataclass
class Process:
    """The state of a process on its disk: the position of each task's state."""

    process_id: uuid.UUID
    reached: dict[TaskId, int] = field(default_factory=dict)


@dataclass
class Member:
    process: Process
    topics: tuple[str, ...] = ()
    tasks: dict[TaskId, frozenset[TopicPartition]] = field(default_factory=dict)
    standby: set[TaskId] = field(default_factory=set)
    joins: int = 0
    rack_id: str | None = None

    @property
    def owned_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(tp for tps in self.tasks.values() for tp in tps)

    @property
    def subscription(self) -> MemberSubscription:
        running = [task_id for task_id in self.tasks if task_id.subtopology == 0]
        sums = {**self.process.reached, **dict.fromkeys(running, LATEST_OFFSET)}
        info = SubscriptionInfo(
            self.process.process_id, task_offset_sums=sums, unique_field=self.joins
        )
        owned = self.owned_partitions
        return MemberSubscription(self.topics, info.encode(), owned, None, self.rack_id)


class Simulation:
    """A stateful and a stateless sub-topology, and processes with one or several threads."""

    def __init__(self, tasks: int, config: AssignmentConfig, stateless: int = 0) -> None:
        groups = [TopicGroup(0, ("in",), changelog_topics={"log": ChangelogSpec()})]
        groups += [TopicGroup(1, ("plain",))] if stateless else []
        topics = TopologyTopics(tuple(groups))
        self.config = config
        self.clock = ManualClock(0)
        # The changelog exists already; a new one would be empty.
        self._cluster = FixedCluster({"in": tasks, "log": tasks, "plain": stateless}, END)
        self._assignor = LeaderAssignor(
            topics, self._cluster, config=config, process_id=uuid.UUID(int=1), clock=self.clock
        )
        self.stateful = [TaskId(0, partition) for partition in range(tasks)]
        self.expected = self.stateful + [TaskId(1, partition) for partition in range(stateless)]
        self.members: dict[str, Member] = {}
        self.processes: dict[int, Process] = {}
        self.moves = 0

    def resize(self, threads: Sequence[int]) -> None:
        """Add and remove members to match the number of threads per process."""
        wanted = {
            f"p{process}-t{thread}": process
            for process, count in enumerate(threads)
            for thread in range(count)
        }
        for name in self.members.keys() - wanted.keys():
            del self.members[name]
        for number in self.processes.keys() - set(wanted.values()):
            # A process that returns later has lost its disk.
            del self.processes[number]
        for name, number in wanted.items():
            process = self.processes.setdefault(number, Process(uuid.UUID(int=number + 1)))
            self.members.setdefault(name, Member(process))

    def settle(self) -> int:
        """Rebalance until the group is stable. Return the number of probing rebalances."""
        probings = 0
        while self._until_stable():
            probings += 1
            assert probings <= self._copies + 1, "endless warm-ups"
            self._catch_up()
            self.clock.advance(PROBING_MS)
        self._catch_up()
        return probings

    @property
    def _copies(self) -> int:
        """The number of active and standby tasks, each of which may need a warm-up."""
        return len(self.expected) * (1 + self.config.num_standby_replicas)

    def _until_stable(self) -> bool:
        """Rebalance while an immediate rebalance is needed. Return whether a probing one is due."""
        for _ in range(ROUNDS):
            again, probing = self._round()
            if not again:
                return probing
        raise AssertionError(f"not stable after {ROUNDS} rounds")

    def _round(self) -> tuple[bool, bool]:
        for member in self.members.values():
            member.joins += 1
        members = {name: member.subscription for name, member in self.members.items()}
        given = self._assignor.assign(members)
        assert given == self._assignor.assign(dict(reversed(members.items())))
        new = {
            name: decode_assignment(given[name].partitions, given[name].user_data)
            for name in self.members
        }
        again = probing = False
        for name, member in self.members.items():
            due_ms = new[name].next_rebalance_ms
            again |= not set(member.owned_partitions) <= set(given[name].partitions) or due_ms == 0
            probing |= bool(due_ms)
        self._check(new)
        for name, member in self.members.items():
            self.moves += len(new[name].active.keys() - member.tasks.keys())
            member.tasks = dict(new[name].active)
            member.standby = set(new[name].standby)
        return again, probing

    def _check(self, new: Mapping[str, TaskAssignment]) -> None:
        owner: dict[TopicPartition, str] = {}
        copies: dict[TaskId, list[uuid.UUID]] = {}
        for name, member in self.members.items():
            partitions = {tp for tps in new[name].active.values() for tp in tps}
            for partition in {*member.owned_partitions, *partitions}:
                assert owner.setdefault(partition, name) == name, "owned twice"
            for task_id in new[name].standby:
                copies.setdefault(task_id, []).append(member.process.process_id)
            for task_id in new[name].active.keys() - member.tasks.keys():
                if task_id in self.stateful:
                    self._check_ready_owner(task_id, member.process)
        active_at = {
            task_id: self.members[name].process.process_id
            for name in self.members
            for task_id in new[name].active
        }
        for task_id, holders in copies.items():
            assert active_at.get(task_id) not in holders, (
                "a standby in the process of its active task"
            )
            assert len(holders) == len(set(holders)), "two standbys in one process"

    def _check_ready_owner(self, task_id: TaskId, process: Process) -> None:
        """Check that a task is assigned to a process with its state, if there is one."""
        bound = END - self.config.acceptable_recovery_lag
        ready = [p for p in self.processes.values() if p.reached.get(task_id, 0) >= bound]
        assert not ready or process in ready

    def _catch_up(self) -> None:
        """Complete all restorations and delete the state of unassigned tasks."""
        for member in self.members.values():
            for task_id in {*member.tasks, *member.standby}.intersection(self.stateful):
                member.process.reached[task_id] = END
        for process in self.processes.values():
            wanted = {
                task_id
                for member in self.members.values()
                if member.process is process
                for task_id in {*member.tasks, *member.standby}
            }
            process.reached = {t: end for t, end in process.reached.items() if t in wanted}

    @property
    def tasks(self) -> list[TaskId]:
        return sorted(task_id for member in self.members.values() for task_id in member.tasks)

    def copies(self, task_id: TaskId) -> int:
        return sum(task_id in member.standby for member in self.members.values())


CONFIGS = st.builds(
    AssignmentConfig,
    num_standby_replicas=st.integers(0, 2),
    max_warmup_replicas=st.integers(1, 3),
    acceptable_recovery_lag=st.sampled_from([0, 100]),
    probing_rebalance_interval_ms=st.just(PROBING_MS),
)
HISTORIES = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).filter(any), min_size=1, max_size=4
)


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 9), st.integers(0, 9), CONFIGS, HISTORIES)
def test_every_task_has_one_ready_owner_and_standbys_elsewhere(
    tasks: int, stateless: int, config: AssignmentConfig, history: list[list[int]]
) -> None:
    """Aim: no partition ever has two owners, a task only moves to a process with its state if there
    is one, and no standby is in the process of its active task. Once all standbys have caught up,
    every task has its standbys, and processes of equal size have the same load."""
    group = Simulation(tasks, config, stateless)
    for threads in history:
        group.resize(threads)
        group.settle()
        assert group.tasks == group.expected
        wanted = min(config.num_standby_replicas, len(group.processes) - 1)
        assert [group.copies(task_id) for task_id in group.stateful] == [wanted] * tasks
        loads: dict[int, list[int]] = {}
        for number, process in group.processes.items():
            mine = [m for m in group.members.values() if m.process is process]
            load = sum(len(m.standby) + len(m.tasks.keys() & {*group.stateful}) for m in mine)
            loads.setdefault(threads[number], []).append(load)
        for same_size in loads.values():
            assert max(same_size) - min(same_size) <= 1


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 9), st.integers(1, 2), st.permutations(range(3)))
def test_an_application_on_three_hosts_survives_the_loss_of_any_host(
    tasks: int, standbys: int, lost: list[int]
) -> None:
    """Aim: a task and its standby are never on one host, and a task that moves goes to a host
    with its standby. Each host is a process with two threads. `Simulation` checks every round."""
    config = AssignmentConfig(
        num_standby_replicas=standbys,
        acceptable_recovery_lag=0,
        probing_rebalance_interval_ms=PROBING_MS,
    )
    group = Simulation(tasks, config)
    for host in lost:
        group.resize([2, 2, 2])
        group.settle()
        hosts = {id(member.process) for member in group.members.values() if member.tasks}
        assert len(hosts) == min(3, tasks)
        assert [group.copies(task_id) for task_id in group.stateful] == [standbys] * tasks
        others = [each for number, each in group.processes.items() if number != host]
        assert {task_id for each in others for task_id in each.reached} == {*group.stateful}
        group.resize([0 if number == host else 2 for number in range(3)])
        group.settle()
        assert group.tasks == group.expected


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), CONFIGS, HISTORIES)
def test_an_unchanged_group_moves_no_tasks(
    tasks: int, config: AssignmentConfig, history: list[list[int]]
) -> None:
    """Aim: a rebalance without a change moves no tasks."""
    group = Simulation(tasks, config)
    for threads in history:
        group.resize(threads)
        group.settle()
    moves = group.moves
    assert group.settle() == 0
    assert group.moves == moves


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 9), st.integers(1, 3), st.integers(1, 3))
def test_a_new_process_gets_its_share_after_warm_up_and_no_other_tasks_move(
    tasks: int, processes: int, warmups: int
) -> None:
    """Aim: each task moves at most once, and only after its standby has caught up."""
    group = Simulation(tasks, AssignmentConfig(max_warmup_replicas=warmups))
    group.resize([1] * processes)
    group.settle()
    before = {task_id: name for name, m in group.members.items() for task_id in m.tasks}
    moves = group.moves
    group.resize([1] * (processes + 1))
    group.settle()
    after = {task_id: name for name, m in group.members.items() for task_id in m.tasks}
    moved = [task_id for task_id in before if before[task_id] != after[task_id]]
    assert group.moves - moves == len(moved)

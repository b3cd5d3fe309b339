"""A simulated group of stream threads, to measure rebalances.

Measures the leader's cost of a rebalance, and the size of the group's data.

The members and the leader exchange real messages in one process, without a broker.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import AssignmentConfig
from millstream.assignment.topic_metadata import ChangelogSpec, NewTopic, TopicGroup, TopologyTopics
from millstream.assignment.wire_format import LATEST_OFFSET, REBALANCE_NOW_MS, SubscriptionInfo
from millstream.clock import ManualClock
from millstream.kafka.membership import member_assignor
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription
from millstream.record import TaskId, TopicPartition

#: The end offset of each changelog partition.
END: Final = 1_000_000
#: One sub-topology without state, and three with state.
SUBTOPOLOGIES: Final = 4
#: The number of threads in each process.
THREADS: Final = 4
RACKS: Final = ("rack-a", "rack-b", "rack-c")
#: One more than the rebalances that are required to revoke tasks and assign them.
_MAX_ROUNDS: Final = 4


def _inputs(number: int) -> str:
    return f"bench-scale-KSTREAM-AGGREGATE-STATE-STORE-{number:010d}-repartition"


def _changelog(number: int) -> str:
    return f"bench-scale-KSTREAM-AGGREGATE-STATE-STORE-{number:010d}-changelog"


class Cluster:
    """A cluster that responds immediately, so that requests are not measured."""

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        return dict.fromkeys(topics, self._partitions)

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        near = [frozenset((rack, RACKS[index - 1])) for index, rack in enumerate(RACKS)]
        return {
            TopicPartition(topic, number): near[(number + len(topic)) % len(near)]
            for topic in topics
            for number in range(self._partitions)
        }

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, END)

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        raise AssertionError("all topics exist")


@dataclass
class _Process:
    """The state directory of a process, shared by its threads."""

    process_id: uuid.UUID
    host: str
    rack: str
    reached: dict[TaskId, int] = field(default_factory=dict)


@dataclass
class _Member:
    process: _Process
    given: TaskAssignment = field(default_factory=TaskAssignment)
    owned: tuple[TopicPartition, ...] = ()
    joins: int = 0


@dataclass(frozen=True)
class Rebalance:
    """The leader's work in one rebalance.

    Attributes:
        took_s: CPU time in seconds, including decoding subscriptions and encoding assignments.
        subscription_bytes: the size of each member's subscription, as stored by the broker.
        assignment_bytes: the size of each member's assignment, as stored by the broker.
    """

    took_s: float
    subscription_bytes: tuple[int, ...]
    assignment_bytes: tuple[int, ...]

    @property
    def total_bytes(self) -> int:
        """The size of the broker's record of the rebalance, without names."""
        return sum(self.subscription_bytes) + sum(self.assignment_bytes)


class SimulatedGroup:
    """The members of a group and their leader.

    Args:
        tasks: the number of tasks, in four sub-topologies, the first of which has no state.
        config: the settings of the assignor.
        has_hosts: whether each process has an `application.server`.
    """

    def __init__(self, tasks: int, config: AssignmentConfig, *, has_hosts: bool = False) -> None:
        groups = tuple(
            TopicGroup(
                number,
                (_inputs(number),),
                changelog_topics={_changelog(number): ChangelogSpec()} if number else {},
            )
            for number in range(SUBTOPOLOGIES)
        )
        self._topics = tuple(_inputs(number) for number in range(SUBTOPOLOGIES))
        self._has_hosts = has_hosts
        self._clock = ManualClock(0)
        self._assignor = LeaderAssignor(
            TopologyTopics(groups),
            Cluster(tasks // SUBTOPOLOGIES),
            config=config,
            process_id=uuid.UUID(int=1),
            clock=self._clock,
        )
        self._members: dict[str, _Member] = {}
        self._processes = 0
        # Otherwise, each rebalance would be logged.
        logging.getLogger("millstream.assignment").setLevel(logging.ERROR)

    def start(self, threads: int, *, per_process: int = THREADS) -> None:
        """Add threads, with `per_process` threads in each new process."""
        for first in range(0, threads, per_process):
            self._processes += 1
            number = self._processes
            process = _Process(
                uuid.UUID(int=(number * 0x9E3779B97F4A7C15) % 2**128),
                f"host-{number:04d}.example.org:7070",
                RACKS[number % len(RACKS)],
            )
            for thread in range(first, min(threads, first + per_process)):
                name = f"bench-scale-{process.process_id}-StreamThread-{thread - first + 1}"
                member_id = f"{name}-consumer-{uuid.UUID(int=thread)}"
                self._members[member_id] = _Member(process)

    def stop(self, threads: int) -> None:
        """Remove the oldest threads."""
        for name in list(self._members)[:threads]:
            del self._members[name]

    def rebalance(self) -> Rebalance:
        """Let all members join once, and the leader compute an assignment."""
        joined = {name: self._joined(member) for name, member in self._members.items()}
        began = time.thread_time()
        subscriptions = {
            name: member_assignor.decode_subscription(data, None) for name, data in joined.items()
        }
        decided = self._assignor.assign(subscriptions)
        synced = {
            name: member_assignor.encode_assignment(
                MemberAssignment(given.partitions, given.user_data)
            )
            for name, given in decided.items()
        }
        took_s = time.thread_time() - began
        for name, data in synced.items():
            received = member_assignor.decode_assignment(data)
            member = self._members[name]
            member.given = decode_assignment(received.partitions, received.user_data)
            member.owned = received.partitions
        return Rebalance(took_s, tuple(map(len, joined.values())), tuple(map(len, synced.values())))

    def settle(self) -> list[Rebalance]:
        """Rebalance until no member requests another immediate rebalance."""
        done = [self.rebalance()]
        while any(m.given.next_rebalance_ms == REBALANCE_NOW_MS for m in self._members.values()):
            assert len(done) < _MAX_ROUNDS, "the group does not settle"
            done.append(self.rebalance())
        return done

    def catch_up(self) -> None:
        """Let the local state of all members reach the end of the changelogs."""
        for member in self._members.values():
            reached = member.process.reached
            reached.update(dict.fromkeys(_stateful(member.given.active), END))
            reached.update(dict.fromkeys(member.given.standby, END))

    def check(self, tasks: int) -> None:
        """Check that every task has one owner."""
        owned = [task_id for m in self._members.values() for task_id in m.given.active]
        assert len(owned) == len(set(owned)) == tasks // SUBTOPOLOGIES * SUBTOPOLOGIES

    def _joined(self, member: _Member) -> bytes:
        """Return the subscription that a member sends when it joins."""
        member.joins += 1
        process = member.process
        running = dict.fromkeys(_stateful(member.given.active), LATEST_OFFSET)
        info = SubscriptionInfo(
            process_id=process.process_id,
            end_point=process.host if self._has_hosts else "",
            task_offset_sums={**process.reached, **running},
            unique_field=member.joins,
        )
        return member_assignor.encode_subscription(
            MemberSubscription(
                topics=self._topics,
                user_data=info.encode(),
                owned_partitions=member.owned,
                instance_id=None,
                rack_id=process.rack,
                generation=member.joins - 1,
            )
        )


def _stateful(task_ids: Iterable[TaskId]) -> list[TaskId]:
    return [task_id for task_id in task_ids if task_id.subtopology]

"""The second of the four assignors: what a stream thread brings into a rebalance, decides there as
leader, and takes out of it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from millstream.assignment.internal_topics import missing_source_topics
from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.other_topologies import check_same_topology
from millstream.assignment.placing.high_availability import assign_high_availability
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import AssignmentConfig, TaskAssignor
from millstream.assignment.topics import NewTopic, TopologyTopics
from millstream.assignment.wire.protocol import AssignorError
from millstream.assignment.wire.subscription_info import SubscriptionInfo
from millstream.clock import Clock, Deadline
from millstream.config import StreamsConfig
from millstream.errors import (
    ConfigError,
    MissingSourceTopicError,
    ShutdownRequestedError,
    StreamsError,
)
from millstream.kafka.member.events import Assigned
from millstream.kafka.member.member_assignor import MemberAssignment, MemberSubscription
from millstream.kafka.protocols import Admin
from millstream.record import TaskId, TopicPartition

logger = logging.getLogger(__name__)

#: How long a topic that should be there may be missing, and how often it is asked for meanwhile.
_MISSING_PATIENCE_MS = 3_000
_ASK_AGAIN_MS = 250


class AssignorCluster:
    """The cluster as the assignor asks it, with one deadline for all the questions of a rebalance.

    Args:
        admin: talks to the cluster.
        group_id: whose committed offsets are asked for.
        timeout_ms: for all calls of one rebalance together. The rest of the group waits meanwhile.
        clock: for the deadline.
        needed: topics without which nothing can be assigned.
    """

    def __init__(
        self,
        admin: Admin,
        group_id: str,
        timeout_ms: int,
        clock: Clock,
        needed: Collection[str] = (),
    ) -> None:
        self._admin = admin
        self.group_id = group_id
        self._timeout_ms = timeout_ms
        self._clock = clock
        self._deadline = Deadline(clock, timeout_ms)
        self._needed = frozenset(needed)
        self._seen: frozenset[str] = frozenset()

    def begin(self) -> None:
        """A rebalance begins: the time starts to run."""
        self._deadline = Deadline(self._clock, self._timeout_ms)

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """The partition count of each of the topics that exists.

        A topic that is needed, or was there the last time, is not believed to be missing at once:
        a broker may lag behind, and the answer decides about every task of the group.
        """
        expected = frozenset(topics) & (self._needed | self._seen)
        # The other questions of this rebalance need their time, too.
        patience_ms = min(_MISSING_PATIENCE_MS, self._remaining_ms() // 3)
        patience = Deadline(self._clock, patience_ms)
        while True:
            counts = self._admin.partition_counts(topics, self._remaining_ms())
            missing = expected - counts.keys()
            if not missing or patience.passed:
                self._seen = frozenset(counts)
                return counts
            logger.debug("asks again for %s, which the cluster does not have", sorted(missing))
            self._clock.sleep_ms(patience.remaining_ms(_ASK_AGAIN_MS))

    def look_up(self, topics: Collection[str]) -> Mapping[str, int]:
        """As `partition_counts`, and as it stands."""
        return self._admin.partition_counts(topics, self._remaining_ms())

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        """The racks of the brokers with replicas of each partition, where all of them have one."""
        return self._admin.replica_racks(topics, self._remaining_ms())

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset after the last record of each partition."""
        return self._admin.end_offsets(partitions, self._remaining_ms())

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """The offset that the group has committed of each partition; 0 where it has none."""
        found = self._admin.committed_offsets(self.group_id, partitions, self._remaining_ms())
        return {place: offset or 0 for place, offset in found.items()}

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        """Create internal topics and wait until they are there."""
        self._admin.create_topics(topics, self._remaining_ms())

    def _remaining_ms(self) -> int:
        return max(1, self._deadline.remaining_ms(self._timeout_ms))


def chosen_assignor(config: StreamsConfig) -> TaskAssignor:
    """The task assignor that the settings ask for, by default the high-availability one.

    Args:
        config: `task_assignor_class` may be a function, an object or a class with a method
            `assign`; it takes an `ApplicationState` and gives each process its tasks (KIP-924).

    Raises:
        ConfigError: it is nothing of that kind.
    """
    given: Any = config.task_assignor_class
    if given is None:
        return assign_high_availability
    if isinstance(given, type):
        given = given()
    assign = getattr(given, "assign", given)
    if not callable(assign):
        raise ConfigError(
            f"task_assignor_class is {given!r}, which assigns nothing. Give it a function, or a "
            "class with a method assign(state), which takes a "
            "millstream.assignment.ApplicationState and returns {process id: ProcessAssignment}."
        )
    return cast(TaskAssignor, assign)


class ThreadAssignor:
    """A stream thread's `MemberAssignor`; as such it is called on the member's own thread.

    Args:
        process_id: of the application instance.
        end_point: `application.server`, or empty.
        client_tags: the instance's `client.tag.*`.
        topics: the topics of the topology.
        cluster: asked for partition counts and offsets, creates internal topics.
        offset_sums: what state of which tasks this thread has, by `TaskOffsetSums`; called on the
            member's thread.
        config: what the task assignor may look at.
        task_assignor: decides which process gets which tasks; by default the high-availability one.
        clock: says when probing rebalances are due.
    """

    def __init__(
        self,
        process_id: uuid.UUID,
        end_point: str,
        client_tags: Mapping[str, str],
        topics: TopologyTopics,
        cluster: AssignorCluster,
        offset_sums: Callable[[], Mapping[TaskId, int]],
        config: AssignmentConfig,
        task_assignor: TaskAssignor,
        clock: Clock,
    ) -> None:
        self._process_id = process_id
        self._end_point = end_point
        self._client_tags = dict(client_tags)
        self._topics = topics
        self._cluster = cluster
        self._offset_sums = offset_sums
        self._assignor = LeaderAssignor(
            topics, cluster, task_assignor, config, process_id=process_id, clock=clock
        )
        self._joins = 0
        self._asks_for_shutdown = False

    def ask_for_shutdown(self) -> None:
        """From the next join on, ask that all of the application shuts down (KIP-671)."""
        self._asks_for_shutdown = True

    def user_data(self) -> bytes:
        """This member's part of its subscription."""
        self._joins += 1
        return SubscriptionInfo(
            process_id=self._process_id,
            end_point=self._end_point,
            task_offset_sums=self._offset_sums(),
            unique_field=self._joins,
            error_code=(
                AssignorError.SHUTDOWN_REQUESTED if self._asks_for_shutdown else AssignorError.NONE
            ),
            client_tags=self._client_tags,
        ).encode()

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        """The leader's decision."""
        self._cluster.begin()
        return {
            name: MemberAssignment(given.partitions, given.user_data)
            for name, given in self._assignor.assign(members).items()
        }

    def decode(self, event: Assigned) -> TaskAssignment:
        """What the leader gave this member.

        Raises:
            MissingSourceTopicError: topics that the application reads do not exist; names them.
            TaskAssignmentError: the leader could not decide.
            TopologyError: the leader runs another topology.
            ShutdownRequestedError: a member asked that the whole application shuts down.
        """
        assignment = decode_assignment(event.partitions, event.user_data, end_point=self._end_point)
        check_same_topology(self._topics, assignment, self._cluster.group_id)
        try:
            assignment.raise_for_error()
        except MissingSourceTopicError as error:
            raise self._named(error) from None
        if assignment.shutdown_requested:
            raise ShutdownRequestedError(
                f"{_named(assignment.asked_by)} asked that all instances of the application "
                f"{self._cluster.group_id!r} shut down; its log tells why. Start them again when "
                "that is repaired."
            )
        return assignment

    def _named(self, error: MissingSourceTopicError) -> MissingSourceTopicError:
        """The leader's code does not say which topics are missing: look it up here."""
        self._cluster.begin()
        try:
            counts = self._cluster.look_up(self._topics.external_source_topics)
        except StreamsError:
            return error
        missing = missing_source_topics(self._topics, counts)
        if not missing:
            return error
        return MissingSourceTopicError(
            f"The application reads {', '.join(map(repr, missing))}, which the cluster does not "
            "have. Create source topics before the application is started; probably a name is "
            "misspelt, or this is another cluster.",
            topic=missing[0],
        )


def _named(asked_by: Collection[str]) -> str:
    """Who asked that all shut down, as far as the leader tells; in Java it does not."""
    if not asked_by:
        return "An instance"
    return f"The member{'' if len(asked_by) == 1 else 's'} {', '.join(asked_by)}"

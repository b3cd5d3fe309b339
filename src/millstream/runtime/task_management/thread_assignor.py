"""The assignor of a stream thread, which calls the leader's assignor.

`millstream.assignment` describes how the assignors call each other.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

from millstream.assignment.internal_topics import missing_source_topics
from millstream.assignment.leader_assignor import LeaderAssignor
from millstream.assignment.other_topologies import check_same_topology
from millstream.assignment.placement.high_availability import assign_high_availability
from millstream.assignment.task_assignment import TaskAssignment, decode_assignment
from millstream.assignment.task_assignor import AssignmentConfig, TaskAssignor
from millstream.assignment.topic_metadata import NewTopic, TopologyTopics
from millstream.assignment.wire_format import AssignorError, SubscriptionInfo
from millstream.clock import Clock, Deadline
from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    ConfigError,
    MissingSourceTopicError,
    ShutdownRequestedError,
    StreamsError,
)
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription
from millstream.kafka.membership.member_events import Assigned
from millstream.kafka.protocols import Admin
from millstream.record import TaskId, TopicPartition

logger = logging.getLogger(__name__)

#: How long to wait for an expected topic that is missing, and the interval of requests.
_MISSING_TOPIC_TIMEOUT_MS = 3_000
_RETRY_INTERVAL_MS = 250


class AssignorCluster:
    """The assignor's access to the cluster, with one deadline per rebalance.

    The other members of the group wait for the assignment, which requires the topics in `needed`.
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
        self._last_topics: frozenset[str] = frozenset()

    def begin(self) -> None:
        self._deadline = Deadline(self._clock, self._timeout_ms)

    def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the partition counts of the topics that exist.

        Waits for a topic that is needed, or that existed in the previous call, before reporting it
        as missing: a broker may lag behind, and the result affects every task of the group.
        """
        expected = frozenset(topics) & (self._needed | self._last_topics)
        # Reserve time for the other requests of this rebalance.
        wait_ms = min(_MISSING_TOPIC_TIMEOUT_MS, self._remaining_ms() // 3)
        wait = Deadline(self._clock, wait_ms)
        while True:
            counts = self._admin.partition_counts(topics, self._remaining_ms())
            missing = expected - counts.keys()
            if not missing or wait.passed:
                self._last_topics = frozenset(counts)
                return counts
            logger.debug("looking again for missing topics: %s", sorted(missing))
            self._clock.sleep_ms(wait.remaining_ms(_RETRY_INTERVAL_MS))

    def current_partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the same as `partition_counts`, but without waiting for missing topics."""
        return self._admin.partition_counts(topics, self._remaining_ms())

    def replica_racks(self, topics: Collection[str]) -> Mapping[TopicPartition, frozenset[str]]:
        """Return the racks of each partition's replicas, if all brokers have a rack."""
        return self._admin.replica_racks(topics, self._remaining_ms())

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, int]:
        return self._admin.end_offsets(partitions, self._remaining_ms())

    def committed_offsets(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the group's committed offset of each partition; 0 without one."""
        found = self._admin.committed_offsets(self.group_id, partitions, self._remaining_ms())
        return {partition: offset or 0 for partition, offset in found.items()}

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        self._admin.create_topics(topics, self._remaining_ms())

    def _remaining_ms(self) -> int:
        return max(1, self._deadline.remaining_ms(self._timeout_ms))


def configured_assignor(config: StreamsConfig) -> TaskAssignor:
    """Return the configured task assignor.

    The default is the high-availability assignor. `task_assignor_class` may be a function, an
    object or a class with a method `assign`. It receives an `ApplicationState` and returns the
    tasks of each process (KIP-924).

    Raises:
        ConfigError: `task_assignor_class` has another type.
    """
    given: Any = config.task_assignor_class
    if given is None:
        return assign_high_availability
    if isinstance(given, type):
        given = given()
    assign = getattr(given, "assign", given)
    if not callable(assign):
        raise ConfigError(
            f"task_assignor_class is {given!r}, which is not an assignor. Set it to a function, or "
            "a class with a method assign(state), that takes a "
            "millstream.assignment.ApplicationState and returns {process id: ProcessAssignment}."
        )
    return cast(TaskAssignor, assign)


class ThreadAssignor:
    """The `MemberAssignor` of a stream thread; it runs on the member's thread."""

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
        self._shutdown_requested = False

    def request_shutdown(self) -> None:
        """Add a shutdown request for all instances to all future joins (KIP-671)."""
        self._shutdown_requested = True

    def user_data(self) -> bytes:
        self._joins += 1
        return SubscriptionInfo(
            process_id=self._process_id,
            end_point=self._end_point,
            task_offset_sums=self._offset_sums(),
            unique_field=self._joins,
            error_code=(
                AssignorError.SHUTDOWN_REQUESTED if self._shutdown_requested else AssignorError.NONE
            ),
            client_tags=self._client_tags,
        ).encode()

    def assign(self, members: Mapping[str, MemberSubscription]) -> Mapping[str, MemberAssignment]:
        self._cluster.begin()
        return self._assignor.assign(members)

    def decode(self, event: Assigned) -> TaskAssignment:
        """Return this member's assignment.

        Raises:
            MissingSourceTopicError: source topics do not exist; the error lists them.
            TaskAssignmentError: the leader could not compute an assignment.
            TopologyError: the leader has a different topology.
            ShutdownRequestedError: a member requested a shutdown of all instances.
        """
        assignment = decode_assignment(event.partitions, event.user_data, end_point=self._end_point)
        check_same_topology(self._topics, assignment, self._cluster.group_id)
        try:
            assignment.raise_for_error()
        except MissingSourceTopicError as error:
            raise self._with_missing_topics(error) from None
        if assignment.shutdown_requested:
            raise ShutdownRequestedError(
                f"{_describe_requesters(assignment.requested_by)} requested a shutdown of all "
                f"instances of the application {self._cluster.group_id!r}. The requester's log "
                "contains the reason. Restart the instances when the problem is fixed."
            )
        return assignment

    def _with_missing_topics(self, error: MissingSourceTopicError) -> MissingSourceTopicError:
        """Look up the missing topics, which the leader's error code does not name."""
        self._cluster.begin()
        try:
            counts = self._cluster.current_partition_counts(self._topics.external_source_topics)
        except StreamsError:
            return error
        missing = missing_source_topics(self._topics, counts)
        if not missing:
            return error
        return MissingSourceTopicError(
            f"The application reads {', '.join(map(repr, missing))}, which the cluster does not "
            "have. Create source topics before the application starts. Perhaps a name is "
            "misspelled, or this is another cluster.",
            topic=missing[0],
        )


def _describe_requesters(requested_by: Collection[str]) -> str:
    """Describe the members that requested the shutdown, if known.

    Java leaders do not report them.
    """
    if not requested_by:
        return "An instance"
    return f"The member{'' if len(requested_by) == 1 else 's'} {', '.join(requested_by)}"

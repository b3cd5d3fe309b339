"""Computes the assignments of all members, on top of a `TaskAssignor`.

The assignor runs on the group's leader.

Source of the semantics: Kafka Streams' `StreamsPartitionAssignor`, with cooperative rebalancing
(KIP-429): a partition moves in two rounds. In the first round, it is withheld from its new owner,
and the old owner releases it; in the second round, it is assigned.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import Final

from millstream.assignment.client_members import ClientMetadata, GroupMembers, decode_members
from millstream.assignment.internal_topics import (
    changelog_counts,
    missing_source_topics,
    repartition_counts,
    tasks_of,
    topics_to_create,
)
from millstream.assignment.other_topologies import encode_mismatch, mismatched_members
from millstream.assignment.placement.high_availability import assign_high_availability
from millstream.assignment.placement.sticky import assign_sticky
from millstream.assignment.placement.task_lags import end_offset_sums
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    TaskAssignor,
    TaskInfo,
    check_assignment,
)
from millstream.assignment.topic_metadata import Cluster, TopologyTopics
from millstream.assignment.wire_format import (
    LATEST_VERSION,
    NO_REBALANCE_MS,
    REBALANCE_NOW_MS,
    AssignmentInfo,
    AssignorError,
    HostInfo,
    encode_hosts,
)
from millstream.clock import Clock, SystemClock
from millstream.errors import (
    BrokerUnavailableError,
    MissingSourceTopicError,
    TaskAssignmentError,
    UnknownTopicError,
)
from millstream.kafka.membership.member_assignor import MemberAssignment, MemberSubscription
from millstream.record import TaskId, TopicPartition

log = logging.getLogger(__name__)

#: The size in bytes above which the leader logs a warning: just below the broker's default limit
#: for a record (`message.max.bytes`, 1 MB).
_WARNING_BYTES: Final = 900_000

_Tasks = Mapping[TaskId, TaskInfo]
_Hosts = dict[HostInfo, set[TopicPartition]]


class LeaderAssignor:
    """Assigns the tasks of one topology to the members of the group.

    A `TaskAssignor` assigns tasks to processes; this class handles members, partitions and the wire
    format. While this member is the leader, its process requests probing rebalances.
    """

    def __init__(
        self,
        topics: TopologyTopics,
        cluster: Cluster,
        task_assignor: TaskAssignor = assign_high_availability,
        config: AssignmentConfig | None = None,
        process_id: uuid.UUID | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._topics = topics
        self._cluster = cluster
        self._task_assignor = task_assignor
        self._config = config or AssignmentConfig()
        self._process_id = process_id
        self._clock = clock or SystemClock()

    def assign(self, members: Mapping[str, MemberSubscription]) -> dict[str, MemberAssignment]:
        """Return an assignment for each member, by member id.

        Equal inputs give equal results.

        If a source topic is missing, a subscription cannot be read, or the task assignor returns an
        invalid assignment, all members receive an error code and no tasks, and the details are
        logged. Members that subscribe to other topics are rejected individually.

        Raises:
            TopologyError: the topology does not match the cluster: topics are not co-partitioned,
                or internal topics have a wrong partition count. As in Kafka Streams, only the
                leader receives this exception, and after it the next leader.
            BrokerUnavailableError: the cluster did not respond in time; nothing was assigned, and
                the group may retry.
        """
        version = LATEST_VERSION
        try:
            group = decode_members(members)
            version = min(group.version, LATEST_VERSION)
            if group.shutdown_requested:
                log.error(
                    "%s requested a shutdown of all instances: informing all %d members",
                    ", ".join(group.shutdown_requested),
                    len(members),
                )
                return _error_for_all(
                    members, AssignorError.SHUTDOWN_REQUESTED, version, group.shutdown_requested
                )
            mismatched = mismatched_members(
                self._topics, {name: member.topics for name, member in members.items()}
            )
            if not mismatched:
                return self._assign(group)
            for name, why in mismatched.items():
                log.error("%s has a different topology and gets no tasks: %s", name, why)
            known = {name: each for name, each in members.items() if name not in mismatched}
            rejection = MemberAssignment((), encode_mismatch(self._topics, version))
            return {**self._assign(decode_members(known)), **dict.fromkeys(mismatched, rejection)}
        except MissingSourceTopicError as error:
            log.error("nothing is assigned: %s", error)
            code = AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA
        except TaskAssignmentError as error:
            log.error("nothing is assigned: %s", error, exc_info=error)
            code = AssignorError.ASSIGNMENT_ERROR
        return _error_for_all(members, code, version)

    def _assign(self, group: GroupMembers) -> dict[str, MemberAssignment]:
        tasks, ends = self._prepare_tasks(self._topics.with_matches(group.topics))
        racks_matter = all(client.rack for client in group.clients) and ends is not None
        task_of = {tp: task_id for task_id, info in tasks.items() for tp in info.partitions}
        state = ApplicationState(
            tasks=tasks,
            processes={client.process_id: client.state(task_of, ends) for client in group.clients},
            config=self._config,
            leader=self._process_id,
            now_ms=self._clock.now_ms(),
            replica_racks=self._replica_racks(tasks) if racks_matter else {},
        )
        given = self._assign_to_processes(state, lags_known=ends is not None)
        check_assignment(state, given)
        assignments = _MemberAssignments(group, tasks, task_of, given)
        result = {
            name: assignment
            for client in group.clients
            for name, assignment in assignments.for_client(client, given[client.process_id])
        }
        log.info(
            "assigned %d tasks to %d threads of %d processes%s",
            len(tasks),
            len(result),
            len(group.clients),
            f"; {assignments.withheld} of them are withheld until their owners release them"
            if assignments.withheld
            else "",
        )
        _warn_if_large(result, subscription_bytes=group.subscription_bytes)
        return result

    def _assign_to_processes(
        self, state: ApplicationState, *, lags_known: bool
    ) -> Mapping[uuid.UUID, ProcessAssignment]:
        if lags_known:
            return self._task_assignor(state)
        # Follows Kafka Streams' FallbackPriorTaskAssignor: tasks stay where they are, and another
        # rebalance is scheduled, because the cluster may respond by then. Racks are ignored.
        config = replace(state.config, rack_aware_assignment_strategy="none")
        given = assign_sticky(replace(state, config=config))
        requester = self._process_id if self._process_id in given else next(iter(given))
        due_ms = state.now_ms + self._config.probing_rebalance_interval_ms
        return {**given, requester: replace(given[requester], follow_up_ms=due_ms)}

    def _prepare_tasks(
        self, topics: TopologyTopics
    ) -> tuple[dict[TaskId, TaskInfo], dict[TaskId, int] | None]:
        """Create internal topics and return the tasks.

        Also returns the end offset sums of stateful tasks, or None if the cluster does not return
        them. Raises MissingSourceTopicError if a source topic does not exist.
        """
        changelogs = {name for group in topics.groups for name in group.changelog_topics}
        sources = topics.external_source_topics
        specs = topics.repartition_topics
        counts = self._cluster.partition_counts(sources | specs.keys() | changelogs)
        missing = missing_source_topics(topics, counts)
        if missing:
            raise MissingSourceTopicError(
                f"The application reads {', '.join(map(repr, missing))}, which the cluster does "
                "not have. Create source topics before the application starts. Perhaps a name is "
                "misspelled, or this is the wrong cluster.",
                topic=missing[0],
            )
        resolved = repartition_counts(topics, counts)
        partitions = tasks_of(topics.groups, {**counts, **resolved})
        expected = {name: (count, specs[name].config) for name, count in resolved.items()}
        expected |= changelog_counts(topics.groups, partitions)
        new = topics_to_create(expected, counts)
        if new:
            log.info("creating %s", ", ".join(f"{t.name} ({t.partitions} partitions)" for t in new))
            self._cluster.create_topics(new)
        logs = {group.subtopology_id: group.changelog_topics for group in topics.groups}
        tasks = {
            task_id: TaskInfo(
                tps,
                is_stateful=bool(logs[task_id.subtopology]),
                changelogs=frozenset(
                    TopicPartition(name, task_id.partition) for name in logs[task_id.subtopology]
                ),
            )
            for task_id, tps in partitions.items()
        }
        try:
            ends = end_offset_sums(topics.groups, tasks, {t.name for t in new}, self._cluster)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            log.warning("keeping tasks where they are, as far as possible: %s", error)
            return tasks, None
        return tasks, ends

    def _replica_racks(self, tasks: _Tasks) -> Mapping[TopicPartition, frozenset[str]]:
        """Return the racks of the partitions' replicas.

        Empty if the settings do not require them or the cluster does not return them.
        """
        if self._config.rack_aware_assignment_strategy == "none":
            return {}
        topics = {partition.topic for info in tasks.values() for partition in info.partitions}
        if self._config.num_standby_replicas:
            topics |= {partition.topic for info in tasks.values() for partition in info.changelogs}
        try:
            return self._cluster.replica_racks(topics)
        except BrokerUnavailableError as error:
            log.warning("ignoring racks in the assignment: %s", error)
            return {}


class _MemberAssignments:
    """Builds the assignments of threads from the assignments of processes."""

    def __init__(
        self,
        group: GroupMembers,
        tasks: _Tasks,
        task_of: Mapping[TopicPartition, TaskId],
        given: Mapping[uuid.UUID, ProcessAssignment],
    ) -> None:
        self._group = group
        self._tasks = tasks
        self._task_of = task_of
        #: The number of tasks that are withheld in this round.
        self.withheld = 0
        active: _Hosts = {}
        standby: _Hosts = {}
        for client in group.clients:
            # The maps contain the final locations of tasks, including those of withheld tasks.
            if client.host is not None:
                mine = given[client.process_id]
                active.setdefault(client.host, set()).update(self._partitions_of(mine.active))
                standby.setdefault(client.host, set()).update(self._partitions_of(mine.standby))
        self._encoded_hosts = encode_hosts(active, standby)

    def for_client(
        self, client: ClientMetadata, given: ProcessAssignment
    ) -> Iterable[tuple[str, MemberAssignment]]:
        """Yield the assignment of each thread of a process."""
        active, standby = self._spread(client, given)
        had_standby = client.state(self._task_of).previous_standby
        follow_up_ms = given.follow_up_ms
        for name in client.consumers:
            allowed = [task_id for task_id in active[name] if self._is_free(task_id, client, name)]
            withheld = set(active[name]) - set(allowed)
            self.withheld += len(withheld)
            kept = {
                task_id
                for task_id in withheld
                if task_id in had_standby and self._tasks[task_id].is_stateful
            }
            next_rebalance_ms = NO_REBALANCE_MS
            if withheld:
                next_rebalance_ms, follow_up_ms = REBALANCE_NOW_MS, None
            elif follow_up_ms is not None:
                next_rebalance_ms, follow_up_ms = follow_up_ms, None
            yield name, self._encoded(allowed, {*standby[name], *kept}, next_rebalance_ms)

    def _spread(
        self, client: ClientMetadata, given: ProcessAssignment
    ) -> tuple[dict[str, list[TaskId]], dict[str, list[TaskId]]]:
        """Return the active and the standby tasks of each thread."""
        previous = client.previous_tasks(self._task_of)
        stateful = [task_id for task_id in given.active if self._tasks[task_id].is_stateful]
        stateless = given.active - set(stateful)
        loads: dict[str, int] = {}
        active = spread_over_threads(stateful, client.consumers, previous, loads)
        standby = spread_over_threads(given.standby, client.consumers, previous, loads)
        # Kafka Streams redistributes stateless tasks in each rebalance. Here, they stay where
        # possible: a task that moves stops for a round and causes another rebalance.
        for name, more in spread_over_threads(stateless, client.consumers, previous, loads).items():
            active[name] += more
        return active, standby

    def _is_free(self, task_id: TaskId, client: ClientMetadata, name: str) -> bool:
        """Return whether no other thread owns a partition of the task.

        A task is assigned with all its partitions or not at all.
        """
        return all(
            partition not in self._group.owned or client.owner_of.get(partition) == name
            for partition in self._tasks[task_id].partitions
        )

    def _encoded(
        self, active: Iterable[TaskId], standby: Iterable[TaskId], next_rebalance_ms: int
    ) -> MemberAssignment:
        owned = sorted(
            (partition, task_id)
            for task_id in active
            for partition in self._tasks[task_id].partitions
        )
        info = AssignmentInfo(
            active_tasks=tuple(task_id for _, task_id in owned),
            standby_tasks={task_id: self._tasks[task_id].partitions for task_id in standby},
            next_rebalance_ms=next_rebalance_ms,
            version=min(self._group.version, LATEST_VERSION),
            common_version=min(self._group.common_version, LATEST_VERSION),
        )
        data = info.encode(self._encoded_hosts)
        return MemberAssignment(tuple(partition for partition, _ in owned), data)

    def _partitions_of(self, task_ids: Iterable[TaskId]) -> Iterable[TopicPartition]:
        return (tp for task_id in task_ids for tp in self._tasks[task_id].partitions)


def spread_over_threads(
    tasks: Iterable[TaskId],
    consumers: Iterable[str],
    previous: Mapping[str, Sequence[TaskId]],
    loads: MutableMapping[str, int],
) -> dict[str, list[TaskId]]:
    """Return the tasks of each thread. The numbers of tasks differ by at most one.

    Source of the semantics: Kafka Streams' `StreamsPartitionAssignor.assignTasksToThreads`.

    Each thread first keeps its previous tasks, up to its fair share. Then threads below their share
    are filled up in turn. Each of the few remaining tasks goes to its previous thread if that
    thread does not exceed its share yet, or else to the next such thread. `previous` contains the
    previous tasks of each thread, ordered by priority. `loads` contains the number of tasks of
    other kinds that each thread already has. It is updated, so that the next kind evens out the
    differences of this one.
    """
    names = sorted(consumers)
    given: dict[str, list[TaskId]] = {name: [] for name in names}
    left = dict.fromkeys(sorted(tasks))
    share = (sum(loads.values()) + len(left)) // len(names)
    room = {name: share - loads.get(name, 0) for name in names}
    wanted: dict[TaskId, str] = {}
    for name in names:
        for task_id in previous.get(name, ()):
            if task_id not in left:
                continue
            if len(given[name]) < room[name]:
                given[name].append(task_id)
                del left[task_id]
            else:
                wanted[task_id] = name
    below_share = deque(name for name in names if len(given[name]) < room[name])
    while below_share:
        name = below_share.popleft()
        task_id = next(iter(left))
        given[name].append(task_id)
        del left[task_id]
        if len(given[name]) < room[name]:
            below_share.append(name)
    at_share = dict.fromkeys(name for name in names if len(given[name]) == room[name])
    for task_id, name in sorted(wanted.items()):
        if task_id in left and name in at_share:
            given[name].append(task_id)
            del left[task_id]
            del at_share[name]
    assert len(left) <= len(at_share), f"no thread has room for {sorted(left)}"
    # Kafka Streams assigns these tasks in the order of a heap; here they are sorted.
    for task_id, name in zip(left, at_share, strict=False):
        given[name].append(task_id)
    for name in names:
        loads[name] = loads.get(name, 0) + len(given[name])
    return given


def _warn_if_large(given: Mapping[str, MemberAssignment], subscription_bytes: int) -> None:
    """Warn before the broker rejects a large group with an unspecific error."""
    size = subscription_bytes + sum(
        len(each.user_data) + 4 * len(each.partitions) for each in given.values()
    )
    if size > _WARNING_BYTES:
        log.warning(
            "the subscriptions and assignments of the %d members take %d bytes. The broker stores "
            "them in one record, and rejects the group with an unknown error if they exceed "
            "message.max.bytes (1 MB by default). Raise message.max.bytes on the brokers, set "
            "offsets.topic.compression.codec=4 there, or use fewer threads, standbys, or "
            "instances with an application_server",
            len(given),
            size,
        )


def _error_for_all(
    members: Iterable[str], code: AssignorError, version: int, requested_by: Iterable[str] = ()
) -> dict[str, MemberAssignment]:
    # Kafka Streams' members only use the code. Millstream's members read the ids of the requesting
    # members from the hosts.
    hosts = {HostInfo(name, 0): frozenset[TopicPartition]() for name in requested_by}
    info = AssignmentInfo(error_code=code, version=version, partitions_by_host=hosts)
    data = info.encode()
    return {name: MemberAssignment((), data) for name in members}

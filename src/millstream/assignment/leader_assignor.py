"""The third of the four assignors: what the group's leader gives every member.

Source of the semantics: Kafka Streams' `StreamsPartitionAssignor`, with cooperative rebalancing
(KIP-429): a partition moves in two rounds. In the first its new owner is not told of it and its
old owner gives it up; in the second it is free.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from millstream.assignment.clients import Client, ConsumerSubscription, Group, read_group
from millstream.assignment.internal_topics import (
    changelog_counts,
    missing_source_topics,
    repartition_counts,
    topics_to_create,
)
from millstream.assignment.other_topologies import refusal, strangers_among
from millstream.assignment.partitions import tasks_of
from millstream.assignment.placing.high_availability import assign_high_availability
from millstream.assignment.placing.lags import end_offset_sums
from millstream.assignment.placing.sticky import assign_sticky
from millstream.assignment.placing.thread_shares import spread_over_threads
from millstream.assignment.task_assignor import (
    ApplicationState,
    AssignmentConfig,
    ProcessAssignment,
    TaskAssignor,
    TaskInfo,
    check_assignment,
)
from millstream.assignment.topics import Cluster, TopologyTopics
from millstream.assignment.wire.assignment_info import AssignmentInfo, HostInfo, encode_hosts
from millstream.assignment.wire.protocol import (
    LATEST_VERSION,
    NO_REBALANCE_MS,
    REBALANCE_NOW_MS,
    AssignorError,
)
from millstream.clock import Clock, SystemClock
from millstream.errors import (
    BrokerUnavailableError,
    MissingSourceTopicError,
    TaskAssignmentError,
    UnknownTopicError,
)
from millstream.record import TaskId, TopicPartition

log = logging.getLogger(__name__)

#: From here on the leader warns of the broker's limit.
_LARGE_BYTES: Final = 900_000

_Tasks = Mapping[TaskId, TaskInfo]
_Hosts = dict[HostInfo, set[TopicPartition]]


class ConsumerAssignment(NamedTuple):
    """What the leader gives one member: its partitions, sorted, and the bytes about its tasks."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes


class LeaderAssignor:
    """Gives every member of the group its part of the tasks of one topology.

    Which process gets which tasks a `TaskAssignor` decides; this one knows of members, partitions
    and bytes, too.

    Args:
        topics: the topics of the topology.
        cluster: where partition counts and offsets are asked for and internal topics created.
        task_assignor: decides which process gets which tasks.
        config: what it may look at.
        process_id: this member's process, which asks for probing rebalances while it leads.
        clock: says when those are due.
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

    def assign(self, members: Mapping[str, ConsumerSubscription]) -> dict[str, ConsumerAssignment]:
        """An assignment for each member, by member id. Equal calls have equal results.

        A missing source topic, bytes that cannot be read, or an invalid result of the task
        assignor are told to every member as an error code, with nothing assigned, and the story is
        logged here. So are members that subscribe to other topics, each by itself.

        Args:
            members: what each member brought, by member id.

        Raises:
            TopologyError: the topology does not fit the cluster: topics that are not
                co-partitioned, or internal topics with a wrong partition count. Follows Kafka
                Streams: only the leader learns of it, by this exception; the next leader will, in
                turn.
            BrokerUnavailableError: the cluster did not answer in time; nothing was decided, and
                the group may try again.
        """
        version = LATEST_VERSION
        try:
            group = read_group(members)
            version = min(group.version, LATEST_VERSION)
            if group.shutdown_requested:
                log.error(
                    "%s asked that the whole application shuts down: telling all %d members",
                    ", ".join(group.shutdown_requested),
                    len(members),
                )
                return _error_for_all(
                    members, AssignorError.SHUTDOWN_REQUESTED, version, group.shutdown_requested
                )
            strangers = strangers_among(
                self._topics, {name: member.topics for name, member in members.items()}
            )
            if not strangers:
                return self._assign(group)
            for name, why in strangers.items():
                log.error("%s runs another topology and gets no task: %s", name, why)
            known = {name: each for name, each in members.items() if name not in strangers}
            refused = ConsumerAssignment((), refusal(self._topics, version))
            return {**self._assign(read_group(known)), **dict.fromkeys(strangers, refused)}
        except MissingSourceTopicError as error:
            log.error("nothing is assigned: %s", error)
            code = AssignorError.INCOMPLETE_SOURCE_TOPIC_METADATA
        except TaskAssignmentError as error:
            log.error("nothing is assigned: %s", error, exc_info=error)
            code = AssignorError.ASSIGNMENT_ERROR
        return _error_for_all(members, code, version)

    def _assign(self, group: Group) -> dict[str, ConsumerAssignment]:
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
        given = self._decide(state, lags_known=ends is not None)
        check_assignment(state, given)
        announcement = _Announcement(group, tasks, task_of, given)
        result = {
            name: assignment
            for client in group.clients
            for name, assignment in announcement.of_client(client, given[client.process_id])
        }
        log.info(
            "assigned %d tasks to %d threads of %d processes%s",
            len(tasks),
            len(result),
            len(group.clients),
            f"; {announcement.withheld} follow when they are given up"
            if announcement.withheld
            else "",
        )
        _warn_if_large(result, told=group.told_bytes)
        return result

    def _decide(
        self, state: ApplicationState, *, lags_known: bool
    ) -> Mapping[uuid.UUID, ProcessAssignment]:
        if lags_known:
            return self._task_assignor(state)
        # Follows Kafka Streams' FallbackPriorTaskAssignor: tasks stay where they are, and when the
        # cluster answers again a further rebalance decides. Racks are left aside meanwhile.
        config = replace(state.config, rack_aware_assignment_strategy="none")
        given = assign_sticky(replace(state, config=config))
        asks = self._process_id if self._process_id in given else next(iter(given))
        due_ms = state.now_ms + self._config.probing_rebalance_interval_ms
        return {**given, asks: replace(given[asks], follow_up_ms=due_ms)}

    def _prepare_tasks(
        self, topics: TopologyTopics
    ) -> tuple[dict[TaskId, TaskInfo], dict[TaskId, int] | None]:
        """The tasks, once all internal topics are there, and how much state each stateful one has;
        None for that where the cluster does not tell.

        Raises:
            MissingSourceTopicError: a topic that the application reads does not exist.
        """
        changelogs = {name for group in topics.groups for name in group.changelog_topics}
        sources = topics.external_source_topics
        specs = topics.repartition_topics
        counts = self._cluster.partition_counts(sources | specs.keys() | changelogs)
        missing = missing_source_topics(topics, counts)
        if missing:
            raise MissingSourceTopicError(
                f"The application reads {', '.join(map(repr, missing))}, which the cluster does "
                "not have. Create source topics before the application is started; probably a "
                "name is misspelt, or this is another cluster.",
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
            log.warning("tasks stay where they are, as far as that goes: %s", error)
            return tasks, None
        return tasks, ends

    def _replica_racks(self, tasks: _Tasks) -> Mapping[TopicPartition, frozenset[str]]:
        """Where the replicas of the tasks' partitions are, as far as the settings make that matter
        and the cluster tells."""
        if self._config.rack_aware_assignment_strategy == "none":
            return {}
        topics = {partition.topic for info in tasks.values() for partition in info.partitions}
        if self._config.num_standby_replicas:
            topics |= {partition.topic for info in tasks.values() for partition in info.changelogs}
        try:
            return self._cluster.replica_racks(topics)
        except BrokerUnavailableError as error:
            log.warning("tasks are placed without regard to racks: %s", error)
            return {}


class _Announcement:
    """Turns what each process gets into what each of its threads is told."""

    def __init__(
        self,
        group: Group,
        tasks: _Tasks,
        task_of: Mapping[TopicPartition, TaskId],
        given: Mapping[uuid.UUID, ProcessAssignment],
    ) -> None:
        self._group = group
        self._tasks = tasks
        self._task_of = task_of
        #: How many tasks are kept back in this round.
        self.withheld = 0
        active: _Hosts = {}
        standby: _Hosts = {}
        for client in group.clients:
            # What is told is where tasks will be, those included that are withheld in this round.
            if client.host is not None:
                mine = given[client.process_id]
                active.setdefault(client.host, set()).update(self._partitions_of(mine.active))
                standby.setdefault(client.host, set()).update(self._partitions_of(mine.standby))
        self._encoded_hosts = encode_hosts(active, standby)

    def of_client(
        self, client: Client, given: ProcessAssignment
    ) -> Iterable[tuple[str, ConsumerAssignment]]:
        """The assignment of each thread of a process."""
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
        self, client: Client, given: ProcessAssignment
    ) -> tuple[dict[str, list[TaskId]], dict[str, list[TaskId]]]:
        """The active and the standby tasks of each thread."""
        previous = client.previous_tasks(self._task_of)
        stateful = [task_id for task_id in given.active if self._tasks[task_id].is_stateful]
        stateless = given.active - set(stateful)
        loads: dict[str, int] = {}
        active = spread_over_threads(stateful, client.consumers, previous, loads)
        standby = spread_over_threads(given.standby, client.consumers, previous, loads)
        # Kafka Streams spreads stateless tasks anew each time. They have no state to lose, but one
        # that moves stops for a round and costs another rebalance.
        for name, more in spread_over_threads(stateless, client.consumers, previous, loads).items():
            active[name] += more
        return active, standby

    def _is_free(self, task_id: TaskId, client: Client, name: str) -> bool:
        """Whether no other thread owns a partition of the task.

        A task is told whole or not at all.
        """
        return all(
            partition not in self._group.owned or client.owner_of.get(partition) == name
            for partition in self._tasks[task_id].partitions
        )

    def _encoded(
        self, active: Iterable[TaskId], standby: Iterable[TaskId], next_rebalance_ms: int
    ) -> ConsumerAssignment:
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
        return ConsumerAssignment(tuple(partition for partition, _ in owned), data)

    def _partitions_of(self, task_ids: Iterable[TaskId]) -> Iterable[TopicPartition]:
        return (tp for task_id in task_ids for tp in self._tasks[task_id].partitions)


def _warn_if_large(given: Mapping[str, ConsumerAssignment], told: int) -> None:
    """Warn before the broker cannot keep the group any more: its members would end with an error
    that says nothing.

    Args:
        given: what each member gets.
        told: how many bytes the members sent.
    """
    size = told + sum(len(each.user_data) + 4 * len(each.partitions) for each in given.values())
    if size > _LARGE_BYTES:
        log.warning(
            "the subscriptions and assignments of the %d members take %d bytes. The broker keeps "
            "them as one record and refuses the group above its message.max.bytes (1 MB by "
            "default) with an unknown error. Raise message.max.bytes on the brokers, set "
            "offsets.topic.compression.codec=4 there, or have fewer threads, standbys, or "
            "instances with an application_server",
            len(given),
            size,
        )


def _error_for_all(
    members: Iterable[str],
    code: AssignorError,
    version: int,
    asked_by: Iterable[str] = (),
) -> dict[str, ConsumerAssignment]:
    # Kafka Streams' members look at the code alone; in ours, what stands in the place of hosts says
    # whose wish it was.
    hosts = {HostInfo(name, 0): frozenset[TopicPartition]() for name in asked_by}
    info = AssignmentInfo(error_code=code, version=version, partitions_by_host=hosts)
    data = info.encode()
    return {name: ConsumerAssignment((), data) for name in members}

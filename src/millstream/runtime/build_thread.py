"""Putting a stream thread together: its clients, its place in the group, its tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from millstream.assignment.task_assignment import TaskAssignment
from millstream.assignment.task_assignor import AssignmentConfig
from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.kafka.member.events import Assigned
from millstream.kafka.protocols import Member
from millstream.kafka.rights import user_of
from millstream.kafka.settings.clients import client_setting, librdkafka_settings
from millstream.operators.apart.calls import Apart
from millstream.operators.apart.real import RealApart
from millstream.record import TaskId, TopicPartition
from millstream.runtime.control import Control, MemoryShare
from millstream.runtime.host import Host
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.commits import Commits
from millstream.runtime.loop.overdue_commits import UncommittedWork
from millstream.runtime.loop.publication import Publication
from millstream.runtime.loop.purge import RepartitionPurge
from millstream.runtime.loop.rebalances import Rebalances
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings, report_interval_ms
from millstream.runtime.loop.transactions import Transactions
from millstream.runtime.metrics_settings import recording_of
from millstream.runtime.ownership.cleanup import StateCleanup
from millstream.runtime.ownership.client import Client, join_client
from millstream.runtime.ownership.global_updates import (
    GlobalUpdates,
    NoGlobalUpdates,
    build_global_updates,
)
from millstream.runtime.ownership.no_group import NoGroup
from millstream.runtime.ownership.offset_sums import OffsetSums
from millstream.runtime.ownership.restoration import Restoration
from millstream.runtime.ownership.restore_meters import RestoreMeters
from millstream.runtime.ownership.restore_reports import RestoreAudience, RestoreReports
from millstream.runtime.ownership.start_offsets import StartOffsets
from millstream.runtime.ownership.tasks import Tasks
from millstream.runtime.ownership.thread_assignor import (
    AssignorCluster,
    ThreadAssignor,
    chosen_assignor,
)
from millstream.runtime.ownership.topic_incarnations import TopicIncarnations
from millstream.runtime.queries.reach import upstream_of_stores
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.runtime.rocksdb_tuning import rocksdb_storages
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.collector import KafkaCollector
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.time_limits import TimeLimits
from millstream.runtime.thread_clients import Clients, OpenClients, ThreadClients
from millstream.runtime.thread_identity import ThreadIdentity
from millstream.runtime.topology_topics import (
    has_tasks,
    repartition_topics,
    reset_policy,
    subscription,
    topology_topics,
)
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.disk import Disk
from millstream.state.storage.storages import Storages
from millstream.state.storage.uncommitted_budget import UncommittedBudget
from millstream.state.storage.write_check import CHECK_WRITES, WriteCheck
from millstream.subscriptions.share import SubscriptionShare
from millstream.topology.operations.subscriptions import Subscribe
from millstream.topology.physical.nodes import ProcessorNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology
from millstream.waker import Waker

#: What the leader may spend on asking the cluster, as a part of the session timeout.
_ASSIGN_PART_OF_SESSION = 0.5
#: How long tasks that are given up may be waited for at most: a part of `max.poll.interval.ms`,
#: which is also how long the group waits for a member.
_PART_OF_POLL_INTERVAL = 2
#: How much longer a flush may take than a record, which it tells of when its time is over.
_FLUSH_MARGIN_MS = 10_000


def build_thread(
    topology: Topology,
    config: StreamsConfig,
    identity: ThreadIdentity,
    control: Control,
    restore_audience: RestoreAudience,
    *,
    open_clients: OpenClients = ThreadClients,
    clock: Clock | None = None,
    disk: Disk | None = None,
    storages: Storages | None = None,
    make_apart: Callable[[Callable[[], None]], Apart] = RealApart,
    host: Host | None = None,
) -> StreamThread:
    """Make a stream thread with everything it owns; nothing talks to Kafka before it runs.

    Args:
        topology: what to compute.
        config: settings.
        identity: which thread it is.
        control: the connection to the driver.
        restore_audience: who wants to know in the driver what is restored.
        open_clients: opens its clients, by default those of a real cluster.
        clock: time, by default the system's.
        disk: what its state directory is on, by default this host's.
        storages: opens those of persistent stores, by default databases of RocksDB.
        make_apart: gives a task what makes calls beside its loop, of what ends the loop's waits.
        host: where it runs, by default where this process does.

    Raises:
        ConfigError: a Kafka client refuses its settings, a serde is missing, or the host lacks a
            variable of `state_dir`.
        LockError: too many instances have threads on this host.
    """
    clock, waker, host = clock or SystemClock(), Waker(), host or Host.here()
    control.on_news = waker.wake
    config = host.settings(config)
    with ExitStack() as undo:
        client = join_client(topology, config, identity, host, clock, disk)
        directory = client.directory
        undo.callback(directory.release)
        control.report(client.joined)
        max_age_ms = config.state_cleanup_dir_max_age_ms
        if max_age_ms >= 0:
            # Before the group is told what state there is.
            directory.remove_outdated_tasks(max_age_ms=max_age_ms, clock=clock)
        clients = open_clients(config, identity, clock, bool(topology.global_stores), waker)
        undo.callback(clients.close)
        parts = _Parts(
            topology,
            config,
            identity,
            clients,
            client,
            storages or rocksdb_storages(config),
            RestoreReports(control, restore_audience, clock),
            TopicIncarnations(
                clients.admin,
                clock,
                int(client_setting(config, "main_consumer", "metadata.max.age.ms")),
            ),
            clock,
            waker,
            lambda: make_apart(waker.wake),
            ThreadMeters(identity.name, clock, recording_of(config)),
        )
        thread = parts.thread(control)
        undo.pop_all()
        return thread


class _Membership(NamedTuple):
    """The thread's place in the group, how it reads what it is given there, and how it asks all of
    them to shut down."""

    member: Member
    decode: Callable[[Assigned], TaskAssignment]
    ask_for_shutdown: Callable[[], None]


class _Memory:
    """What the stores of the tasks of one thread may use."""

    def __init__(self, share: MemoryShare, speedups: bool | None) -> None:
        self.caches = CacheBudget(share.cache_max_bytes, speedups)
        self.uncommitted = UncommittedBudget(share.uncommitted_max_bytes)

    def resize(self, share: MemoryShare) -> None:
        self.caches.resize(share.cache_max_bytes)
        self.uncommitted.resize(share.uncommitted_max_bytes)


@dataclass(frozen=True)
class _Parts:
    """Makes the parts of one thread, of what they have in common."""

    topology: Topology
    config: StreamsConfig
    identity: ThreadIdentity
    clients: Clients
    client: Client
    storages: Storages
    restored: RestoreReports
    incarnations: TopicIncarnations
    clock: Clock
    waker: Waker
    make_apart: Callable[[], Apart]
    meters: ThreadMeters

    @cached_property
    def write_check(self) -> WriteCheck | None:
        return WriteCheck() if os.environ.get(CHECK_WRITES) else None

    @cached_property
    def share(self) -> SubscriptionShare:
        nodes = [node for part in self.topology._subtopologies() for node in part.nodes]
        plans = [
            node.operation.part.plan
            for node in nodes
            if isinstance(node, ProcessorNode) and isinstance(node.operation, Subscribe)
        ]
        return SubscriptionShare(plans[0].properties if plans else None)

    @cached_property
    def limits(self) -> TimeLimits:
        config = self.config
        name = "max.poll.interval.ms"
        limit_ms = int(client_setting(config, "main_consumer", name))
        if self.clients.transactions is not None:
            settings = librdkafka_settings(config, "producer", "")
            limit_ms = min(limit_ms, int(settings["transaction.timeout.ms"]))
            name = "transaction.timeout.ms and max.poll.interval.ms"
        return TimeLimits(self.clock, limit_ms, name)

    @cached_property
    def uncommitted(self) -> UncommittedWork:
        return UncommittedWork(self.clock, self.limits.limit_ms, self.limits.settings)

    def thread(self, control: Control) -> StreamThread:
        clients, config, clock = self.clients, self.config, self.clock
        offset_sums = OffsetSums(self.client.directory)
        membership = self._membership(offset_sums)
        self.limits.progress = membership.member.progress
        global_updates = build_global_updates(
            self.topology,
            config,
            self.client.directory.global_directory(self.identity.index),
            clients,
            self.storages,
            self.restored,
            self.meters.scope,
            clock,
        )
        memory = _Memory(memory_share(config), config.speedups)
        tasks = self._tasks(membership.member, offset_sums, global_updates, memory)
        commits = self._commits(membership.member)
        return StreamThread(
            self._settings(),
            control,
            rebalances=Rebalances(
                membership.member,
                tasks,
                commits,
                membership.decode,
                clock,
                uncommitted=self.uncommitted,
                static=clients.static,
                shut_down_all=membership.ask_for_shutdown,
            ),
            tasks=tasks,
            limits=self.limits,
            commits=commits,
            uncommitted=self.uncommitted,
            consumer=clients.consumer,
            producer=clients.producer,
            global_updates=global_updates,
            incarnations=self.incarnations,
            meters=self.meters,
            share=self.share,
            purge=RepartitionPurge(
                clients.admin,
                repartition_topics(self.topology, config),
                config.repartition_purge_interval_ms,
                clock,
                user_of(librdkafka_settings(config, "admin", "")),
            ),
            cleanup=StateCleanup(self.client.directory, config.state_cleanup_delay_ms, clock),
            queries=self._queries(tasks, global_updates),
            resize_memory=memory.resize,
            close_others=[
                self.share.close,
                *clients.closers_beside_tasks,
                self.client.directory.release,
            ],
            clock=clock,
            waker=self.waker,
        )

    def _queries(
        self, tasks: Tasks, global_updates: GlobalUpdates | NoGlobalUpdates
    ) -> StoreQueries:
        return StoreQueries(
            upstream_of_stores(self.topology._subtopologies(), self.config.application_id),
            lambda: tasks.all,
            global_updates.find,
            self.clock,
        )

    def _membership(self, offset_sums: OffsetSums) -> _Membership:
        if not has_tasks(self.topology):
            return _Membership(NoGroup(self.waker), lambda _: TaskAssignment(), lambda: None)
        config = self.config
        assignor = self._assignor(offset_sums)
        names, pattern = subscription(self.topology, config)
        member = self.clients.member(config.application_id, names, pattern, assignor)
        return _Membership(member, assignor.decode, assignor.ask_for_shutdown)

    def _assignor(self, offset_sums: OffsetSums) -> ThreadAssignor:
        config, topics = self.config, topology_topics(self.topology, self.config)
        cluster = AssignorCluster(
            self.clients.assignor_admin,
            config.application_id,
            int(self.clients.session_timeout_ms * _ASSIGN_PART_OF_SESSION),
            self.clock,
            needed=topics.external_source_topics,
        )
        return ThreadAssignor(
            self.client.process_id,
            config.application_server,
            config.client_tags,
            topics,
            cluster,
            offset_sums,
            _assignment_config(config),
            chosen_assignor(config),
            self.clock,
        )

    def _tasks(
        self,
        member: Member,
        offset_sums: OffsetSums,
        global_updates: GlobalUpdates | NoGlobalUpdates,
        memory: _Memory,
    ) -> Tasks:
        config, clients = self.config, self.clients
        subtopologies = self.topology._subtopologies()
        starts = StartOffsets(
            member,
            clients.consumer,
            reset_policy(self.topology, config),
            self.incarnations,
            self.clock,
        )
        buffered = config.buffered_records_per_partition
        return Tasks(
            self._task_factory(subtopologies, global_updates, memory),
            self._restoration(subtopologies, starts),
            clients.consumer,
            starts,
            self.clock,
            timeout_ms=config.task_timeout_ms,
            # Pausing throws away what was fetched ahead, so it must be rare: not at 1000 records.
            max_buffered=max(10 * buffered, 2 * _max_poll_records(config)),
            offset_sums=offset_sums,
            may_start=lambda: global_updates.caught_up,
            calls_ms=self.limits.calls_ms,
        )

    def _task_factory(
        self,
        subtopologies: Sequence[SubTopology],
        global_updates: GlobalUpdates | NoGlobalUpdates,
        memory: _Memory,
    ) -> Callable[[TaskId, frozenset[TopicPartition]], StreamTask]:
        config, clients = self.config, self.clients
        max_age_ms = int(client_setting(config, "producer", "metadata.max.age.ms"))
        collector = KafkaCollector(
            clients.producer, clients.admin, self.clock, max_age_ms, config.task_timeout_ms
        )
        services = TaskServices(
            config=config,
            clock=self.clock,
            collector=collector,
            changelog_writer=collector.changelog_writer,
            directory=self.client.directory,
            budget=memory.caches,
            uncommitted=memory.uncommitted,
            storages=self.storages,
            global_stores=global_updates.stores,
            settle=collector.settle,
            metrics=self.meters.scope,
            of_thread=self.meters.of_tasks,
            make_apart=self.make_apart,
            share=self.share,
            limits=self.limits,
            write_check=self.write_check,
            warns_of_old_records=True,
        )
        by_id = {part.id: part for part in subtopologies}

        def create(task_id: TaskId, partitions: frozenset[TopicPartition]) -> StreamTask:
            return build_task(by_id[task_id.subtopology], task_id, partitions, services)

        return create

    def _restoration(
        self, subtopologies: Sequence[SubTopology], starts: StartOffsets
    ) -> Restoration:
        meters = self.meters
        read = {topic for part in subtopologies for topic in part.source_topics}

        def limits(partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
            committed = starts.committed([place for place in partitions if place.topic in read])
            return {
                place: 0 if offset is None else offset.offset for place, offset in committed.items()
            }

        return Restoration(
            self.clients.restore_consumer,
            # Not the consumer's end, which under exactly-once is where the first open transaction
            # begins: what is committed may lie behind it, until its marker is written.
            self.clients.admin,
            self.clock,
            self.config.task_timeout_ms,
            RestoreMeters(
                meters.scope,
                meters.rounds,
                meters.restoring,
                meters.task,
                lambda: meters.paused,
                self.restored,
            ),
            limits,
            lambda: self.waker.is_set,
        )

    def _commits(self, member: Member) -> Commits:
        producer = self.clients.producer
        # A full queue means that brokers are slow or away, not that the loop hangs.
        producer.on_wait = member.progress
        most_ms = int(client_setting(self.config, "main_consumer", "max.poll.interval.ms"))
        commits = Commits(
            self._publication(member),
            producer,
            self.clock,
            member.progress,
            most_ms // _PART_OF_POLL_INTERVAL,
            self.meters.committed,
        )
        properties = self.share.properties
        if properties is not None:
            commits.be_patient(properties)
        return commits

    def _publication(self, member: Member) -> Publication:
        config = self.config
        settings = librdkafka_settings(config, "producer", "")
        if self.clients.transactions is not None:
            return Transactions(
                self.clients.transactions,
                member,
                self.clock,
                config.task_timeout_ms,
                int(settings["transaction.timeout.ms"]),
                self._on_delivered,
            )
        return AtLeastOnce(
            self.clients.producer,
            member,
            self.clock,
            config.task_timeout_ms,
            # As long as a record is tried.
            int(settings["delivery.timeout.ms"]) + _FLUSH_MARGIN_MS,
            self._on_delivered,
        )

    def _on_delivered(self) -> None:
        if self.write_check is not None:
            self.write_check.flushed()

    def _settings(self) -> ThreadSettings:
        config, poll_records = self.config, _max_poll_records(self.config)
        return ThreadSettings(
            name=self.identity.name,
            poll_ms=config.poll_ms,
            commit_interval_ms=config.commit_interval_ms,
            max_poll_records=poll_records,
            linger_ms=float(librdkafka_settings(config, "producer", "")["linger.ms"]),
            max_batch_records=poll_records,
            max_task_idle_ms=config.max_task_idle_ms,
            summary_interval_ms=config.log_summary_interval_ms,
            report_interval_ms=report_interval_ms(config.most_stream_threads),
        )


def memory_share(config: StreamsConfig, num_threads: int | None = None) -> MemoryShare:
    """What the stores of one thread may use.

    Args:
        config: says what all threads of the instance may use.
        num_threads: how many there are; by default as many as at the start.
    """
    threads = max(1, num_threads or config.least_stream_threads)
    uncommitted = config.statestore_uncommitted_max_bytes
    return MemoryShare(
        config.statestore_cache_max_bytes // threads,
        uncommitted if uncommitted < 0 else uncommitted // threads,
    )


def _assignment_config(config: StreamsConfig) -> AssignmentConfig:
    return AssignmentConfig(
        num_standby_replicas=config.num_standby_replicas,
        max_warmup_replicas=config.max_warmup_replicas,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        probing_rebalance_interval_ms=config.probing_rebalance_interval_ms,
        rack_aware_assignment_tags=tuple(config.rack_aware_assignment_tags),
        rack_aware_assignment_strategy=config.rack_aware_assignment_strategy,
        rack_aware_traffic_cost=config.rack_aware_assignment_traffic_cost,
        rack_aware_non_overlap_cost=config.rack_aware_assignment_non_overlap_cost,
    )


def _max_poll_records(config: StreamsConfig) -> int:
    return int(client_setting(config, "main_consumer", "max.poll.records"))

"""Builds a stream thread: its clients, its group membership, and its tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from millstream.assignment.task_assignment import TaskAssignment
from millstream.assignment.task_assignor import AssignmentConfig
from millstream.clock import Clock, SystemClock, Waker
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.membership.member_events import Assigned
from millstream.kafka.protocols import Member
from millstream.kafka.settings.librdkafka_settings import client_setting, librdkafka_settings
from millstream.kafka.user_permissions import user_of
from millstream.operators.concurrent.concurrent_calls import CallRunners
from millstream.operators.concurrent.runner_context import DefaultCallRunners
from millstream.record import TaskId, TopicPartition
from millstream.runtime.client_process import ClientProcess, ThreadIdentity, WorkerHost, join_client
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.commits import ProcessingGuarantee, TaskCommitter
from millstream.runtime.loop.exactly_once import ExactlyOnce
from millstream.runtime.loop.purge import RepartitionPurge, StateCleanup
from millstream.runtime.loop.rebalances import RebalanceHandler
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings, report_interval_ms
from millstream.runtime.loop.uncommitted_work import UncommittedWork
from millstream.runtime.queries.store_positions import upstream_of_stores
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.runtime.start.topology_topics import (
    has_tasks,
    repartition_topics,
    reset_policy,
    subscription,
    topology_topics,
)
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.collector import KafkaRecordCollector
from millstream.runtime.task.node_context import DroppedRecords
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.task_meters import TaskMeters, recording_of
from millstream.runtime.task.time_limits import TimeLimits
from millstream.runtime.task_management.global_store_updater import (
    GlobalStoreUpdater,
    NoGlobalStores,
)
from millstream.runtime.task_management.global_stores import GLOBAL_TASK, GlobalStores
from millstream.runtime.task_management.no_group import NoGroup
from millstream.runtime.task_management.restoration import StateRestorer
from millstream.runtime.task_management.restore_reports import (
    RestoreMeters,
    RestoreReportOptions,
    RestoreReports,
)
from millstream.runtime.task_management.start_offsets import StartOffsets, TopicIncarnations
from millstream.runtime.task_management.task_manager import OffsetSums, TaskManager
from millstream.runtime.task_management.thread_assignor import (
    AssignorCluster,
    ThreadAssignor,
    configured_assignor,
)
from millstream.runtime.thread_clients import KafkaClients, OpenClients, ThreadClients
from millstream.runtime.thread_control import Control, MemoryShare
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.disk import Disk
from millstream.state.storage.overlay import UncommittedBudget
from millstream.state.storage.rocksdb import rocksdb_storages
from millstream.state.storage.storages import Storages
from millstream.state.storage.write_check import CHECK_WRITES, WriteCheck
from millstream.subscriptions.thread_state import SubscriptionThreadState
from millstream.topology.operations.streams import Subscribe
from millstream.topology.physical.nodes import ProcessorNode
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.topology import Topology

#: The time that the leader may spend on requests to the cluster, as a fraction of the session
#: timeout.
_ASSIGN_SESSION_FRACTION = 0.5
#: Revoked tasks are drained for at most `max.poll.interval.ms` divided by this number, because the
#: group waits no longer than `max.poll.interval.ms` for a member.
_POLL_INTERVAL_DIVISOR = 2
#: A flush may take this much longer than the delivery timeout of a record, because the producer
#: reports expired records with a delay.
_FLUSH_MARGIN_MS = 10_000


def build_thread(
    topology: Topology,
    config: StreamsConfig,
    identity: ThreadIdentity,
    control: Control,
    restore_options: RestoreReportOptions,
    *,
    open_clients: OpenClients = ThreadClients,
    clock: Clock | None = None,
    disk: Disk | None = None,
    storages: Storages | None = None,
    make_runners: Callable[[Callable[[], None]], CallRunners] = DefaultCallRunners,
    host: WorkerHost | None = None,
) -> StreamThread:
    """Build a stream thread with its parts; clients connect once the thread runs.

    Raises:
        ConfigError: a Kafka client rejects its settings, a serde is missing, or the host lacks a
            variable of `state_dir`.
        LockError: too many instances have threads on this host.
    """
    clock, waker, host = clock or SystemClock(), Waker(), host or WorkerHost.here()
    control.on_event = waker.wake
    config = host.settings(config)
    with ExitStack() as undo:
        client = join_client(topology, config, identity, host, clock, disk)
        directory = client.directory
        undo.callback(directory.release)
        control.report(client.joined)
        max_age_ms = config.state_cleanup_dir_max_age_ms
        if max_age_ms >= 0:
            # This must happen before the state on disk is reported to the group.
            directory.remove_outdated_tasks(max_age_ms=max_age_ms, clock=clock)
        clients = open_clients(config, identity, clock, bool(topology.global_stores), waker)
        undo.callback(clients.close)
        builder = _ThreadBuilder(
            topology,
            config,
            identity,
            clients,
            client,
            storages or rocksdb_storages(config),
            RestoreReports(control, restore_options, clock),
            TopicIncarnations(
                clients.admin, clock, _consumer_setting(config, "metadata.max.age.ms")
            ),
            clock,
            waker,
            lambda: make_runners(waker.wake),
            ThreadMeters(identity.name, clock, recording_of(config)),
        )
        thread = builder.build(control)
        undo.pop_all()
        return thread


class _GroupMembership(NamedTuple):
    """The thread's group member.

    Includes functions to decode assignments and to request a shutdown.
    """

    member: Member
    decode: Callable[[Assigned], TaskAssignment]
    request_shutdown: Callable[[], None]


class _StoreMemory:
    """The memory that the stores of a thread's tasks may use."""

    def __init__(self, share: MemoryShare, speedups: bool | None) -> None:
        self.caches = CacheBudget(share.cache_max_bytes, speedups)
        self.uncommitted = UncommittedBudget(share.uncommitted_max_bytes)

    def resize(self, share: MemoryShare) -> None:
        self.caches.resize(share.cache_max_bytes)
        self.uncommitted.resize(share.uncommitted_max_bytes)


@dataclass
class _ThreadBuilder:
    """Builds the parts of one thread."""

    topology: Topology
    config: StreamsConfig
    identity: ThreadIdentity
    clients: KafkaClients
    client: ClientProcess
    storages: Storages
    restored: RestoreReports
    incarnations: TopicIncarnations
    clock: Clock
    waker: Waker
    make_runners: Callable[[], CallRunners]
    meters: ThreadMeters
    write_check: WriteCheck | None = field(init=False)
    subscription_state: SubscriptionThreadState = field(init=False)
    limits: TimeLimits = field(init=False)
    uncommitted: UncommittedWork = field(init=False)
    offset_sums: OffsetSums = field(init=False)
    memory: _StoreMemory = field(init=False)
    membership: _GroupMembership = field(init=False)
    global_updates: GlobalStoreUpdater | NoGlobalStores = field(init=False)

    def __post_init__(self) -> None:
        # The order of these statements matters. `cached_property` is not suitable: up to Python
        # 3.11, it holds one lock per class, so threads that are built concurrently would wait for
        # each other.
        self.write_check = WriteCheck() if os.environ.get(CHECK_WRITES) else None
        self.subscription_state = self._build_subscription_state()
        self.limits = self._build_limits()
        self.uncommitted = UncommittedWork(self.clock, self.limits.limit_ms, self.limits.settings)
        self.offset_sums = OffsetSums(self.client.directory)
        self.memory = _StoreMemory(memory_share(self.config), self.config.speedups)
        self.membership = self._build_membership()
        self.global_updates = self._build_global_updates()

    def _build_subscription_state(self) -> SubscriptionThreadState:
        nodes = [node for part in self.topology._subtopologies() for node in part.nodes]
        plans = [
            node.operation.part.plan
            for node in nodes
            if isinstance(node, ProcessorNode) and isinstance(node.operation, Subscribe)
        ]
        return SubscriptionThreadState(plans[0].properties if plans else None)

    def _build_limits(self) -> TimeLimits:
        config = self.config
        name = "max.poll.interval.ms"
        limit_ms = _consumer_setting(config, name)
        if self.clients.transactions is not None:
            settings = librdkafka_settings(config, "producer", "")
            limit_ms = min(limit_ms, int(settings["transaction.timeout.ms"]))
            name = "transaction.timeout.ms and max.poll.interval.ms"
        return TimeLimits(self.clock, limit_ms, name)

    def _build_global_updates(self) -> GlobalStoreUpdater | NoGlobalStores:
        config, clock, metrics = self.config, self.clock, self.meters.scope
        consumer = self.clients.global_consumer
        if consumer is None:
            return NoGlobalStores()
        directory = self.client.directory.global_directory(self.identity.index)
        meters = TaskMeters(GLOBAL_TASK, clock, metrics.recording, metrics.labels)
        metrics.adopt(meters.scope)
        stores = GlobalStores(
            self.topology.global_stores.values(),
            config,
            clock,
            directory.path,
            DroppedRecords(GLOBAL_TASK, clock, meters.dropped),
            self.storages,
            meters.user_metrics,
        )
        max_age_ms = int(client_setting(config, "global_consumer", "metadata.max.age.ms"))
        return GlobalStoreUpdater(
            stores,
            consumer,
            self.clients.admin,
            directory if stores.has_persistent else None,
            clock,
            self.restored,
            timeout_ms=config.task_timeout_ms,
            max_records=int(client_setting(config, "global_consumer", "max.poll.records")),
            metadata_max_age_ms=max_age_ms,
        )

    def build(self, control: Control) -> StreamThread:
        clients, config, clock = self.clients, self.config, self.clock
        member = self.membership.member
        self.limits.progress = member.progress
        tasks = self._tasks()
        commits = self._commits()
        return StreamThread(
            self._settings(),
            control,
            rebalances=RebalanceHandler(
                member,
                tasks,
                commits,
                self.membership.decode,
                clock,
                uncommitted=self.uncommitted,
                static=clients.static,
                shut_down_all=self.membership.request_shutdown,
            ),
            tasks=tasks,
            limits=self.limits,
            committer=commits,
            uncommitted=self.uncommitted,
            consumer=clients.consumer,
            producer=clients.producer,
            global_updates=self.global_updates,
            incarnations=self.incarnations,
            meters=self.meters,
            subscription_state=self.subscription_state,
            purge=RepartitionPurge(
                clients.admin,
                repartition_topics(self.topology, config),
                config.repartition_purge_interval_ms,
                clock,
                user_of(librdkafka_settings(config, "admin", "")),
            ),
            cleanup=StateCleanup(self.client.directory, config.state_cleanup_delay_ms, clock),
            queries=StoreQueries(
                upstream_of_stores(self.topology._subtopologies(), config.application_id),
                lambda: tasks.all,
                self.global_updates.find,
                clock,
            ),
            resize_memory=self.memory.resize,
            close_others=[
                self.subscription_state.close,
                *clients.other_closers,
                self.client.directory.release,
            ],
            clock=clock,
            waker=self.waker,
        )

    def _build_membership(self) -> _GroupMembership:
        if not has_tasks(self.topology):
            return _GroupMembership(NoGroup(self.waker), lambda _: TaskAssignment(), lambda: None)
        config = self.config
        assignor = self._assignor()
        names, pattern = subscription(self.topology, config)
        member = self.clients.member(config.application_id, names, pattern, assignor)
        return _GroupMembership(member, assignor.decode, assignor.request_shutdown)

    def _assignor(self) -> ThreadAssignor:
        config, topics = self.config, topology_topics(self.topology, self.config)
        cluster = AssignorCluster(
            self.clients.assignor_admin,
            config.application_id,
            int(self.clients.session_timeout_ms * _ASSIGN_SESSION_FRACTION),
            self.clock,
            needed=topics.external_source_topics,
        )
        return ThreadAssignor(
            self.client.process_id,
            config.application_server,
            config.client_tags,
            topics,
            cluster,
            self.offset_sums,
            _assignment_config(config),
            configured_assignor(config),
            self.clock,
        )

    def _tasks(self) -> TaskManager:
        config, clients, global_updates = self.config, self.clients, self.global_updates
        subtopologies = self.topology._subtopologies()
        starts = StartOffsets(
            self.membership.member,
            clients.consumer,
            reset_policy(self.topology, config),
            self.incarnations,
            self.clock,
        )
        buffered = config.buffered_records_per_partition
        return TaskManager(
            self._task_factory(subtopologies),
            self._restoration(subtopologies, starts),
            clients.consumer,
            starts,
            self.clock,
            timeout_ms=config.task_timeout_ms,
            # Pausing a partition discards its prefetched records, so it must be rare. A limit of
            # 1,000 records would be too low.
            max_buffered=max(10 * buffered, 2 * _consumer_setting(config, "max.poll.records")),
            offset_sums=self.offset_sums,
            may_start=lambda: global_updates.caught_up,
            calls_ms=self.limits.calls_ms,
        )

    def _task_factory(
        self, subtopologies: Sequence[SubTopology]
    ) -> Callable[[TaskId, frozenset[TopicPartition]], StreamTask]:
        config, clients = self.config, self.clients
        max_age_ms = int(client_setting(config, "producer", "metadata.max.age.ms"))
        collector = KafkaRecordCollector(
            clients.producer, clients.admin, self.clock, max_age_ms, config.task_timeout_ms
        )
        services = TaskServices(
            config=config,
            clock=self.clock,
            collector=collector,
            changelog_writer=collector.changelog_writer,
            directory=self.client.directory,
            budget=self.memory.caches,
            uncommitted=self.memory.uncommitted,
            storages=self.storages,
            global_stores=self.global_updates.stores,
            await_deliveries=collector.await_deliveries,
            metrics=self.meters.scope,
            thread_sensors=self.meters.task_sensors,
            dead_letters=self.meters.dead_letters,
            make_runners=self.make_runners,
            subscription_state=self.subscription_state,
            limits=self.limits,
            write_check=self.write_check,
            checks_retention=True,
        )
        by_id = {part.id: part for part in subtopologies}

        def create(task_id: TaskId, partitions: frozenset[TopicPartition]) -> StreamTask:
            return build_task(by_id[task_id.subtopology], task_id, partitions, services)

        return create

    def _restoration(
        self, subtopologies: Sequence[SubTopology], starts: StartOffsets
    ) -> StateRestorer:
        meters = self.meters
        read = {topic for part in subtopologies for topic in part.source_topics}

        def limits(partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
            committed = starts.committed(
                [partition for partition in partitions if partition.topic in read]
            )
            return {
                partition: 0 if offset is None else offset.offset
                for partition, offset in committed.items()
            }

        return StateRestorer(
            self.clients.restore_consumer,
            # Not the consumer's end offsets: under exactly-once, these are the offsets at which the
            # first open transactions start. Until the transaction markers are written, committed
            # records may follow these offsets.
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

    def _commits(self) -> TaskCommitter:
        producer, progress = self.clients.producer, self.membership.member.progress
        # A full producer queue means slow or unavailable brokers, not a hanging loop.
        producer.on_wait = progress
        max_poll_interval_ms = _consumer_setting(self.config, "max.poll.interval.ms")
        commits = TaskCommitter(
            self._processing_guarantee(),
            producer,
            self.clock,
            progress,
            max_poll_interval_ms // _POLL_INTERVAL_DIVISOR,
            self.meters.committed,
        )
        properties = self.subscription_state.properties
        if properties is not None:
            commits.set_drain_timeouts(properties)
        return commits

    def _processing_guarantee(self) -> ProcessingGuarantee:
        config, member = self.config, self.membership.member
        settings = librdkafka_settings(config, "producer", "")
        if self.clients.transactions is not None:
            return ExactlyOnce(
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
            # The producer retries a record for this long.
            int(settings["delivery.timeout.ms"]) + _FLUSH_MARGIN_MS,
            self._on_delivered,
        )

    def _on_delivered(self) -> None:
        if self.write_check is not None:
            self.write_check.flushed()

    def _settings(self) -> ThreadSettings:
        config, poll_records = self.config, _consumer_setting(self.config, "max.poll.records")
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
    """Return the memory that the stores of one thread may use."""
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


def _consumer_setting(config: StreamsConfig, name: str) -> int:
    return int(client_setting(config, "main_consumer", name))

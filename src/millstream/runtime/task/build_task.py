"""Putting a task together from its sub-topology and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.metrics.registry import Scope, unseen
from millstream.operators.apart.calls import Apart
from millstream.operators.apart.equipment import Equipment, ReleasedTime
from millstream.operators.apart.real import RealApart
from millstream.operators.operator import Output
from millstream.processor.handlers import (
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProcessingHandler,
)
from millstream.processor.punctuation import PunctuationType
from millstream.processor.task_context import CurrentRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.dead_letters import DeadLetters
from millstream.runtime.task.engine_task import EngineTask, Notes, Schedules, SchedulesBehind
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.landing import apart_nodes, behind, must_land
from millstream.runtime.task.node_context import (
    Dropped,
    NodeContext,
    NodeStores,
    SharedStores,
    SinkErrors,
    SourceErrors,
)
from millstream.runtime.task.node_meters import ConsumedMeter, ProducedMeters, node_meters
from millstream.runtime.task.old_records import OldRecords
from millstream.runtime.task.processing import ExecutorFactory, Processing
from millstream.runtime.task.production import SinkProduction, own_handler
from millstream.runtime.task.punctuations import Punctuations
from millstream.runtime.task.queues.partition_group import PartitionGroup
from millstream.runtime.task.queues.raw_records import RawPair
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.runtime.task.queues.times_in_headers import TimesInHeadersQueue
from millstream.runtime.task.required_serde import required_serde
from millstream.runtime.task.sinks import Collector, Production, Sink, SinkMeeting
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.task_meters import TaskMeters, ThreadSensors
from millstream.runtime.task.task_topics import TaskProduction, policy_of
from millstream.runtime.task.time_limits import ChunkPace, TimeLimits
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.store_changelog import ChangelogWriter
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.engine_failures import EngineFailures
from millstream.state.storage.storages import Storages
from millstream.state.storage.uncommitted_budget import UncommittedBudget
from millstream.state.storage.write_check import WriteCheck
from millstream.state.task_stores import TaskStores
from millstream.subscriptions.refused import Refused
from millstream.subscriptions.share import SubscriptionShare
from millstream.topology.physical.nodes import (
    ProcessorNode,
    SinkNode,
    SourceNode,
    TimestampExtractor,
)
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.windowed_serdes import PartitionByInnerKey


@dataclass(frozen=True)
class TaskServices:
    """What the tasks of one thread share.

    Args:
        config: the application's settings.
        clock: time.
        collector: takes outputs.
        changelog_writer: gives a task's way to its changelogs, from the task's id and the names of
            its changelog topics by store.
        directory: the application's state on this host.
        budget: the bytes that record caches may use.
        uncommitted: the bytes of writes to stores that may wait for a commit.
        storages: opens those of persistent stores; None for those of this host's disk.
        order_across_topics: whether the order of outputs matters even among different topics. It
            does where what is written is read back at once, as in the test driver.
        global_stores: those that every task can read; None if there are none.
        make_executor: what runs the nodes of a task.
        settle: waits a moment until what the collector has taken has arrived.
        metrics: of the thread: how they are recorded, and what labels they have.
        of_thread: sensors of the thread that its tasks tell.
        make_apart: gives a task what makes calls beside the loop.
        share: what the partitions of a subscription have in common.
        limits: how long user code may take; None for any time.
        write_check: verifies the order of writes and deliveries, in tests.
        warns_of_old_records: whether changelogs are on brokers, which delete old records.
    """

    config: StreamsConfig
    clock: Clock
    collector: Collector
    changelog_writer: Callable[[TaskId, Mapping[str, str]], ChangelogWriter]
    directory: StateDirectory
    budget: CacheBudget
    uncommitted: UncommittedBudget = field(default_factory=UncommittedBudget)
    storages: Storages | None = None
    order_across_topics: bool = False
    global_stores: SharedStores | None = None
    make_executor: ExecutorFactory = Executor
    settle: Callable[[], None] = lambda: None
    metrics: Scope = field(default_factory=unseen)
    of_thread: ThreadSensors | None = None
    make_apart: Callable[[], Apart] = RealApart
    limits: TimeLimits | None = None
    share: SubscriptionShare = field(default_factory=SubscriptionShare)
    write_check: WriteCheck | None = None
    warns_of_old_records: bool = False


def build_task(
    subtopology: SubTopology,
    task_id: TaskId,
    partitions: frozenset[TopicPartition],
    services: TaskServices,
) -> StreamTask:
    """Make a task; its stores are not opened yet.

    Args:
        subtopology: what the task computes.
        task_id: its id.
        partitions: its input partitions, under their real topic names.
        services: what it shares with other tasks.

    Raises:
        ConfigError: a serde is neither given nor set as a default.
    """
    return TaskParts(subtopology, task_id, partitions, services).task


class TaskParts:
    """A task put together, with those of its parts that its owner may want to reach.

    Takes what `build_task` takes, what counts the records that it leaves out, and its meters.

    Attributes:
        task: the task.
        drops: counts the records that it leaves out.
        meters: measure it.
        record: what its stores take for the record being processed.
    """

    def __init__(
        self,
        subtopology: SubTopology,
        task_id: TaskId,
        partitions: frozenset[TopicPartition],
        services: TaskServices,
        drops: Dropped | None = None,
        meters: TaskMeters | None = None,
    ) -> None:
        self._subtopology = subtopology
        self._task_id = task_id
        self._services = services
        metrics = services.metrics
        self.meters = meters or TaskMeters(
            task_id, services.clock, metrics.recording, metrics.labels, services.of_thread
        )
        self.drops = drops or Dropped(task_id, services.clock, self.meters.dropped)
        self.record = CurrentRecord()
        self._letters = DeadLetters(
            services.collector,
            services.config.errors_dead_letter_queue_topic_name,
            self._raw_of,
            services.settle,
        )
        shared = services.global_stores
        self._failures = EngineFailures(shared.failures if shared else None)
        self._stores = self._make_stores()
        self._node_meters = node_meters(self.meters, subtopology.nodes)
        self._consumed: dict[TopicPartition, ConsumedMeter] = {}
        self._node_scopes: dict[str, Scope] = {}
        self._produced: dict[str, ProducedMeters] = {}
        self._processing: Processing | None = None
        self._limits = services.limits or TimeLimits(services.clock)
        self.task = StreamTask(
            task_id,
            partitions,
            stores=self._stores,
            make_processing=self._make_processing,
            declared_at=self._declared_at,
            clock=services.clock,
            meters=self.meters,
            limits=self._limits,
            old_records=self._make_old_records() if services.warns_of_old_records else None,
        )
        self.meters.watch(self.task)

    def read_also(self, place: TopicPartition) -> None:
        """Let the task read one more partition, of a topic that matches a pattern of its sources.

        Raises:
            ConfigError: a serde is neither given nor set as a default.
        """
        if place in self.task.partitions:
            return
        self.task.partitions |= {place}
        if self._processing is not None:
            self._processing.group.add_queue(self._make_queue(place))

    @property
    def _at_work(self) -> Processing:
        assert self._processing is not None, "the task has not started"
        return self._processing

    def is_ready(self) -> bool:
        """Whether the task may take its next record, where there is no broker that has more."""
        group, services = self._at_work.group, self._services
        return group.size > 0 and group.is_ready(
            lambda place: True, services.config.max_task_idle_ms, services.clock.now_ms()
        )

    def _make_processing(self) -> Processing:
        """What the task needs to process: new operators, with nothing in their queues."""
        services = self._services
        nodes, notes = self._subtopology.nodes, Notes()
        punctuations, by_released = self._punctuations(), self._punctuations()
        exactly_once = services.config.exactly_once
        letters = self._letters.may_send(
            services.config.processing_exception_handler,
            services.config.deserialization_exception_handler,
        )
        lands = must_land(nodes, exactly_once=exactly_once, writes_letters=letters)
        time = ReleasedTime(lambda: by_released.next_ms(PunctuationType.STREAM_TIME))
        equipment = Equipment(
            services.make_apart(),
            in_offset_order=exactly_once and not lands,
            lands=lands,
            time=time,
            share=services.share,
        )
        task = self._engine_task(punctuations, lambda: group.stream_time, notes)
        schedules = SchedulesBehind(by_released, punctuations)
        task_behind = self._engine_task(schedules, lambda: time.stream_time, notes)
        names_behind = behind(nodes, apart_nodes(nodes))

        def make_context(node: ProcessorNode, output: Output) -> NodeContext:
            sees = task_behind if node.name in names_behind else task
            return self._make_context(sees, node, output)

        def make_sink(node: SinkNode, meeting: SinkMeeting | None) -> Sink:
            return self._make_sink(node, meeting, equipment.refused)

        executor = services.make_executor(
            nodes,
            make_context,
            make_sink,
            order_across_topics=services.order_across_topics,
            equipment=equipment,
        )
        if isinstance(executor, Executor):
            executor.measure(self._node_meters)
            executor.clock = services.clock
        if services.write_check is not None:
            services.write_check.watch(
                executor, "init", "run", "flush", "punctuate", "release", "sent", "close"
            )
        queues = {place: self._make_queue(place) for place in sorted(self.task.partitions)}
        group = PartitionGroup(queues, executor.ordered)
        self._processing = Processing(
            group, executor, punctuations, by_released, task, equipment, lands
        )
        return self._processing

    def _punctuations(self) -> Punctuations:
        return Punctuations(self._services.clock, self.meters.punctuated)

    def _engine_task(
        self, schedules: Schedules, stream_time: Callable[[], int], notes: Notes
    ) -> EngineTask:
        services = self._services
        return EngineTask(
            services.config,
            services.directory.task_directory(self._task_id),
            schedules,
            self.meters.view,
            self.record,
            stream_time,
            notes,
        )

    def _declared_at(self, node: str | None) -> str | None:
        """File and line of the user's program that declared a node; None where that is unknown."""
        sites = (each.declared_at for each in self._subtopology.nodes if each.name == node)
        return next(sites, None) or None

    def _real_name(self, topic: str) -> str:
        return self._subtopology.decorate(topic, self._services.config.application_id)

    def _make_stores(self) -> TaskStores:
        services = self._services
        topics = {
            store: self._real_name(topic) for store, topic in self._subtopology.changelogs.items()
        }
        partition = self._task_id.partition
        return TaskStores(
            self._task_id,
            [builder.resolved(services.config) for builder in self._subtopology.stores.values()],
            services.directory,
            application_id=services.config.application_id,
            changelogs={store: TopicPartition(topic, partition) for store, topic in topics.items()},
            writer=services.changelog_writer(self._task_id, topics),
            context=self.record,
            budget=services.budget,
            uncommitted=services.uncommitted,
            storages=services.storages,
            dropped=self.drops.add,
            metrics=self.meters.scope,
            write_check=services.write_check,
            failures=self._failures,
        )

    def _make_old_records(self) -> OldRecords:
        config, clock = self._services.config, self._services.clock
        return OldRecords(self._task_id, self._subtopology.stores.values(), config, clock)

    def _processing_handler(self) -> ProcessingHandler:
        handler: ProcessingHandler | None = self._services.config.processing_exception_handler
        return self._letters.asking(handler or LogAndFailProcessingExceptionHandler())

    def _raw_of(self, place: TopicPartition, offset: int) -> RawPair | None:
        at_work = self._processing
        return None if at_work is None else at_work.group.raw_of(place, offset)

    def _make_context(
        self, engine_task: EngineTask, node: ProcessorNode, output: Output
    ) -> NodeContext:
        shared = self._services.global_stores
        return NodeContext(
            node.name,
            self._task_id,
            self._services.clock,
            output,
            NodeStores(node.stores, self._stores.table, shared.tables if shared else None),
            self._processing_handler(),
            self.drops,
            self._services.config,
            engine_task,
            NodeStores(node.stores, self._stores.store, shared.read_only if shared else None),
            self._metrics_of(node.name),
            self._failures,
        )

    def _metrics_of(self, node: str) -> Scope:
        """Those of a node, which are the same when the task starts again."""
        if node not in self._node_scopes:
            self._node_scopes[node] = self.meters.scope.part(processor_node_id=node)
        return self._node_scopes[node]

    def _make_sink(self, node: SinkNode, meeting: SinkMeeting | None, refused: Refused) -> Sink:
        config = self._services.config
        sources = {n.name for n in self._subtopology.nodes if isinstance(n, SourceNode)}
        handler = None if sources.issuperset(node.parents) else self._processing_handler()
        key_serde = required_serde(node, "key", config)
        partitioner = node.partitioner
        if isinstance(partitioner, PartitionByInnerKey):
            partitioner = partitioner.bound(key_serde)
        return Sink(
            node.name,
            self._task_id,
            self._real_name(node.topic) if isinstance(node.topic, str) else node.topic,
            key_serde,
            required_serde(node, "value", config),
            partitioner,
            self._services.collector,
            meeting,
            SinkErrors(handler, self.drops, node.name, self._task_id),
            self._production(node, refused, is_last=handler is None),
            self._produced.setdefault(node.name, ProducedMeters(self.meters.scope, node.name)),
            self._limits.guarded,
        )

    def _production(self, node: SinkNode, refused: Refused, *, is_last: bool) -> Production | None:
        """None where nobody has anything to say about records that are not written."""
        policy, share = policy_of(node, self._subtopology.nodes), self._services.share
        if policy is not None:
            return TaskProduction(
                policy, node.name, self._task_id, refused, share.metrics, self._services.clock
            )
        handler = own_handler(self._services.config)
        if handler is None and not self._letters.has_queue:
            return None
        return SinkProduction(
            handler,
            self._letters,
            self.drops,
            node.name,
            self._task_id,
            lambda: self._at_work.group.raw_in_flight(),
            is_last=is_last,
        )

    def _make_queue(self, place: TopicPartition) -> RecordQueue:
        config = self._services.config
        source = self._source_of(place)
        handler = config.deserialization_exception_handler or LogAndFailExceptionHandler()
        queue_type = TimesInHeadersQueue if self._has_times_in_headers(place) else RecordQueue
        queue = queue_type(
            place,
            source.name,
            self._task_id,
            required_serde(source, "key", config),
            required_serde(source, "value", config),
            self._extractor_of(place, source),
            SourceErrors(self._letters.asking(handler), self.drops, source.name),
        )
        if place not in self._consumed:
            self._consumed[place] = ConsumedMeter(self.meters.scope, source.name, place.topic)
        queue.meter = self._consumed[place]
        limits, clock = self._limits, self._services.clock
        if limits.limit_ms is not None:
            pace = limits.pace_of(self._task_id)
            queue.pace = ChunkPace(limits, pace, clock, self._task_id, source.name, place)
        return queue

    def _has_times_in_headers(self, place: TopicPartition) -> bool:
        topics = self._subtopology.repartition_topics.values()
        return any(
            topic.times_in_headers and place.topic == self._real_name(topic.name)
            for topic in topics
        )

    def _extractor_of(self, place: TopicPartition, source: SourceNode) -> TimestampExtractor | None:
        if place.topic in map(self._real_name, self._subtopology.repartition_topics):
            # The time was extracted where the record was first read: follows Kafka Streams.
            return None
        default: TimestampExtractor | None = self._services.config.default_timestamp_extractor
        return source.timestamp_extractor or default

    def _source_of(self, place: TopicPartition) -> SourceNode:
        for node in self._subtopology.nodes:
            if isinstance(node, SourceNode):
                names = map(self._real_name, node.topics)
                if place.topic in names or (node.pattern is not None and node.reads(place.topic)):
                    return node
        raise AssertionError(f"no source of sub-topology {self._subtopology.id} reads {place}")

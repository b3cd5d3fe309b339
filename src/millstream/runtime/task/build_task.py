"""Construction of a task from its sub-topology and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from millstream.clock import Clock
from millstream.config.streams_config import StreamsConfig
from millstream.metrics.registry import MetricsScope, detached_scope
from millstream.operators.concurrent.concurrent_calls import CallRunners, CompletionSignal
from millstream.operators.concurrent.runner_context import (
    DefaultCallRunners,
    DownstreamTime,
    RunnerContext,
)
from millstream.operators.operator import Output
from millstream.processor.handlers import (
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProcessingHandler,
)
from millstream.processor.punctuation import PunctuationType
from millstream.processor.task_context import CurrentRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.start.topology_checks import required_serde
from millstream.runtime.task.commit_barrier import concurrent_nodes, downstream_of, must_drain
from millstream.runtime.task.error_handling.dead_letters import DeadLetterCounts, DeadLetters
from millstream.runtime.task.error_handling.production_errors import (
    SinkProductionErrors,
    custom_handler,
)
from millstream.runtime.task.error_handling.subscription_production import (
    SubscriptionProductionErrors,
    policy_of,
)
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.node_context import (
    DroppedRecords,
    GlobalStoreAccess,
    NodeContext,
    NodeStores,
    SinkErrors,
    SourceErrors,
)
from millstream.runtime.task.punctuations import Punctuations
from millstream.runtime.task.queues.partition_group import PartitionGroup
from millstream.runtime.task.queues.raw_records import RawPair
from millstream.runtime.task.queues.record_queue import HeaderTimestampQueue, RecordQueue
from millstream.runtime.task.retention_check import RetentionCheck
from millstream.runtime.task.sinks import ProductionErrors, RecordCollector, Sink, SinkBuffer
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.task_meters import (
    ConsumedMeter,
    ProducedMeters,
    TaskMeters,
    ThreadSensors,
    node_meters,
)
from millstream.runtime.task.task_processing import (
    CommitState,
    ExecutorFactory,
    NodeTaskContext,
    TaskProcessing,
)
from millstream.runtime.task.time_limits import ChunkPace, TimeLimits
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.store_changelog import ChangelogWriter
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.engine_failures import EngineFailures
from millstream.state.storage.overlay import UncommittedBudget
from millstream.state.storage.storages import Storages
from millstream.state.storage.write_check import WriteCheck
from millstream.state.task_stores import TaskStores
from millstream.subscriptions.thread_state import RejectedTasks, SubscriptionThreadState
from millstream.topology.physical.nodes import (
    ProcessorNode,
    SinkNode,
    SourceNode,
    TimestampExtractor,
)
from millstream.topology.physical.subtopology import SubTopology
from millstream.topology.physical.windowed_serdes import WindowedKeyPartitioner


@dataclass(frozen=True)
class TaskServices:
    """The objects that the tasks of one thread share."""

    config: StreamsConfig
    clock: Clock
    collector: RecordCollector
    #: Creates the changelog writer of a task from the names of its changelog topics by store.
    changelog_writer: Callable[[TaskId, Mapping[str, str]], ChangelogWriter]
    directory: StateDirectory
    budget: CacheBudget
    uncommitted: UncommittedBudget = field(default_factory=UncommittedBudget)
    storages: Storages | None = None
    #: Whether the order of outputs matters even across topics. It matters if outputs are read back
    #: immediately, as in the test driver.
    order_across_topics: bool = False
    global_stores: GlobalStoreAccess | None = None
    make_executor: ExecutorFactory = Executor
    await_deliveries: Callable[[], None] = lambda: None
    metrics: MetricsScope = field(default_factory=detached_scope)
    thread_sensors: ThreadSensors | None = None
    dead_letters: DeadLetterCounts = field(
        default_factory=lambda: DeadLetterCounts(detached_scope())
    )
    make_runners: Callable[[], CallRunners] = DefaultCallRunners
    limits: TimeLimits | None = None
    subscription_state: SubscriptionThreadState = field(default_factory=SubscriptionThreadState)
    #: Verifies the order of writes and deliveries, in tests.
    write_check: WriteCheck | None = None
    #: Whether changelogs are stored on brokers, which delete old records.
    checks_retention: bool = False


def build_task(
    subtopology: SubTopology,
    task_id: TaskId,
    partitions: frozenset[TopicPartition],
    services: TaskServices,
) -> StreamTask:
    """Create a task without opening its stores.

    The topic names in `partitions` are the full names.

    Raises:
        ConfigError: a serde is missing and has no default.
    """
    return TaskBuilder(subtopology, task_id, partitions, services).task


class TaskBuilder:
    """Builds a task and exposes some of its parts."""

    def __init__(
        self,
        subtopology: SubTopology,
        task_id: TaskId,
        partitions: frozenset[TopicPartition],
        services: TaskServices,
        drops: DroppedRecords | None = None,
        meters: TaskMeters | None = None,
    ) -> None:
        self._subtopology = subtopology
        self._task_id = task_id
        self._services = services
        metrics = services.metrics
        self.meters = meters or TaskMeters(
            task_id, services.clock, metrics.recording, metrics.labels, services.thread_sensors
        )
        self.drops = drops or DroppedRecords(task_id, services.clock, self.meters.dropped)
        self.record = CurrentRecord()
        self._letters = DeadLetters(
            services.collector,
            services.config.errors_dead_letter_queue_topic_name,
            self._raw_of,
            services.await_deliveries,
            services.dead_letters,
        )
        shared = services.global_stores
        self._failures = EngineFailures(shared.failures if shared else None)
        self._stores = self._make_stores()
        self._node_meters = node_meters(self.meters, subtopology.nodes)
        self._consumed: dict[TopicPartition, ConsumedMeter] = {}
        self._node_scopes: dict[str, MetricsScope] = {}
        self._produced: dict[str, ProducedMeters] = {}
        self._processing: TaskProcessing | None = None
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
            retention_check=(
                RetentionCheck(
                    task_id, subtopology.stores.values(), services.config, services.clock
                )
                if services.checks_retention
                else None
            ),
        )
        self.meters.watch(lambda: self.task.buffered, self._stores)

    def add_partition(self, partition: TopicPartition) -> None:
        """Add an input partition of a new topic that matches a source pattern."""
        if partition in self.task.partitions:
            return
        self.task.partitions |= {partition}
        if self._processing is not None:
            self._processing.group.add_queue(self._make_queue(partition))

    @property
    def _active_processing(self) -> TaskProcessing:
        assert self._processing is not None, "the task has not started"
        return self._processing

    def is_ready(self) -> bool:
        """Return whether the task may take its next record if no broker has more records."""
        group, services = self._active_processing.group, self._services
        return group.size > 0 and group.is_ready(
            lambda partition: True, services.config.max_task_idle_ms, services.clock.now_ms()
        )

    def _make_runners(self) -> CallRunners:
        runners = self._services.make_runners()
        if isinstance(runners, CompletionSignal):
            runners.task_id = self._task_id
        return runners

    def _make_processing(self) -> TaskProcessing:
        services = self._services
        nodes = self._subtopology.nodes
        punctuations = Punctuations(services.clock, self.meters.punctuated)
        downstream_punctuations = Punctuations(services.clock, self.meters.punctuated)
        exactly_once = services.config.exactly_once
        letters = self._letters.may_send(
            services.config.processing_exception_handler,
            services.config.deserialization_exception_handler,
        )
        drains_before_commit = must_drain(nodes, exactly_once=exactly_once, writes_letters=letters)
        time = DownstreamTime(lambda: downstream_punctuations.next_ms(PunctuationType.STREAM_TIME))
        runner_context = RunnerContext(
            self._make_runners(),
            in_offset_order=exactly_once and not drains_before_commit,
            drains_before_commit=drains_before_commit,
            downstream_time=time,
            subscription_state=services.subscription_state,
        )
        task = NodeTaskContext(
            services.config,
            services.directory.task_directory(self._task_id),
            punctuations,
            punctuations,
            self.meters.user_metrics,
            self.record,
            lambda: group.stream_time,
            CommitState(),
        )
        downstream_task = replace(
            task, by_stream=downstream_punctuations, stream_time_ms=lambda: time.stream_time
        )
        downstream_names = downstream_of(nodes, concurrent_nodes(nodes))

        def make_context(node: ProcessorNode, output: Output) -> NodeContext:
            context = downstream_task if node.name in downstream_names else task
            return self._make_context(context, node, output)

        def make_sink(node: SinkNode, sink_buffer: SinkBuffer | None) -> Sink:
            return self._make_sink(node, sink_buffer, runner_context.rejected_tasks)

        executor = services.make_executor(
            nodes,
            make_context,
            make_sink,
            order_across_topics=services.order_across_topics,
            runner_context=runner_context,
        )
        if isinstance(executor, Executor):
            executor.measure(self._node_meters)
            executor.clock = services.clock
        if services.write_check is not None:
            services.write_check.watch(
                executor, "init", "run", "flush", "punctuate", "release", "on_delivered", "close"
            )
        queues = {
            partition: self._make_queue(partition) for partition in sorted(self.task.partitions)
        }
        group = PartitionGroup(queues, executor.ordered)
        self._processing = TaskProcessing(
            group,
            executor,
            punctuations,
            downstream_punctuations,
            task,
            runner_context,
        )
        return self._processing

    def _declared_at(self, node: str | None) -> str | None:
        """Return the file and line where the user's program declared a node, if known."""
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

    def _processing_handler(self) -> ProcessingHandler:
        handler: ProcessingHandler | None = self._services.config.processing_exception_handler
        return self._letters.wrap(handler or LogAndFailProcessingExceptionHandler(), "processing")

    def _raw_of(self, partition: TopicPartition, offset: int) -> RawPair | None:
        processing = self._processing
        return None if processing is None else processing.group.raw_of(partition, offset)

    def _make_context(
        self, node_context: NodeTaskContext, node: ProcessorNode, output: Output
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
            node_context,
            NodeStores(node.stores, self._stores.store, shared.read_only if shared else None),
            self._metrics_of(node.name),
            self._failures,
        )

    def _metrics_of(self, node: str) -> MetricsScope:
        """Return the metrics of a node, which survive a restart of the task."""
        if node not in self._node_scopes:
            self._node_scopes[node] = self.meters.scope.child(processor_node_id=node)
        return self._node_scopes[node]

    def _make_sink(
        self, node: SinkNode, sink_buffer: SinkBuffer | None, rejected_tasks: RejectedTasks
    ) -> Sink:
        config = self._services.config
        sources = {n.name for n in self._subtopology.nodes if isinstance(n, SourceNode)}
        handler = None if sources.issuperset(node.parents) else self._processing_handler()
        key_serde = required_serde(node, "key", config)
        partitioner = node.partitioner
        if isinstance(partitioner, WindowedKeyPartitioner):
            partitioner = partitioner.bind(key_serde)
        return Sink(
            node.name,
            self._task_id,
            self._real_name(node.topic) if isinstance(node.topic, str) else node.topic,
            key_serde,
            required_serde(node, "value", config),
            partitioner,
            self._services.collector,
            sink_buffer,
            SinkErrors(handler, self.drops, node.name, self._task_id),
            self._production(node, rejected_tasks, is_last=handler is None),
            self._produced.setdefault(node.name, ProducedMeters(self.meters.scope, node.name)),
            self._limits.interruptible,
        )

    def _production(
        self, node: SinkNode, rejected_tasks: RejectedTasks, *, is_last: bool
    ) -> ProductionErrors | None:
        """Return the handler for rejected records; None for the default."""
        policy = policy_of(node, self._subtopology.nodes)
        if policy is not None:
            return SubscriptionProductionErrors(
                policy,
                node.name,
                self._task_id,
                rejected_tasks,
                self._services.subscription_state.metrics,
                self._services.clock,
            )
        handler = custom_handler(self._services.config)
        if handler is None and not self._letters.has_queue:
            return None
        return SinkProductionErrors(
            handler,
            self._letters,
            self.drops,
            node.name,
            self._task_id,
            lambda: self._active_processing.group.raw_in_flight(),
            is_last=is_last,
        )

    def _make_queue(self, partition: TopicPartition) -> RecordQueue:
        config = self._services.config
        source = self._source_of(partition)
        handler = config.deserialization_exception_handler or LogAndFailExceptionHandler()
        queue_type = HeaderTimestampQueue if self._has_times_in_headers(partition) else RecordQueue
        queue = queue_type(
            partition,
            source.name,
            self._task_id,
            required_serde(source, "key", config),
            required_serde(source, "value", config),
            self._extractor_of(partition, source),
            SourceErrors(self._letters.wrap(handler, "deserialization"), self.drops, source.name),
        )
        if partition not in self._consumed:
            self._consumed[partition] = ConsumedMeter(
                self.meters.scope, source.name, partition.topic
            )
        queue.meter = self._consumed[partition]
        limits, clock = self._limits, self._services.clock
        if limits.limit_ms is not None:
            pace = limits.pace_of(self._task_id)
            queue.pace = ChunkPace(limits, pace, clock, self._task_id, source.name, partition)
        return queue

    def _has_times_in_headers(self, partition: TopicPartition) -> bool:
        return any(
            topic.times_in_headers and partition.topic == self._real_name(topic.name)
            for topic in self._subtopology.repartition_topics.values()
        )

    def _extractor_of(
        self, partition: TopicPartition, source: SourceNode
    ) -> TimestampExtractor | None:
        if partition.topic in map(self._real_name, self._subtopology.repartition_topics):
            # Follows Kafka Streams: the timestamp was extracted when the record was first read.
            return None
        default: TimestampExtractor | None = self._services.config.default_timestamp_extractor
        return source.timestamp_extractor or default

    def _source_of(self, partition: TopicPartition) -> SourceNode:
        for node in self._subtopology.nodes:
            if isinstance(node, SourceNode):
                names = map(self._real_name, node.topics)
                if partition.topic in names or (
                    node.pattern is not None and node.reads(partition.topic)
                ):
                    return node
        raise AssertionError(f"no source of sub-topology {self._subtopology.id} reads {partition}")

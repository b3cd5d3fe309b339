"""Global stores at run time: topic copies that all tasks of a thread can read.

Corresponds to Kafka Streams' `GlobalStateUpdateTask` and `GlobalStateManagerImpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from millstream.clock import Clock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ProcessingError, StreamsError, UnsupportedOperationError
from millstream.metrics.registry import MetricsScope
from millstream.metrics.user import ContextMetrics
from millstream.operators.operator import Operator
from millstream.operators.record_batch import Batch, Origin
from millstream.processor.handlers import (
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.processor.task_context import CurrentRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.start.topology_checks import required_serde
from millstream.runtime.task.compile_operator import compile_operator
from millstream.runtime.task.node_context import (
    DroppedRecords,
    NodeContext,
    NodeStores,
    SourceErrors,
)
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.engine_failures import EngineFailures
from millstream.state.opening.open_store import OpenStore, StoreEnvironment
from millstream.state.opening.store_layers import open_store
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.state.storage.storages import Storages
from millstream.topology.physical.nodes import GlobalStoreNodes, SourceNode

#: The task id of the processors of global stores, as in Kafka Streams.
GLOBAL_TASK: Final = TaskId(-1, -1)

#: Methods of a global store that tasks must not call.
_WRITES = frozenset(
    {"put", "put_if_absent", "put_all", "delete", "remove", "flush", "init", "close"}
)


class GlobalStores:
    """The global stores of one stream thread."""

    def __init__(
        self,
        nodes: Collection[GlobalStoreNodes],
        config: StreamsConfig,
        clock: Clock,
        directory: Path,
        drops: DroppedRecords,
        storages: Storages | None = None,
        metrics: ContextMetrics | None = None,
    ) -> None:
        self._metrics = metrics or ContextMetrics(MetricsScope(clock))
        self._nodes = {node.store: node for node in nodes}
        self.names = list(self._nodes)
        self._by_topic = {node.topic: node for node in nodes}
        self._config = config
        self._clock = clock
        self._directory = directory
        self._drops = drops
        self._storages = storages or RocksDBStorages()
        self._record = CurrentRecord()
        #: Storage errors since the last `open` or `update`.
        self.failures = EngineFailures()
        self._opened: dict[str, OpenStore] = {}
        self._processors: dict[str, _TopicProcessor] = {}
        #: The stores as operators use them, for example a `TimestampedTable`.
        self.tables = NodeStores(self._nodes, lambda name: self._opened[name].table)
        self.read_only = NodeStores(
            self._nodes, lambda name: ReadOnlyGlobalStore(name, self.store(name))
        )

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(node.topic for node in self._nodes.values())

    @property
    def has_persistent(self) -> bool:
        return any(
            node.store_builder.resolved(self._config).persistent for node in self._by_topic.values()
        )

    def store_of(self, topic: str) -> str:
        return self._by_topic[topic].store

    def last_offset(self, partition: TopicPartition) -> int | None:
        """Return the last offset of a partition in its store; None if the store has none."""
        return self._opened[self.store_of(partition.topic)].base.committed_offset(partition)

    def open(self) -> None:
        """Open the stores and their processors.

        Raises:
            ConfigError: a serde is missing and has no default.
            TaskCorruptedError: the state on disk cannot be read; nothing stays open.
        """
        self.failures.reset()
        with ExitStack() as undo:
            undo.callback(self.close)
            for name, node in self._nodes.items():
                builder = node.store_builder.resolved(self._config)
                self._opened[name] = open_store(builder, self._environment(node.topic))
            for node in self._nodes.values():
                try:
                    self._processors[node.topic] = self._processor(node)
                except StreamsError as error:
                    error.node = error.node or node.processor.name
                    error.declared_at = error.declared_at or node.processor.declared_at
                    raise
            undo.pop_all()

    def update(self, partition: TopicPartition, records: RawRecords) -> None:
        """Apply records of one of the topics in order, and store the new position.

        Raises:
            StreamsError: a record could not be read, or the user's processor failed. Stores on disk
                are unchanged.
        """
        own = self.store_of(partition.topic)
        # A query may have failed in the meantime, which only affects its caller.
        self.failures.reset()
        try:
            self._processors[partition.topic].add(partition, records)
            self.failures.raise_first()
            for name, opened in self._opened.items():
                if name != own:
                    # The user's processor may write to the other stores as well.
                    opened.base.commit(None)
            self._opened[own].base.commit((partition, records.offsets[-1]))
        except StreamsError as error:
            self._locate(error, own, partition)
            raise

    def store(self, name: str) -> Any:
        return self._opened[name].store

    def find(self, name: str) -> OpenStore | None:
        """Return an open store for queries; None if no store has the name."""
        return self._opened.get(name)

    def close(self) -> None:
        """Close the stores and their processors. Does nothing if they are already closed."""
        with ExitStack() as closing:
            for opened in self._opened.values():
                closing.callback(opened.close)
            for processor in self._processors.values():
                closing.callback(processor.operator.close)
            self._opened = {}
            self._processors = {}

    def _processor(self, node: GlobalStoreNodes) -> _TopicProcessor:
        return _TopicProcessor(
            node.source,
            compile_operator(node.processor.operation),
            self._context(node.processor.name),
            self._config,
            self._drops,
            self._record,
        )

    def _locate(self, error: StreamsError, store: str, partition: TopicPartition) -> None:
        hint = ""
        if isinstance(error, ProcessingError) and not self._uses_handler:
            hint = (
                " For global stores, the handler is only called with "
                "processing_exception_handler_global_enabled=True."
            )
        error.message = f"Global store '{store}' cannot process a record. {error.message}{hint}"
        error.topic, error.partition = error.topic or partition.topic, partition.partition
        error.declared_at = error.declared_at or self._nodes[store].processor.declared_at

    @property
    def _uses_handler(self) -> bool:
        return bool(self._config.processing_exception_handler_global_enabled)

    def _environment(self, topic: str) -> StoreEnvironment:
        return StoreEnvironment(
            task_id=GLOBAL_TASK,
            directory=self._directory,
            topic=topic,
            restored_from=None,
            writer=None,
            context=self._record,
            budget=CacheBudget(0),
            recent_max_bytes=64 << 20,
            storages=self._storages,
            dropped=self._drops.add,
            failures=self.failures,
        )

    def _context(self, node: str) -> NodeContext:
        config = self._config
        handler = config.processing_exception_handler if self._uses_handler else None
        return NodeContext(
            node,
            GLOBAL_TASK,
            self._clock,
            _NoOutput(node),
            self.tables,
            handler or LogAndFailProcessingExceptionHandler(),
            self._drops,
            config,
            _GlobalTask(config, self._directory, self._record, self._metrics),
            NodeStores(self._nodes, self.store),
            failures=self.failures,
        )


class ReadOnlyGlobalStore:
    """A store wrapper that only allows reads."""

    def __init__(self, name: str, store: Any) -> None:
        self.name = name
        self._store = store

    def __getattr__(self, name: str) -> Any:
        if name in _WRITES:
            raise UnsupportedOperationError(
                f"The global store '{self.name}' can only be read here, but {name}() was called. "
                "It is a copy of its topic: write to the topic to change it."
            )
        return getattr(self._store, name)

    def __repr__(self) -> str:
        return f"ReadOnlyGlobalStore({self._store!r})"


class _TopicProcessor:
    """Passes the records of one topic to the processor that updates the store."""

    def __init__(
        self,
        source: SourceNode,
        operator: Operator,
        context: NodeContext,
        config: StreamsConfig,
        drops: DroppedRecords,
        record: CurrentRecord,
    ) -> None:
        self._source = source
        self._output = context.output
        self._key_serde = required_serde(source, "key", config)
        self._value_serde = required_serde(source, "value", config)
        handler = config.deserialization_exception_handler or LogAndFailExceptionHandler()
        self._errors = SourceErrors(handler, drops, source.name)
        self._queues: dict[TopicPartition, RecordQueue] = {}
        self._record = record
        self.operator = operator
        operator.init(context)

    def add(self, partition: TopicPartition, records: RawRecords) -> None:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = RecordQueue(
                partition,
                self._source.name,
                GLOBAL_TASK,
                self._key_serde,
                self._value_serde,
                None,
                self._errors,
            )
        queue.add(records)
        while count := queue.available():
            taken = queue.take(count)
            origin = Origin(partition, taken.offsets, taken.headers)
            self.operator.process(
                Batch(taken.keys, taken.values, taken.timestamps, range(count), origin),
                self._output,
            )
            queue.pending.finish_all()


class _NoOutput:
    """The output of a global store's processor, which has no children."""

    children: Sequence[str] = ()
    immediate = ordered = False

    def __init__(self, node: str) -> None:
        self._node = node

    def emit(self, batch: Batch) -> None:
        """Drop changes of a global table: joins read the store instead."""

    def emit_to(self, child: str, batch: Batch) -> None:
        raise UnsupportedOperationError(
            "The processor of a global store has no children to forward to.", node=self._node
        )


@dataclass(frozen=True)
class _GlobalTask:
    """The task context of a global store's processor."""

    config: StreamsConfig
    state_dir: Path
    record: CurrentRecord
    metrics: ContextMetrics
    processor_metadata: dict[str, int] = field(default_factory=dict)

    @property
    def application_id(self) -> str:
        return self.config.application_id

    def stream_time_ms(self) -> int:
        raise UnsupportedOperationError(
            "A global store has no stream time, because no task reads its topic. Use the record's "
            "timestamp."
        )

    def schedule(
        self,
        callback: Callable[[int], None],
        interval_ms: int,
        kind: PunctuationType,
        start_ms: int | None,
    ) -> Cancellable:
        raise UnsupportedOperationError(
            "The processor of a global store cannot schedule punctuations: it only copies its "
            "topic to the store."
        )

    def request_commit(self) -> None:
        """Do nothing: the store is written after each batch."""

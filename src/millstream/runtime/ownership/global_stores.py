"""Global stores at work: each is a copy of one whole topic, which all tasks of a thread read.

Kafka Streams' `GlobalStateUpdateTask` and `GlobalStateManagerImpl`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.errors import ProcessingError, StreamsError, UnsupportedOperationError
from millstream.metrics.registry import Scope
from millstream.metrics.user import ContextMetrics
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import Operator
from millstream.processor.handlers import (
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProcessingHandler,
)
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.processor.task_context import CurrentRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.compile_operator import compile_operator
from millstream.runtime.task.node_context import Dropped, NodeContext, NodeStores, SourceErrors
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.runtime.task.required_serde import required_serde
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.engine_failures import EngineFailures
from millstream.state.opening.by_kind import open_store
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.opening.open_store import OpenStore
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.state.storage.storages import Storages
from millstream.topology.physical.nodes import GlobalStoreNodes, SourceNode

#: The id under which the processors of global stores work, as in Kafka Streams.
GLOBAL_TASK: Final = TaskId(-1, -1)

#: What a task must not call on a global store.
_WRITES = frozenset(
    {"put", "put_if_absent", "put_all", "delete", "remove", "flush", "init", "close"}
)


class GlobalStores:
    """The global stores of one stream thread, which is a process of its own.

    Args:
        nodes: the global stores of the topology.
        config: the application's settings.
        clock: time.
        directory: where persistent ones live.
        drops: counts the records that are left out.
        storages: opens those of persistent stores; None for those of this host's disk.
        metrics: what their processors find under `context.metrics`.
    """

    def __init__(
        self,
        nodes: Collection[GlobalStoreNodes],
        config: StreamsConfig,
        clock: Clock,
        directory: Path,
        drops: Dropped,
        storages: Storages | None = None,
        metrics: ContextMetrics | None = None,
    ) -> None:
        self._metrics = metrics or ContextMetrics(Scope(clock))
        self._nodes = {node.store: node for node in nodes}
        self._by_topic = {node.topic: node for node in nodes}
        self._config = config
        self._clock = clock
        self._directory = directory
        self._drops = drops
        self._storages = storages or RocksDBStorages()
        self._record = CurrentRecord()
        #: Errors of their storages since they were opened.
        self.failures = EngineFailures()
        self._opened: dict[str, OpenStore] = {}
        self._fillers: dict[str, _Filler] = {}
        self.tables = NodeStores(self._nodes, self.table)
        self.read_only = NodeStores(self._nodes, lambda name: ReadOnlyStore(name, self.store(name)))

    @property
    def topics(self) -> frozenset[str]:
        """The topics that the stores are copies of."""
        return frozenset(node.topic for node in self._nodes.values())

    @property
    def names(self) -> list[str]:
        """The names of the stores."""
        return list(self._nodes)

    @property
    def are_persistent(self) -> bool:
        """Whether any of them outlives the process."""
        return any(
            node.store_builder.resolved(self._config).persistent for node in self._by_topic.values()
        )

    def store_of(self, topic: str) -> str:
        """The name of the store that is a copy of a topic."""
        return self._by_topic[topic].store

    def reached(self, place: TopicPartition) -> int | None:
        """The offset of the last record of a partition that is in its store; None if none is."""
        return self._opened[self.store_of(place.topic)].base.committed_offset(place)

    def open(self) -> None:
        """Open the stores and start what fills them.

        Raises:
            ConfigError: a serde is neither given nor set as a default.
            TaskCorruptedError: what is on disk cannot be read. Nothing stays open.
        """
        self.failures.forget()
        with ExitStack() as undo:
            undo.callback(self.close)
            for name, node in self._nodes.items():
                builder = node.store_builder.resolved(self._config)
                self._opened[name] = open_store(builder, self._environment(node.topic))
            for node in self._nodes.values():
                try:
                    self._fillers[node.topic] = self._filler(node)
                except StreamsError as error:
                    error.node = error.node or node.processor.name
                    error.declared_at = error.declared_at or node.processor.declared_at
                    raise
            undo.pop_all()

    def update(self, place: TopicPartition, records: RawRecords) -> None:
        """Apply records of one of the topics, in their order, and keep how far this is with them.

        Raises:
            StreamsError: a record could not be read, or the user's processor failed. Stores on disk
                are as they were.
        """
        own = self.store_of(place.topic)
        # A query may have failed meanwhile, which concerns its caller alone.
        self.failures.forget()
        try:
            self._fillers[place.topic].add(place, records)
            self.failures.check()
            for name, opened in self._opened.items():
                if name != own:
                    # The user's processor may write to the others as well.
                    opened.base.commit(None)
            self._opened[own].base.commit((place, records.offsets[-1]))
        except StreamsError as error:
            self._name(error, own, place)
            raise

    def store(self, name: str) -> Any:
        """A store to be read and written."""
        return self._opened[name].store

    def find(self, name: str) -> OpenStore | None:
        """The open store of that name, for queries; None if there is none."""
        return self._opened.get(name)

    def table(self, name: str) -> Any:
        """A store as operators use it, for example a `TimestampedTable`."""
        return self._opened[name].table

    def close(self) -> None:
        """Close the stores and what fills them. Does nothing the second time."""
        with ExitStack() as closing:
            for opened in self._opened.values():
                closing.callback(opened.close)
            for filler in self._fillers.values():
                closing.callback(filler.operator.close)
            self._opened = {}
            self._fillers = {}

    def _filler(self, node: GlobalStoreNodes) -> _Filler:
        return _Filler(
            node.source,
            compile_operator(node.processor.operation),
            self._context(node.processor.name),
            self._config,
            self._drops,
            self._record,
        )

    def _name(self, error: StreamsError, store: str, place: TopicPartition) -> None:
        """Tell in the error which store it concerns."""
        hint = ""
        if isinstance(error, ProcessingError) and not self._asks_handler:
            hint = (
                " For global stores the handler is asked only with "
                "processing_exception_handler_global_enabled=True."
            )
        error.message = f"Global store '{store}' cannot take a record. {error.message}{hint}"
        error.topic, error.partition = error.topic or place.topic, place.partition
        error.declared_at = error.declared_at or self._nodes[store].processor.declared_at

    @property
    def _asks_handler(self) -> bool:
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
        handler: ProcessingHandler | None = None
        if self._asks_handler:
            handler = config.processing_exception_handler
        return NodeContext(
            node,
            GLOBAL_TASK,
            self._clock,
            _NoChildren(node),
            self.tables,
            handler or LogAndFailProcessingExceptionHandler(),
            self._drops,
            config,
            _GlobalTask(config, self._directory, self._record, self._metrics),
            NodeStores(self._nodes, self.store),
            failures=self.failures,
        )


class ReadOnlyStore:
    """A store of which only the methods that read can be called.

    Args:
        name: the store's name.
        store: the store.
    """

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
        return f"ReadOnlyStore({self._store!r})"


class _Filler:
    """Takes the records of one topic to the processor that fills the store."""

    def __init__(
        self,
        source: SourceNode,
        operator: Operator,
        context: NodeContext,
        config: StreamsConfig,
        drops: Dropped,
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

    def add(self, place: TopicPartition, records: RawRecords) -> None:
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = RecordQueue(
                place,
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
            origin = Origin(place, taken.offsets, taken.headers)
            self.operator.process(
                Batch(taken.keys, taken.values, taken.timestamps, range(count), origin),
                self._output,
            )
            queue.pending.finish_all()


class _NoChildren:
    """The way out of a global store's processor: there is none."""

    children: Sequence[str] = ()
    immediate = ordered = False

    def __init__(self, node: str) -> None:
        self._node = node

    def emit(self, batch: Batch) -> None:
        """Changes of a global table go nowhere: who joins with it looks them up."""

    def emit_to(self, child: str, batch: Batch) -> None:
        raise UnsupportedOperationError(
            "The processor of a global store has no children to forward to.", node=self._node
        )


class _GlobalTask:
    """What the processor of a global store finds in place of a task."""

    def __init__(
        self,
        config: StreamsConfig,
        directory: Path,
        record: CurrentRecord,
        metrics: ContextMetrics,
    ) -> None:
        self.record = record
        self.application_id = config.application_id
        self.state_dir = directory
        self.config = config
        self.metrics = metrics
        self.remembered: dict[str, int] = {}

    def stream_time_ms(self) -> int:
        raise UnsupportedOperationError(
            "A global store has no stream time: it is read by no task. Use the record's timestamp."
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
        """Nothing to commit: the store is written as soon as a batch is done."""

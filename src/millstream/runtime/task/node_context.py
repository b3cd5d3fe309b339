"""What the engine gives to one operator of one task, and who answers the failures of user code."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Protocol

from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.config_fields import did_you_mean
from millstream.errors import (
    ProcessingError,
    SerializationError,
    StreamsError,
    summary_of,
    text_of,
)
from millstream.metrics.registry import Scope, unseen
from millstream.metrics.sensors import Sensor
from millstream.operators.batch import Batch
from millstream.operators.operator import Output
from millstream.processor.handlers import (
    DeserializationHandler,
    ErrorContext,
    LogAndFailProcessingExceptionHandler,
    ProcessingHandler,
    SourceRecord,
)
from millstream.processor.task_context import TaskContext
from millstream.record import Record, TaskId
from millstream.runtime.task.answers import goes_on, handlers_failure
from millstream.state.engine_failures import EngineFailures

logger = logging.getLogger(__name__)

#: At most so often a node's dropped records are logged.
_HEARD_EVERY_MS = 10_000


class Dropped:
    """Counts the records of a task that were left out on purpose (`dropped-records-total`).

    Args:
        task_id: the task, for the log.
        clock: so that a node is heard of at most every ten seconds, however many it drops.
        sensor: told of them as well.
    """

    def __init__(
        self, task_id: TaskId, clock: Clock | None = None, sensor: Sensor | None = None
    ) -> None:
        self.total = 0
        self._sensor = sensor
        self._task_id = task_id
        self._clock = clock or SystemClock()
        #: By node, and whether windows are counted: records and windows that no line of the log has
        #: counted yet.
        self._unheard: Counter[tuple[str, bool]] = Counter()
        self._unheard_windows: Counter[tuple[str, bool]] = Counter()
        self._next_ms: dict[tuple[str, bool], int] = {}

    def add(self, count: int, why: str, node: str, windows: int | None = None) -> None:
        """Count records.

        Args:
            count: how many.
            why: why they were left out.
            node: where.
            windows: how many windows they are missing from, where each counts in the metric as in
                Kafka Streams; None where records are dropped whole.
        """
        measured = count if windows is None else windows
        self.total += measured
        if self._sensor is not None:
            self._sensor.record_many(measured, measured, measured, measured)
        place = node, windows is not None
        self._unheard[place] += count
        self._unheard_windows[place] += windows or 0
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms.get(place, now_ms):
            self._next_ms[place] = now_ms + _HEARD_EVERY_MS
            dropped, missing = self._unheard.pop(place), self._unheard_windows.pop(place)
            records = "1 record" if dropped == 1 else f"{dropped} records"
            if missing:
                what = f"{records} not counted in {_windows(missing)}"
            else:
                what = f"{records} dropped"
            logger.warning("task %s, node %s: %s: %s", self._task_id, node, what, why)


def _windows(count: int) -> str:
    return "1 window" if count == 1 else f"{count} windows"


class NodeContext:
    """What an operator may ask of the engine.

    Args:
        node: the node's name.
        task_id: the task.
        clock: wall-clock time.
        output: the node's edges to its children.
        stores: the stores connected to the node, by name.
        handler: answers for records that user code fails on.
        drops: counts records that are left out.
        config: the application's settings; may be left out where no operator asks for them.
        task: the task as its nodes see it; may be left out where no operator asks for it.
        typed_stores: the same stores as processors use them; by default those of operators.
        metrics: of the node; None where nobody reads them.
        failures: errors of the engine, for which the handler is not called.
    """

    def __init__(
        self,
        node: str,
        task_id: TaskId,
        clock: Clock,
        output: Output,
        stores: Mapping[str, Any],
        handler: ProcessingHandler,
        drops: Dropped,
        config: StreamsConfig | None = None,
        task: TaskContext | None = None,
        typed_stores: Mapping[str, Any] | None = None,
        metrics: Scope | None = None,
        failures: EngineFailures | None = None,
    ) -> None:
        self._failures = failures or EngineFailures()
        self.metrics = metrics or unseen()
        self.node = node
        self.task_id = task_id
        self.clock = clock
        self.output = output
        self._stores = stores
        self._handler = handler
        self._drops = drops
        self._config = config
        self._task = task
        self._typed_stores = stores if typed_stores is None else typed_stores

    @property
    def config(self) -> StreamsConfig:
        """The application's settings."""
        assert self._config is not None, f"node {self.node} was made without settings"
        return self._config

    @property
    def task(self) -> TaskContext:
        """The task as its nodes see it."""
        assert self._task is not None, f"node {self.node} was made without its task"
        return self._task

    @property
    def may_continue(self) -> bool:
        """Whether a failure of user code may be answered by leaving the record out."""
        return not isinstance(self._handler, LogAndFailProcessingExceptionHandler)

    def store(self, name: str) -> Any:
        """The store of that name as operators use it: connected to the node, or a global one."""
        return self._store(self._stores, name)

    def typed_store(self, name: str) -> Any:
        """The same store as processors use it."""
        return self._store(self._typed_stores, name)

    def _store(self, stores: Mapping[str, Any], name: str) -> Any:
        try:
            return stores[name]
        except KeyError:
            names = sorted(stores)
            has = f"It has: {', '.join(names)}." if names else "It has none."
            raise StreamsError(
                f"Processor '{self.node}' has no access to store '{name}'. {has}"
                f"{did_you_mean(name, names)} If there is such a store, connect it: name it in "
                "stores=... where the processor is added, or let its supplier bring it.",
                node=self.node,
                task_id=self.task_id,
            ) from None

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        """User code raised on a record: drop that record alone, or raise.

        Raises:
            ProcessingError: the handler says FAIL.
            Exception: the engine has failed below the user code, which may have wrapped the error.
        """
        self._failures.check()
        if isinstance(error, ProcessingError):
            # The handler has answered FAIL for a node downstream, within a call of forward().
            raise error
        context, record = failed_record(batch, index, self.node, self.task_id)
        if goes_on(self._handler, context, record, error):
            self._drops.add(1, f"user code failed: {summary_of(error)}", self.node)
            return
        raise ProcessingError(
            f"User code failed on a record: {_told(error)}{handlers_failure(error)}",
            task_id=self.task_id,
            topic=context.topic,
            partition=context.partition,
            offset=context.offset,
            node=self.node,
        ) from error

    def dropped(self, count: int, why: str, windows: int | None = None) -> None:
        """Some records were left out on purpose, of that many windows if of any."""
        self._drops.add(count, why, self.node, windows)


class SharedStores(Protocol):
    """The global stores as tasks read them."""

    @property
    def tables(self) -> Mapping[str, Any]:
        """By name, as operators use them."""
        ...

    @property
    def read_only(self) -> Mapping[str, Any]:
        """By name, as processors use them."""
        ...

    @property
    def failures(self) -> EngineFailures:
        """Errors of their storages."""
        ...


class NodeStores(Mapping[str, Any]):
    """The stores of one node by name, looked up when they are asked for.

    Args:
        names: of the stores connected to the node.
        find: gives one of them.
        shared: the global stores, which need not be connected.
    """

    def __init__(
        self,
        names: Collection[str],
        find: Callable[[str], Any],
        shared: Mapping[str, Any] | None = None,
    ) -> None:
        self._names = names
        self._find = find
        self._shared = shared or {}

    def __getitem__(self, name: str) -> Any:
        return self._find(name) if name in self._names else self._shared[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._names, *self._shared))

    def __len__(self) -> int:
        return len(self._names) + len(self._shared)


class SourceErrors:
    """Decides about records of a source that cannot be read.

    Args:
        handler: answers.
        drops: counts records that are left out.
        source: the name of the source node.
    """

    def __init__(self, handler: DeserializationHandler, drops: Dropped, source: str) -> None:
        self._handler = handler
        self._drops = drops
        self._source = source

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        """True to leave the record out, False to fail."""
        if not goes_on(self._handler, context, record, error):
            return False
        self._drops.add(1, f"not readable: {text_of(error)}", self._source)
        return True

    def dropped(self, count: int, why: str) -> None:
        """Some records were left out on purpose."""
        self._drops.add(count, why, self._source)


class SinkErrors:
    """Decides about records that a sink cannot write.

    Follows Kafka Streams: the failure is that of the processor which forwarded the record, so the
    processing exception handler is asked, but nobody where the sink hangs on a source.

    Args:
        handler: answers; None fails.
        drops: counts records that are left out.
        sink: the name of the sink node.
        task_id: the task.
    """

    def __init__(
        self, handler: ProcessingHandler | None, drops: Dropped, sink: str, task_id: TaskId
    ) -> None:
        self._handler = handler
        self._drops = drops
        self._sink = sink
        self._task_id = task_id

    def unwritable(self, batch: Batch, index: int, error: Exception) -> bool:
        """True to leave the record out, False to fail."""
        if self._handler is None:
            return False
        context, record = failed_record(batch, index, self._sink, self._task_id)
        if not goes_on(self._handler, context, record, error):
            return False
        self._drops.add(1, f"not writable: {text_of(error)}", self._sink)
        return True

    def dropped(self, count: int, why: str) -> None:
        """Count records that are left out on purpose."""
        self._drops.add(count, why, self._sink)


def _told(error: Exception) -> str:
    """What user code raised, and what to do about it."""
    if isinstance(error, StreamsError) and not isinstance(error, SerializationError):
        # A wrong call is wrong for each record: what to do is to correct the program.
        return error.message
    text = error.message if isinstance(error, StreamsError) else text_of(error)
    return (
        f"{type(error).__name__}: {text.removesuffix('.')}. Correct the function, or set "
        "processing_exception_handler=LogAndContinueProcessingExceptionHandler() to leave such "
        "records out."
    )


def failed_record(
    batch: Batch, index: int, node: str, task_id: TaskId
) -> tuple[ErrorContext, Record[Any, Any]]:
    """What exception handlers are told about a record that a node was working on."""
    metadata = batch.metadata_of(index)
    timestamp = batch.timestamps[index]
    headers = batch.headers_of(index)
    record = Record(batch.keys[index], batch.values[index], max(timestamp, 0), headers)
    return (
        ErrorContext(
            metadata.topic,
            metadata.partition,
            metadata.offset,
            timestamp,
            headers,
            node,
            task_id,
        ),
        record,
    )

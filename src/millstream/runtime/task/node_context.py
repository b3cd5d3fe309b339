"""The engine's services for one operator of a task, including error handling."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from millstream.clock import Clock, SystemClock
from millstream.config.fields import did_you_mean
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ProcessingError, SerializationError, StreamsError, summary_of, text_of
from millstream.metrics.registry import MetricsScope, detached_scope
from millstream.metrics.sensors import Sensor
from millstream.operators.operator import Output
from millstream.operators.record_batch import Batch
from millstream.processor.handlers import (
    DeserializationHandler,
    ErrorContext,
    LogAndFailProcessingExceptionHandler,
    ProcessingHandler,
    SourceRecord,
)
from millstream.processor.task_context import TaskContext
from millstream.record import Record, TaskId
from millstream.runtime.task.error_handling.handler_results import handler_notes, should_continue
from millstream.state.engine_failures import EngineFailures

logger = logging.getLogger(__name__)

#: Minimum interval between two log lines about a node's dropped records.
_LOG_INTERVAL_MS = 10_000


class DroppedRecords:
    """Counts and logs dropped records (`dropped-records-total`).

    At most one line per node is logged every ten seconds.
    """

    def __init__(
        self, task_id: TaskId, clock: Clock | None = None, sensor: Sensor | None = None
    ) -> None:
        self.total = 0
        self._sensor = sensor
        self._task_id = task_id
        self._clock = clock or SystemClock()
        #: Records and windows that are not logged yet, by node and whether windows are counted.
        self._unlogged: Counter[tuple[str, bool]] = Counter()
        self._unlogged_windows: Counter[tuple[str, bool]] = Counter()
        self._next_ms: dict[tuple[str, bool], int] = {}

    def add(self, count: int, why: str, node: str, windows: int | None = None) -> None:
        """Count dropped records.

        If the records are only missing from some windows, instead of being dropped entirely, the
        metric counts each of these windows, as in Kafka Streams.
        """
        measured = count if windows is None else windows
        self.total += measured
        if self._sensor is not None:
            self._sensor.record_many(measured, measured, measured, measured)
        key = node, windows is not None
        self._unlogged[key] += count
        self._unlogged_windows[key] += windows or 0
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._next_ms.get(key, now_ms):
            self._next_ms[key] = now_ms + _LOG_INTERVAL_MS
            dropped, missing = self._unlogged.pop(key), self._unlogged_windows.pop(key)
            records = "1 record" if dropped == 1 else f"{dropped} records"
            unchanged = "1 window" if missing == 1 else f"{missing} windows"
            what = f"{records} not counted in {unchanged}" if missing else f"{records} dropped"
            logger.warning("task %s, node %s: %s: %s", self._task_id, node, what, why)


class NodeContext:
    """The services of the engine for one operator. Implements `OperatorContext`.

    Args:
        typed_stores: the same stores for processors; defaults to `stores`.
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
        drops: DroppedRecords,
        config: StreamsConfig | None = None,
        task: TaskContext | None = None,
        typed_stores: Mapping[str, Any] | None = None,
        metrics: MetricsScope | None = None,
        failures: EngineFailures | None = None,
    ) -> None:
        self._failures = failures or EngineFailures()
        self.metrics = metrics or detached_scope()
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
        assert self._config is not None, f"node {self.node} was created without settings"
        return self._config

    @property
    def task(self) -> TaskContext:
        """The context that the task's nodes share."""
        assert self._task is not None, f"node {self.node} was created without its task"
        return self._task

    @property
    def may_continue(self) -> bool:
        """Whether a record may be dropped if user code fails on it."""
        return not isinstance(self._handler, LogAndFailProcessingExceptionHandler)

    def store(self, name: str) -> Any:
        """Return a store for operators: one connected to the node, or a global one."""
        return self._store(self._stores, name)

    def typed_store(self, name: str) -> Any:
        """Return the same store for processors."""
        return self._store(self._typed_stores, name)

    def _store(self, stores: Mapping[str, Any], name: str) -> Any:
        try:
            return stores[name]
        except KeyError:
            names = sorted(stores)
            has = f"Its stores: {', '.join(names)}." if names else "It has no stores."
            raise StreamsError(
                f"Processor '{self.node}' has no access to store '{name}'. {has}"
                f"{did_you_mean(name, names)} To connect a store, name it in stores=... where the "
                "processor is added, or return it from stores() of the supplier.",
                node=self.node,
                task_id=self.task_id,
            ) from None

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        """Handle a failure of user code: drop the record, or raise.

        Raises:
            ProcessingError: the handler returned FAIL.
            Exception: the engine failed in a call from the user code, which may have wrapped the
                engine's error.
        """
        self._failures.raise_first()
        if isinstance(error, ProcessingError):
            # The handler returned FAIL for a downstream node, within a call to forward().
            raise error
        context, record = failed_record(batch, index, self.node, self.task_id)
        if should_continue(self._handler, context, record, error):
            self._drops.add(1, f"user code failed: {summary_of(error)}", self.node)
            return
        raise ProcessingError(
            f"User code failed on a record: {_failure_message(error)}{handler_notes(error)}",
            task_id=self.task_id,
            topic=context.topic,
            partition=context.partition,
            offset=context.offset,
            node=self.node,
        ) from error

    def dropped(self, count: int, why: str, windows: int | None = None) -> None:
        """Count dropped records, and the windows from which they are missing."""
        self._drops.add(count, why, self.node, windows)


class GlobalStoreAccess(Protocol):
    """The tasks' access to global stores."""

    @property
    def tables(self) -> Mapping[str, Any]:
        """The stores for operators, by name."""

    @property
    def read_only(self) -> Mapping[str, Any]:
        """The stores for processors, by name."""

    @property
    def failures(self) -> EngineFailures:
        """The errors of the stores' storages."""


class NodeStores(Mapping[str, Any]):
    """The stores of one node by name, looked up on access.

    Global stores do not need to be connected to the node.
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


@dataclass(frozen=True)
class SourceErrors:
    """Decides whether to drop records of a source that cannot be deserialized."""

    handler: DeserializationHandler
    drops: DroppedRecords
    source: str

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        """Return True to drop the record, False to fail."""
        if not should_continue(self.handler, context, record, error):
            return False
        self.drops.add(1, f"deserialization failed: {text_of(error)}", self.source)
        return True

    def dropped(self, count: int, why: str) -> None:
        """Count dropped records."""
        self.drops.add(count, why, self.source)


@dataclass(frozen=True)
class SinkErrors:
    """Decides whether to drop records that a sink cannot write.

    Follows Kafka Streams: the error counts as a failure of the processor that forwarded the record,
    so the processing exception handler is called. If all parents of the sink are sources, there is
    no handler, and the sink fails.
    """

    handler: ProcessingHandler | None
    drops: DroppedRecords
    sink: str
    task_id: TaskId

    def unwritable(self, batch: Batch, index: int, error: Exception) -> bool:
        """Return True to drop the record, False to fail."""
        if self.handler is None:
            return False
        context, record = failed_record(batch, index, self.sink, self.task_id)
        if not should_continue(self.handler, context, record, error):
            return False
        self.drops.add(1, f"serialization failed: {text_of(error)}", self.sink)
        return True

    def dropped(self, count: int, why: str) -> None:
        """Count dropped records."""
        self.drops.add(count, why, self.sink)


def _failure_message(error: Exception) -> str:
    """Describe an error in user code and the remedy."""
    if isinstance(error, StreamsError) and not isinstance(error, SerializationError):
        # An invalid call fails for every record, so skipping records does not help.
        return error.message
    text = error.message if isinstance(error, StreamsError) else text_of(error)
    return (
        f"{type(error).__name__}: {text.removesuffix('.')}. Fix the function, or set "
        "processing_exception_handler=LogAndContinueProcessingExceptionHandler() to skip such "
        "records."
    )


def failed_record(
    batch: Batch, index: int, node: str, task_id: TaskId
) -> tuple[ErrorContext, Record[Any, Any]]:
    """Return the error context and the failed record, for exception handlers."""
    metadata = batch.metadata_of(index)
    origin = metadata.topic, metadata.partition, metadata.offset
    timestamp = batch.timestamps[index]
    headers = batch.headers_of(index)
    record = Record(batch.keys[index], batch.values[index], max(timestamp, 0), headers)
    return ErrorContext(*origin, timestamp, headers, node, task_id), record

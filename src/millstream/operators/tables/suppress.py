"""Suppression of table changes.

Corresponds to Kafka Streams' `KTableSuppressProcessorSupplier`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from millstream.errors import StreamsError
from millstream.metrics.registry import RecordingLevel
from millstream.metrics.values import NODE_GROUP
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch
from millstream.operators.result_records import ReleasedRecords
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.record import UNKNOWN
from millstream.state.buffers.time_ordered_buffer import BufferedChange, TimeOrderedBuffer
from millstream.state.keyvalue.key_value_table import TimedValue
from millstream.windowed import Windowed


@dataclass(frozen=True)
class SuppressLimits:
    """The limits of a suppression: the time, and the number and size of changes."""

    #: How far stream time must exceed the time of a change before the change is emitted.
    wait_ms: int
    #: Whether the time of a change is the end of its window; otherwise, it is the timestamp of the
    #: first suppressed record of its key.
    by_window: bool
    max_records: int | None
    max_bytes: int | None
    #: Whether the oldest changes are emitted when a limit is exceeded; otherwise, an error is
    #: raised.
    emits_early: bool


class TableSuppressOperator(Operator):
    """Holds changes back in a buffer, and emits them when they are due."""

    def __init__(self, store: str, limits: SuppressLimits) -> None:
        self._store = store
        self._limits = limits
        self._max_records = sys.maxsize if limits.max_records is None else limits.max_records
        self._max_bytes = sys.maxsize if limits.max_bytes is None else limits.max_bytes
        self._stream_time = UNKNOWN
        self._buffer: TimeOrderedBuffer

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._buffer = context.store(self._store)
        level = RecordingLevel.DEBUG
        self._emitted = context.metrics.rate_and_total(NODE_GROUP, "suppression-emit", level)

    def process(self, batch: Batch, output: Output) -> None:
        released = ReleasedRecords(with_old_values=True)
        for index in range(len(batch)):
            try:
                self._buffer_record(batch, index)
                for change in self._buffer.evict_while(self._is_due):
                    self._release(released, batch, index, change, output)
                if self._is_full():
                    if not self._limits.emits_early:
                        raise self._overflow()
                    for change in self._buffer.evict_while(self._is_full):
                        self._release(released, batch, index, change, output)
            except Exception as error:
                self.context.failed(batch, index, error)
        released.emit(output)

    def _buffer_record(self, batch: Batch, index: int) -> None:
        key, timestamp = batch.keys[index], batch.timestamps[index]
        if timestamp > self._stream_time:
            self._stream_time = timestamp
        row = batch.rows[index]
        self._buffer.put(
            _window_end(key) if self._limits.by_window else timestamp,
            key,
            batch.values[index],
            None if batch.old_values is None else batch.old_values[index],
            timestamp=timestamp,
            place=batch.origin.place(row),
            offset=batch.origin.offsets[row],
            headers=batch.headers_of(index),
        )

    def _release(
        self,
        released: ReleasedRecords,
        batch: Batch,
        index: int,
        change: BufferedChange,
        output: Output,
    ) -> None:
        # A window has one final result. If it is None, downstream nodes have nothing to delete.
        if change.new_value is None and self._limits.by_window:
            return
        after = None if batch.order is None else batch.order[index]
        self._emitted.record()
        released.add(change.key, change.new_value, change.context, after, change.old_value)
        if output.immediate:
            # A downstream node may read the buffer, which must still contain the change.
            released.emit(output)

    def _is_due(self) -> bool:
        return self._buffer.min_timestamp <= self._stream_time - self._limits.wait_ms

    def _is_full(self) -> bool:
        buffer = self._buffer
        return buffer.num_records > self._max_records or buffer.size_bytes > self._max_bytes

    def _overflow(self) -> StreamsError:
        buffer, limits = self._buffer, self._limits
        return StreamsError(
            f"The buffer of {self.context.node} is full: it contains {buffer.num_records} records "
            f"(limit: {_shown(limits.max_records)}) and {buffer.size_bytes} bytes (limit: "
            f"{_shown(limits.max_bytes)}), and none of them may be emitted yet. Raise the limit, "
            "or allow early emission with BufferConfig.emit_early_when_full().",
            node=self.context.node,
            task_id=self.context.task_id,
        )


@dataclass(frozen=True)
class SuppressedGetterSupplier:
    """Reads a suppressed table: returns the values that were emitted downstream."""

    store: str
    parent: GetterSupplier

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store, *self.parent.stores)

    def make(self, context: OperatorContext) -> ValueGetter:
        return _SuppressedGetter(context.store(self.store), self.parent.make(context))


class _SuppressedGetter(ValueGetter):
    def __init__(self, buffer: TimeOrderedBuffer, parent: ValueGetter) -> None:
        self._buffer = buffer
        self._parent = parent

    def get(self, key: Any) -> TimedValue | None:
        held, value = self._buffer.prior_value(key)
        if not held:
            return self._parent.get(key)
        # Follows Kafka Streams: the timestamp of the prior value is not stored.
        return None if value is None else (value, UNKNOWN)

    def close(self) -> None:
        self._parent.close()


def _window_end(key: Any) -> int:
    if isinstance(key, Windowed):
        return key.window.end_ms
    raise TypeError(
        "suppress() with until_window_closes needs Windowed keys, but got "
        f"{type(key).__name__}: {key!r}."
    )


def _shown(limit: int | None) -> str:
    return "none" if limit is None else str(limit)

"""Holding back the changes of a table (Kafka Streams' KTableSuppressProcessorSupplier)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from millstream.errors import StreamsError
from millstream.metrics.names import NODE_GROUP
from millstream.metrics.registry import RecordingLevel
from millstream.operators.batch import Batch
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.released import Released
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.record import UNKNOWN
from millstream.state.buffers.time_ordered_buffer import BufferedChange, TimeOrderedBuffer
from millstream.state.keyvalue.table import TimedValue
from millstream.windowed import Windowed


@dataclass(frozen=True)
class SuppressLimits:
    """How long and how much a suppress holds back.

    Args:
        wait_ms: how far stream time must be past the time of a change before it goes.
        by_window: whether that is the end of its window; else it is the time of the first record
            held back for its key.
        most_records: how many keys may be held back; None for any number.
        most_bytes: how many bytes; None for any number.
        emits_early: whether the oldest changes go when there are too many; else that is an error.
    """

    wait_ms: int
    by_window: bool
    most_records: int | None
    most_bytes: int | None
    emits_early: bool


class TableSuppressOperator(Operator):
    """Lets go of a change when its time has come.

    Args:
        store: the buffer.
        limits: how long and how much it holds back.
    """

    def __init__(self, store: str, limits: SuppressLimits) -> None:
        self._store = store
        self._limits = limits
        self._most_records = sys.maxsize if limits.most_records is None else limits.most_records
        self._most_bytes = sys.maxsize if limits.most_bytes is None else limits.most_bytes
        self._stream_time = UNKNOWN
        self._buffer: TimeOrderedBuffer

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._buffer = context.store(self._store)
        level = RecordingLevel.DEBUG
        self._emitted = context.metrics.rate_and_total(NODE_GROUP, "suppression-emit", level)

    def process(self, batch: Batch, output: Output) -> None:
        released = Released(with_old_values=True)
        for index in range(len(batch)):
            try:
                self._take_in(batch, index)
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

    def _take_in(self, batch: Batch, index: int) -> None:
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
        released: Released,
        batch: Batch,
        index: int,
        change: BufferedChange,
        output: Output,
    ) -> None:
        # A window that has closed without a value was never seen downstream.
        if change.new_value is None and self._limits.by_window:
            return
        after = None if batch.order is None else batch.order[index]
        self._emitted.record()
        released.add(change.key, change.new_value, change.context, after, change.old_value)
        if output.immediate:
            # Whoever reads the buffer downstream must do so while the change is still in it.
            released.emit(output)

    def _is_due(self) -> bool:
        return self._buffer.min_timestamp <= self._stream_time - self._limits.wait_ms

    def _is_full(self) -> bool:
        buffer = self._buffer
        return buffer.num_records > self._most_records or buffer.size_bytes > self._most_bytes

    def _overflow(self) -> StreamsError:
        buffer, limits = self._buffer, self._limits
        return StreamsError(
            f"The buffer of {self.context.node} is full: it holds {buffer.num_records} records "
            f"(at most {_shown(limits.most_records)}) and {buffer.size_bytes} bytes (at most "
            f"{_shown(limits.most_bytes)}), and none of them may be emitted yet. Allow more, or "
            "let it emit early: BufferConfig.emit_early_when_full().",
            node=self.context.node,
            task_id=self.context.task_id,
        )


@dataclass(frozen=True)
class SuppressedGetter:
    """Reads a table with changes held back: what downstream has heard of so far.

    Args:
        store: the buffer.
        parent: reads the table itself.
    """

    store: str
    parent: GetterSupplier

    @property
    def stores(self) -> tuple[str, ...]:
        """The buffer, and the stores of the table."""
        return (self.store, *self.parent.stores)

    def make(self, context: OperatorContext) -> ValueGetter:
        """The getter of one task."""
        return _Held(context.store(self.store), self.parent.make(context))


class _Held(ValueGetter):
    def __init__(self, buffer: TimeOrderedBuffer, parent: ValueGetter) -> None:
        self._buffer = buffer
        self._parent = parent

    def get(self, key: Any) -> TimedValue | None:
        held, value = self._buffer.prior_value(key)
        if not held:
            return self._parent.get(key)
        # Follows Kafka Streams: when the value was put is not kept.
        return None if value is None else (value, UNKNOWN)

    def close(self) -> None:
        self._parent.close()


def _window_end(key: Any) -> int:
    if isinstance(key, Windowed):
        return key.window.end_ms
    raise TypeError(
        f"Results of windows have Windowed keys, but this one is {type(key).__name__}: {key!r}."
    )


def _shown(limit: int | None) -> str:
    return "any number" if limit is None else str(limit)

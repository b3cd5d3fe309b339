"""Base class of windowed aggregations: stream time, stores, and final results.

A record is added to the open windows that contain its timestamp. *Stream time* is the highest
timestamp that the operator has processed since it started. A window is closed once stream time
exceeds the last millisecond of the window by more than the grace period; for sessions, the
inactivity gap is added. As in aggregations without windows, changes are emitted when the record
cache is flushed, or immediately without a cache. With `emit_final`, changes are not emitted;
instead, the result of a window is emitted once, when the window is closed (KIP-825).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from millstream.metrics.registry import MetricsScope, RecordingLevel
from millstream.metrics.values import NODE_GROUP
from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch, Order
from millstream.operators.record_filters import with_key_bytes, with_keys, with_keys_and_values
from millstream.operators.result_records import (
    WINDOW_CLOSE_INTERVAL,
    emit_flushed,
    emit_interval_ms,
)
from millstream.record import UNKNOWN
from millstream.state.caches.cache_entries import FlushedChanges
from millstream.windowed import Windowed


class WindowsWithGrace(Protocol):
    @property
    def grace_ms(self) -> int: ...


W = TypeVar("W", bound=WindowsWithGrace)


class FinalResult(NamedTuple):
    key: Windowed[Any]
    value: Any
    timestamp: int


class WindowedOperator(Operator, Generic[W]):
    """A windowed aggregation."""

    #: Whether to drop records without a value.
    needs_value = False

    def __init__(
        self,
        store: str,
        windows: W,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        emit_final: bool = False,
        send_old_values: bool = False,
    ) -> None:
        self._store = store
        self._windows = windows
        self._grace_ms = windows.grace_ms
        self._initializer = initializer
        self._aggregator = aggregator
        self._emit_final = emit_final
        self._send_old_values = send_old_values
        self._stream_time = UNKNOWN
        #: Whether to search for closed windows after the current record.
        self._checks_closed_windows = True
        self._table: Any
        self._cache: Any
        self._interval_ms = 0
        self._next_emit_ms = 0
        self._emitted_until = UNKNOWN

    @property
    def cached_store(self) -> str | None:
        return self._store

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._table = context.store(self._store)
        self._cache = self._table.cache
        if self._emit_final:
            self._interval_ms = emit_interval_ms(context.config, WINDOW_CLOSE_INTERVAL)
            self._emitted_until = context.task.processor_metadata.get(self._store, UNKNOWN)
            self._add_metrics(context.metrics)
        elif self._cache is not None:
            self._cache.forwards_changes = True
            self._cache.sends_old_values = self._send_old_values

    def _add_metrics(self, metrics: MetricsScope) -> None:
        what, level = "window-aggregate-final-emit", RecordingLevel.DEBUG
        self._emitted = metrics.rate_and_total(NODE_GROUP, what, level)
        self._emit_took = metrics.average_and_maximum(NODE_GROUP, f"{what}-latency", level)

    # ---- overridden by subclasses

    def update(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        """Aggregate records, all of which have a key.

        Emits the changes, unless there is a cache or only final results are emitted.
        """
        raise NotImplementedError

    def final_results(self, close_time: int) -> Sequence[FinalResult] | None:
        """Return the results of windows closed since the last call.

        Returns None before the first window. A window is closed if all of its times are before
        `close_time`.
        """
        raise NotImplementedError

    def close_time(self) -> int:
        return self._stream_time - self._grace_ms

    def flushed(self, changes: FlushedChanges) -> FlushedChanges:
        return changes

    # ---- common to all windows

    def process(self, batch: Batch, output: Output) -> None:
        usable = with_keys_and_values if self.needs_value else with_keys
        batch = usable(batch, self.context)
        key_bytes, batch = with_key_bytes(batch, self._table, self.context)
        if not key_bytes:
            return
        if self._emit_final:
            self._update_and_close(batch, key_bytes, output)
        else:
            self.update(batch, key_bytes, output)
        if self._cache is not None:
            self._forward(self._cache.evict(), batch.order[-1] if batch.order else ())

    def flush(self) -> None:
        if self._cache is not None:
            self._forward(self._cache.flush(), ())

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        """Handle a failure of user code: skip the rest of the record, or raise."""
        self._checks_closed_windows = False
        self.context.failed(batch, index, error)

    def dropped(self, records: int, windows: int) -> None:
        """Count records that were late for some of their windows.

        Follows Kafka Streams: the metric counts each late window.
        """
        if records:
            why = "they arrived after the grace period of the window"
            self.context.dropped(records, why, windows)

    def _update_and_close(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        """Aggregate records one by one.

        Searches for closed windows once per emit interval.
        """
        for index in range(len(batch)):
            now_ms = self.context.clock.now_ms()
            if now_ms < self._next_emit_ms:
                rest = batch if index == 0 else batch.take(range(index, len(batch)))
                self.update(rest, key_bytes[index:], output)
                return
            record = batch if len(batch) == 1 else batch.take((index,))
            self._checks_closed_windows = True
            self.update(record, key_bytes[index : index + 1], output)
            if self._checks_closed_windows:
                self._next_emit_ms = now_ms + self._interval_ms
                self._emit_closed(record, output)

    def _emit_closed(self, record: Batch, output: Output) -> None:
        close_time = self.close_time()
        if self._emitted_until != UNKNOWN and self._emitted_until >= close_time:
            return
        began_ms = self.context.clock.monotonic_ms()
        results = self.final_results(close_time)
        if results is None:
            return
        self._emit_took.record(self.context.clock.monotonic_ms() - began_ms)
        self._emitted.record_many(len(results), len(results), 0, 0)
        self._emitted_until = close_time
        self.context.task.processor_metadata[self._store] = close_time
        if not results:
            return
        size = len(results)
        order = record.order
        headers = record.headers
        output.emit(
            Batch(
                [result.key for result in results],
                [result.value for result in results],
                [result.timestamp for result in results],
                [record.rows[0]] * size,
                record.origin,
                None if order is None else [(*order[0], number) for number in range(size)],
                None if headers is None else headers * size,
                [None] * size if self._send_old_values else None,
            )
        )

    def _forward(self, changes: FlushedChanges | None, after: Order) -> None:
        if changes is not None:
            emit_flushed(self.flushed(changes), self.context.output, after)

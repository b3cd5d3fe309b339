"""What the windowed aggregations have in common: stream time, stores, and final results.

A record goes into the windows that its time lies in and that are still open. *Stream time* is
the highest time that the operator has seen since it was started; a window is closed once stream
time has passed its end by the grace period. Changes go downstream as in aggregations without
windows: with a record cache when it is flushed, without one at once. With `emit_final` there are
none of these; instead a window's result is sent once, when it is closed (KIP-825).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from millstream.metrics.names import NODE_GROUP
from millstream.metrics.registry import RecordingLevel, Scope
from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.operators.batch import Batch, Order
from millstream.operators.emit_interval import WINDOW_CLOSE_INTERVAL, emit_interval_ms
from millstream.operators.flushed import emit_flushed
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.usable import complete, with_key_bytes, with_keys
from millstream.record import UNKNOWN
from millstream.state.caches.cache_entries import FlushedChanges
from millstream.windowed import Windowed


class WithGrace(Protocol):
    """Windows of any kind."""

    @property
    def grace_ms(self) -> int:
        """How long after the end of a window late records are taken."""
        ...


W = TypeVar("W", bound=WithGrace)


class FinalResult(NamedTuple):
    """The aggregate of a window that is closed."""

    key: Windowed[Any]
    value: Any
    timestamp: int


class WindowedOperator(Operator, Generic[W]):
    """A windowed aggregation.

    Args:
        store: the name of the store with the windows.
        windows: which windows there are.
        initializer: gives the aggregate that a window starts from.
        aggregator: (key, value, aggregate) → the next aggregate; None deletes it.
        emit_final: whether only final results are sent, when their windows are closed.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    #: Whether a record needs a value to be aggregated.
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
        #: Whether the record now aggregated is one after which closed windows are looked for.
        self._looks_for_closed = True
        self._table: Any
        self._cache: Any
        self._interval_ms = 0
        self._next_emit_ms = 0
        self._emitted_until = UNKNOWN

    @property
    def holds_back_in(self) -> str | None:
        return self._store

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._table = context.store(self._store)
        self._cache = self._table.cache
        if self._emit_final:
            self._interval_ms = emit_interval_ms(context.config, WINDOW_CLOSE_INTERVAL)
            self._emitted_until = context.task.remembered.get(self._store, UNKNOWN)
            self._measure(context.metrics)
        elif self._cache is not None:
            self._cache.forwards_changes = True
            self._cache.sends_old_values = self._send_old_values

    def _measure(self, metrics: Scope) -> None:
        what, level = "window-aggregate-final-emit", RecordingLevel.DEBUG
        self._emitted = metrics.rate_and_total(NODE_GROUP, what, level)
        self._emit_took = metrics.average_and_highest(NODE_GROUP, f"{what}-latency", level)

    # ---- what the kinds of windows differ in

    def update(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        """Aggregate records, none of which lacks a key.

        Emits the changes, unless there is a cache or they are not wanted.
        """
        raise NotImplementedError

    def final_results(self, close_time: int) -> Sequence[FinalResult] | None:
        """The results of the windows closed since the last time; None if none can be yet.

        Args:
            close_time: windows that end before, or then, are closed.
        """
        raise NotImplementedError

    def close_time(self) -> int:
        """Stream time less what late records are given."""
        return self._stream_time - self._grace_ms

    def flushed(self, changes: FlushedChanges) -> FlushedChanges:
        """What the cache gives up, as it goes downstream."""
        return changes

    # ---- the common way

    def process(self, batch: Batch, output: Output) -> None:
        usable = complete if self.needs_value else with_keys
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
        """User code failed on a record: leave the rest of it out, or raise."""
        self._looks_for_closed = False
        self.context.failed(batch, index, error)

    def dropped(self, records: int, windows: int) -> None:
        """Records were too late for some of their windows.

        Follows Kafka Streams: the metric counts each of these windows.
        """
        if records:
            why = "they come after the grace period of the window"
            self.context.dropped(records, why, windows)

    def _update_and_close(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        """Aggregate; after each record look for closed windows, unless it was done just before."""
        for index in range(len(batch)):
            now_ms = self.context.clock.now_ms()
            if now_ms < self._next_emit_ms:
                rest = batch if index == 0 else batch.take(range(index, len(batch)))
                self.update(rest, key_bytes[index:], output)
                return
            record = batch if len(batch) == 1 else batch.take((index,))
            self._looks_for_closed = True
            self.update(record, key_bytes[index : index + 1], output)
            if self._looks_for_closed:
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
        self.context.task.remembered[self._store] = close_time
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
                None if order is None else [(*order[0], place) for place in range(size)],
                None if headers is None else headers * size,
                [None] * size if self._send_old_values else None,
            )
        )

    def _forward(self, changes: FlushedChanges | None, after: Order) -> None:
        if changes is not None:
            emit_flushed(self.flushed(changes), self.context.output, after)

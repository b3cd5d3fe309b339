"""Aggregations over sessions (Kafka Streams' KStreamSessionWindowAggregate).

A record opens a session of its own, from its time to its time. Whatever sessions of its key are at
most the gap away are merged into that: their aggregates are merged, in the order of their ends,
onto a fresh one, and they are removed, each with a deletion downstream. Then the record itself is
added. Sessions are kept without timestamps: the end of a session is its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from millstream.operators.aggregates import session_loop
from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.operators.aggregates.fold import updates_of
from millstream.operators.aggregates.session_loop import SessionMerger
from millstream.operators.aggregates.windowed import FinalResult, WindowedOperator
from millstream.operators.batch import Batch
from millstream.operators.operator import Output
from millstream.operators.results import Results
from millstream.record import Headers, TopicPartition
from millstream.state.caches.cache_entries import FlushedChanges
from millstream.state.windows.session_table import SessionTable, SessionValue
from millstream.windowed import windowed

#: What a change is caused by: timestamp, place, offset and headers of a record.
_Caused = tuple[int, TopicPartition | None, int, Headers]


class WindowsOfActivity(Protocol):
    """Sessions."""

    @property
    def inactivity_gap_ms(self) -> int: ...

    @property
    def grace_ms(self) -> int: ...


class SessionAggregateOperator(WindowedOperator[WindowsOfActivity]):
    """Folds the values of each key in each session into one.

    Args:
        store: the name of the store with the sessions.
        windows: what separates sessions.
        initializer: gives the aggregate that a session starts from.
        aggregator: (key, value, aggregate) → the next aggregate; None deletes it.
        merger: (key, one aggregate, another) → the aggregate of both.
        emit_final: whether only final results are sent, when their sessions are closed.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self,
        store: str,
        windows: WindowsOfActivity,
        initializer: Initializer,
        aggregator: Aggregator,
        merger: SessionMerger,
        *,
        emit_final: bool = False,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(
            store,
            windows,
            initializer,
            aggregator,
            emit_final=emit_final,
            send_old_values=send_old_values,
        )
        self._gap = windows.inactivity_gap_ms
        self._closed_after_ms = windows.grace_ms + windows.inactivity_gap_ms
        self._merger = merger
        self._table: SessionTable

    def close_time(self) -> int:
        """Stream time less what late records are given: the gap as well."""
        return self._stream_time - self._closed_after_ms

    def update(self, batch: Batch, key_bytes: Sequence[bytes], output: Output) -> None:
        changes = Results(batch, with_old_values=self._send_old_values)
        # `runtime/whereabouts.py` reads off these what the user's functions are called for.
        updates = updates_of(batch, list(key_bytes))

        def take_one(index: int, *caused: Any) -> bool:
            """Whether it is late."""
            self._stream_time = caused[-1]
            try:
                return not self._add(batch, index, key_bytes[index], caused[:-1], changes)
            except Exception as error:
                self.failed(batch, index, error)
                return False

        cache = self._table.cache
        if cache is None or not (cache.forwards_changes and self._table.immutable):
            self._stream_time, late = session_loop.take_each(updates, self._stream_time, take_one)
        else:
            below = cache.observed_time, cache.new_entry_bytes
            self._stream_time, late = session_loop.fold_sessions(
                cache,
                *cache.parts(),
                updates,
                (self._gap, self._closed_after_ms, self._stream_time, *below),
                self._initializer,
                self._aggregator,
                self._merger,
                partial(self.failed, batch),
                take_one,
            )
        self.dropped(late, late)
        if self._cache is None and not self._emit_final:
            changes.emit(output, keeps_headers=False)

    def final_results(self, close_time: int) -> Sequence[FinalResult] | None:
        last = close_time - 1
        if last < 0:
            return None
        first = max(0, self._emitted_until)
        return [
            FinalResult(key, value, key.window.end_ms)
            for key, value in self._table.find_ended(first, last)
        ]

    def flushed(self, changes: FlushedChanges) -> FlushedChanges:
        """A session's time is its end, whichever record has changed it."""
        return replace(changes, timestamps=[key[1][1] for key in changes.keys])

    def _add(
        self, batch: Batch, index: int, key_bytes: bytes, caused: _Caused, changes: Results
    ) -> bool:
        """Put one record into its session; False if that is closed."""
        table, key, time = self._table, batch.keys[index], caused[0]
        aggregate = self._initializer()
        found = table.find(key_bytes, time - self._gap, time + self._gap)
        start = end = time
        replaced: list[Any] = []
        for session_start, session_end, value in found:
            if self._send_old_values and self._cache is None:
                replaced.append(table.own(value))
            aggregate = self._merger(key, aggregate, value)
            start = min(start, session_start)
            end = max(end, session_end)
        if end < self._stream_time - self._closed_after_ms:
            return False
        collects = self._cache is None and not self._emit_final
        if found and (start != end or start != time):
            if collects:
                self._collect_removed(changes, index, found, replaced)
            for session_start, session_end, _ in found[:-1]:
                table.remove(key_bytes, session_start, session_end, *caused)
            last_start, last_end, _ = found[-1]
            try:
                aggregate = self._aggregator(key, batch.values[index], aggregate)
            except Exception:
                # Follows Kafka Streams: what was to be merged is gone by now.
                table.remove(key_bytes, last_start, last_end, *caused)
                raise
            table.replace(key_bytes, (last_start, last_end), start, end, aggregate, *caused)
        else:
            aggregate = self._aggregator(key, batch.values[index], aggregate)
            table.put(key_bytes, start, end, aggregate, *caused, is_new=not found)
        if collects:
            changes.add(index, windowed(key, start, end), aggregate, end)
        return True

    @staticmethod
    def _collect_removed(
        changes: Results, index: int, found: list[SessionValue], replaced: list[Any]
    ) -> None:
        """Note that sessions of a record's key are no more."""
        key = changes.batch.keys[index]
        for number, (start, end, _) in enumerate(found):
            old = replaced[number] if replaced else None
            changes.add(index, windowed(key, start, end), None, end, old)

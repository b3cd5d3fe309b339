"""Aggregations of streams by key (Kafka Streams' `KStreamAggregate`).

The operations are count, reduce and aggregate. Each operator looks up the aggregate of a record's
key, computes the next one, and forwards the change. With a record cache, the latest change of each
key is emitted when the cache is flushed. Without one, every change is emitted and logged. The
timestamp of an aggregate is the highest timestamp of its records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.operators.aggregates.cached_loops import Aggregator, Initializer, count_entries
from millstream.operators.aggregates.fold import (
    Fold,
    ReducerAggregator,
    increment,
    no_aggregate,
    updates_of,
)
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch
from millstream.operators.record_filters import with_key_bytes, with_keys_and_values
from millstream.operators.result_records import StoredVersions, emit_flushed
from millstream.state.caches.record_cache import RecordCache
from millstream.state.versioned.versioned_table import VersionedTable


class StreamAggregateOperator(Operator):
    """Folds the values of each key into one aggregate."""

    def __init__(
        self,
        store: str,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        send_old_values: bool = False,
    ) -> None:
        self._store = store
        self._initializer = initializer
        self._aggregator = aggregator
        self._send_old_values = send_old_values
        self._table: Any
        self._cache: RecordCache | None
        self._fold: Fold

    @property
    def cached_store(self) -> str | None:
        return self._store

    @property
    def only_updates_cache(self) -> bool:
        return self._cache is not None

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._table = context.store(self._store)
        self._cache = self._table.cache
        self._fold = Fold(
            self._table,
            self._initializer,
            self._aggregator,
            isolate_failures=context.may_continue,
            send_old_values=self._send_old_values,
        )
        if self._cache is not None:
            self._cache.forwards_changes = True
            self._cache.sends_old_values = self._send_old_values

    def process(self, batch: Batch, output: Output) -> None:
        key_bytes, batch = with_key_bytes(self.usable(batch), self._table, self.context)
        if not key_bytes:
            return
        if isinstance(self._table, VersionedTable):
            self._update_versions(self._table, batch, key_bytes, output)
        elif self._cache is None:
            self._update_table(batch, key_bytes, output)
        else:
            self.update_cache(self._cache, batch, key_bytes)
            after = batch.order[-1] if batch.order else ()
            emit_flushed(self._cache.evict(), self.context.output, after)

    def flush(self) -> None:
        if self._cache is not None:
            emit_flushed(self._cache.flush(), self.context.output)

    # ---- overridden by subclasses

    def usable(self, batch: Batch) -> Batch:
        return with_keys_and_values(batch, self.context)

    def update_cache(self, cache: RecordCache, batch: Batch, key_bytes: list[bytes]) -> None:
        self._fold.into_cache(cache, batch, key_bytes, None, partial(self.context.failed, batch))

    # ---- common to all aggregations

    def _update_table(self, batch: Batch, key_bytes: list[bytes], output: Output) -> None:
        folded = self._fold.into_table(batch, key_bytes, None, partial(self.context.failed, batch))
        if not folded.positions:
            return
        done = batch if len(folded.positions) == len(batch) else batch.take(folded.positions)
        order = None if done.order is None else [(*position, 0) for position in done.order]
        output.emit(
            Batch(
                done.keys,
                folded.values,
                folded.timestamps,
                done.rows,
                done.origin,
                order,
                done.headers,
                folded.old_values,
            )
        )

    def _update_versions(
        self, table: VersionedTable, batch: Batch, key_bytes: list[bytes], output: Output
    ) -> None:
        """Log and forward every update that the versioned store accepts."""
        changes = StoredVersions(batch)
        for index, key in enumerate(key_bytes):
            timestamp = batch.timestamps[index]
            try:
                found = table.get(key)
                old = self._initializer() if found is None else found[0]
                replaced = table.private_copy(old) if self._send_old_values else None
                new = self._aggregator(batch.keys[index], batch.values[index], old)
                if found is not None and found[1] > timestamp:
                    timestamp = found[1]
                changes.add(index, new, replaced, timestamp, table.put(key, new, timestamp))
            except Exception as error:
                self.context.failed(batch, index, error)
        changes.emit(output, self._send_old_values)


class StreamCountOperator(StreamAggregateOperator):
    """Counts the records of each key."""

    def __init__(self, store: str, *, send_old_values: bool = False) -> None:
        super().__init__(store, int, increment, send_old_values=send_old_values)

    def update_cache(self, cache: RecordCache, batch: Batch, key_bytes: list[bytes]) -> None:
        count_entries(cache, updates_of(batch, key_bytes))


class StreamReduceOperator(StreamAggregateOperator):
    """Combines the values of each key with a function of two values.

    The reducer may return None to delete the result.
    """

    def __init__(
        self, store: str, reducer: Callable[[Any, Any], Any], *, send_old_values: bool = False
    ) -> None:
        super().__init__(
            store, no_aggregate, ReducerAggregator(reducer), send_old_values=send_old_values
        )


class TableToStreamOperator(Operator):
    """Emits a table's changes as a stream of new values, with null for deletions."""

    def process(self, batch: Batch, output: Output) -> None:
        output.emit(batch if batch.old_values is None else batch.with_values(batch.values))

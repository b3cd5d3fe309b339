"""Aggregations of a stream by key: count, reduce, aggregate (Kafka Streams' KStreamAggregate).

Each takes a record's key to its aggregate, computes the next one, and forwards the change. With a
record cache, changes go downstream when the cache is flushed, the last one for each key; without,
every one does, and is logged. The aggregate's time is the highest of its records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.operators.aggregates.cached_loops import Aggregator, Initializer, count_entries
from millstream.operators.aggregates.fold import Fold, Reduced, count_one, nothing, updates_of
from millstream.operators.batch import Batch, Order
from millstream.operators.flushed import emit_flushed
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.tables.stored_versions import StoredVersions
from millstream.operators.usable import complete, with_key_bytes
from millstream.state.caches.cache_entries import FlushedChanges
from millstream.state.caches.record_cache import RecordCache
from millstream.state.versioned.table import VersionedTable


class StreamAggregateOperator(Operator):
    """Folds the values of each key into one.

    Args:
        store: the name of the store with the aggregates.
        initializer: gives the aggregate that a key starts from.
        aggregator: (key, value, aggregate) → the next aggregate; None deletes it.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

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
    def holds_back_in(self) -> str | None:
        return self._store

    @property
    def only_fills_cache(self) -> bool:
        return self._cache is not None

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._table = context.store(self._store)
        self._cache = self._table.cache
        self._fold = Fold(
            self._table,
            self._initializer,
            self._aggregator,
            guarded=context.may_continue,
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
            self._forward(self._cache.evict(), batch.order[-1] if batch.order else ())

    def flush(self) -> None:
        if self._cache is not None:
            self._forward(self._cache.flush(), ())

    # ---- what the kinds of aggregations differ in

    def usable(self, batch: Batch) -> Batch:
        """The records that can be aggregated."""
        return complete(batch, self.context)

    def update_cache(self, cache: RecordCache, batch: Batch, key_bytes: list[bytes]) -> None:
        """Change the aggregates of a batch in the cache."""
        self._fold.into_cache(cache, batch, key_bytes, None, partial(self.context.failed, batch))

    # ---- the common way

    def _update_table(self, batch: Batch, key_bytes: list[bytes], output: Output) -> None:
        folded = self._fold.into_table(batch, key_bytes, None, partial(self.context.failed, batch))
        if not folded.positions:
            return
        done = batch if len(folded.positions) == len(batch) else batch.take(folded.positions)
        order = None if done.order is None else [(*place, 0) for place in done.order]
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
        """Every update that the store does not refuse as too old is logged and forwarded."""
        changes = StoredVersions(batch)
        for index, key in enumerate(key_bytes):
            timestamp = batch.timestamps[index]
            try:
                found = table.get(key)
                old = self._initializer() if found is None else found[0]
                replaced = table.own(old) if self._send_old_values else None
                new = self._aggregator(batch.keys[index], batch.values[index], old)
                if found is not None and found[1] > timestamp:
                    timestamp = found[1]
                changes.add(index, new, replaced, timestamp, table.put(key, new, timestamp))
            except Exception as error:
                self.context.failed(batch, index, error)
        changes.emit(output, self._send_old_values)

    def _forward(self, changes: FlushedChanges | None, after: Order) -> None:
        emit_flushed(changes, self.context.output, after)


class StreamCountOperator(StreamAggregateOperator):
    """Counts the records of each key.

    Args:
        store: the name of the store with the counts.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(self, store: str, *, send_old_values: bool = False) -> None:
        super().__init__(store, int, count_one, send_old_values=send_old_values)

    def update_cache(self, cache: RecordCache, batch: Batch, key_bytes: list[bytes]) -> None:
        """Count the records of a batch in the cache."""
        count_entries(cache, updates_of(batch, key_bytes))


class StreamReduceOperator(StreamAggregateOperator):
    """Combines the values of each key by a function of two of them.

    Args:
        store: the name of the store with the results.
        reducer: (result so far, value) → the next result; None deletes it.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self, store: str, reducer: Callable[[Any, Any], Any], *, send_old_values: bool = False
    ) -> None:
        super().__init__(store, nothing, Reduced(reducer), send_old_values=send_old_values)


class TableToStreamOperator(Operator):
    """A table's changes as a stream: the new values, null for deletions."""

    def process(self, batch: Batch, output: Output) -> None:
        output.emit(batch if batch.old_values is None else batch.with_values(batch.values))

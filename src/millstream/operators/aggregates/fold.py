"""The loops of aggregations by key and by time-aligned window.

Each change comes with the *stored key* of its aggregate: the serialized key of the record, followed
by the window in a windowed aggregation. With a record cache, aggregates are changed in the cache
and emitted when the cache is flushed. Without one, each change is written and logged.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from millstream.operators.aggregates.cached_loops import (
    AggregateUpdates,
    Aggregator,
    FailureCallback,
    Initializer,
    compiled_fold_entries,
    pure_fold_entries,
)
from millstream.operators.record_batch import Batch
from millstream.state.caches.record_cache import RecordCache
from millstream.state.keyvalue.key_value_table import TimestampedTable
from millstream.state.windows.window_table import WindowTable


class FoldedChanges(NamedTuple):
    """The changes of a batch without a record cache, as parallel lists."""

    #: The index of each change in the list of stored keys.
    positions: list[int]
    values: list[Any]
    timestamps: list[int]
    old_values: list[Any] | None


class Fold:
    """Folds the values under each stored key into one aggregate.

    The timestamp of an aggregate is the highest timestamp of its records.

    Args:
        isolate_failures: whether failing records may be dropped. Dropped records must leave no
            traces: neither changes that the aggregator made before it failed, nor a value that a
            flush cannot serialize.
    """

    def __init__(
        self,
        table: TimestampedTable | WindowTable,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        isolate_failures: bool,
        send_old_values: bool,
    ) -> None:
        self._table = table
        self._own = None if table.immutable else table.private_copy
        self._initializer = initializer
        self._aggregator = aggregator
        self._cached_initializer, self._cached_aggregator = initializer, aggregator
        if isolate_failures:
            isolated = _IsolatedFunctions(table, initializer, aggregator)
            self._cached_initializer = isolated.initial
            self._cached_aggregator = isolated.step
        self._send_old_values = send_old_values

    def into_cache(
        self,
        cache: RecordCache,
        batch: Batch,
        stored_keys: list[bytes],
        indices: list[int] | None,
        failed: FailureCallback,
    ) -> None:
        """Change aggregates in the cache. `indices` is as in `AggregateUpdates`."""
        # `runtime/stack_inspection.py` reads the local variable `updates`.
        updates = updates_of(batch, stored_keys, indices)
        initializer, aggregator = self._cached_initializer, self._cached_aggregator
        is_compiled = cache.implementation.is_compiled
        fold_entries = compiled_fold_entries if is_compiled else pure_fold_entries
        fold_entries(cache, updates, initializer, aggregator, self._own, failed)

    def into_table(
        self,
        batch: Batch,
        stored_keys: list[bytes],
        indices: list[int] | None,
        failed: FailureCallback,
    ) -> FoldedChanges:
        """Write and log every change, with one read call and one write call."""
        table, initial, step = self._table, self._initializer, self._aggregator
        distinct = list(dict.fromkeys(stored_keys))
        current = dict(zip(distinct, table.read_encoded_many(distinct), strict=True))
        # Follows Kafka Streams: in an expired window, each change starts with a new aggregate.
        unreadable = table.expired_keys(distinct)
        folded = FoldedChanges([], [], [], [] if self._send_old_values else None)
        positions, values, timestamps, old_values = folded
        written: list[bytes] = []
        encoded: list[bytes | None] = []
        logged: list[int] = []
        left_out = -1
        keys, records, times = batch.keys, batch.values, batch.timestamps
        every = range(len(batch)) if indices is None else indices
        for position, (stored_key, index) in enumerate(zip(stored_keys, every, strict=True)):
            if index == left_out:
                continue
            found = current[stored_key]
            try:
                # Decode for each update: the aggregator may modify the aggregate in place, and must
                # not modify an aggregate that was already emitted.
                before = initial() if found is None else table.decode(found[0])
                # Follows Kafka Streams: the first aggregate replaces the initial one.
                old = None if old_values is None else table.private_copy(before)
                value = step(keys[index], records[index], before)
                data = table.encode(value)
            except Exception as error:
                failed(index, error)
                left_out = index
                continue
            caused = times[index]
            time = caused if found is None or caused > found[1] else found[1]
            if stored_key not in unreadable:
                current[stored_key] = None if data is None else (data, time)
            written.append(stored_key)
            encoded.append(data)
            # Follows Kafka Streams: a deletion is forwarded with the timestamp of the aggregate,
            # but logged with that of the record.
            logged.append(caused if data is None else time)
            positions.append(position)
            values.append(value)
            timestamps.append(time)
            if old_values is not None:
                old_values.append(old)
        table.write_encoded_many(written, encoded, logged)
        return folded


class _IsolatedFunctions:
    """The user's functions, called with copies so that failures leave no traces."""

    def __init__(
        self,
        table: TimestampedTable | WindowTable,
        initializer: Initializer,
        aggregator: Aggregator,
    ) -> None:
        self._table = table
        self._initializer = initializer
        self._aggregator = aggregator
        self._is_new = False

    def initial(self) -> Any:
        """Return the initial aggregate.

        It is not shared yet, so the next step may modify it.
        """
        made = self._initializer()
        self._is_new = True
        return made

    def step(self, key: Any, value: Any, aggregate: Any) -> Any:
        """Return the next aggregate, after checking that it can be serialized."""
        before = aggregate if self._is_new else self._table.private_copy(aggregate)
        self._is_new = False
        after = self._aggregator(key, value, before)
        self._table.encode(after)
        return after


class ReducerAggregator:
    """An aggregator that calls a reducer.

    The first value of a key is its first aggregate.
    """

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._reducer(aggregate, value)

    def merge(self, key: Any, one: Any, other: Any) -> Any:
        return other if one is None else self._reducer(one, other)


def updates_of(
    batch: Batch, stored_keys: list[bytes], indices: list[int] | None = None
) -> AggregateUpdates:
    """Return the changes that the records of a batch make to cached aggregates."""
    places, offsets = batch.input_positions()
    return AggregateUpdates(
        stored_keys,
        indices,
        batch.keys,
        batch.values,
        batch.timestamps,
        places,
        offsets,
        batch.all_headers(),
        array("q", [-1]),
    )


def increment(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + 1


def no_aggregate() -> None:
    return

"""The loops of all aggregations by key or by window: values folded into stored aggregates.

Each record of a batch comes with the *stored key* of its aggregate: its serialized key, with a
window behind it where there are windows. With a record cache, aggregates change in the cache, and
go downstream when that is flushed; without one, each change is written and logged.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any, NamedTuple

from millstream.operators.aggregates.cached_loops import (
    Aggregator,
    Failed,
    Initializer,
    Updates,
    fold_entries,
)
from millstream.operators.batch import Batch
from millstream.state.caches.record_cache import RecordCache
from millstream.state.keyvalue.table import TimestampedTable
from millstream.state.windows.window_table import WindowTable


class Folded(NamedTuple):
    """The changes of a batch without a record cache: parallel lists.

    Args:
        positions: of the records that made them.
        values: the new aggregates.
        timestamps: of the new aggregates.
        old_values: what they replace; None if nobody wants to know.
    """

    positions: list[int]
    values: list[Any]
    timestamps: list[int]
    old_values: list[Any] | None


class Fold:
    """How the values under one stored key become one.

    An aggregate's time is the highest of its records.

    Args:
        table: holds the aggregates.
        initializer: gives what an aggregate starts from.
        aggregator: gives the next aggregate.
        guarded: whether a record that fails may be left out. It must leave no traces then: neither
            what the aggregator changed before it failed, nor a value that no flush can serialize.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self,
        table: TimestampedTable | WindowTable,
        initializer: Initializer,
        aggregator: Aggregator,
        *,
        guarded: bool,
        send_old_values: bool,
    ) -> None:
        self._table = table
        self._own = None if table.immutable else table.own
        self._initializer = initializer
        self._aggregator = aggregator
        self._cached_initializer, self._cached_aggregator = initializer, aggregator
        if guarded:
            guarded_by = _Guarded(table, initializer, aggregator)
            self._cached_initializer = guarded_by.initial
            self._cached_aggregator = guarded_by.step
        self._send_old_values = send_old_values

    def into_cache(
        self,
        cache: RecordCache,
        batch: Batch,
        stored_keys: list[bytes],
        indices: list[int] | None,
        failed: Failed,
    ) -> None:
        """Change aggregates in the cache; see `into_table`."""
        # `runtime/whereabouts.py` reads off these what the user's functions are called for.
        updates = updates_of(batch, stored_keys, indices)
        initializer, aggregator = self._cached_initializer, self._cached_aggregator
        fold_entries(cache, updates, initializer, aggregator, self._own, failed)

    def into_table(
        self,
        batch: Batch,
        stored_keys: list[bytes],
        indices: list[int] | None,
        failed: Failed,
    ) -> Folded:
        """Write and log every change; reads and writes go in one call each.

        Args:
            batch: the records.
            stored_keys: of the aggregates, one for each change.
            indices: of each change the index of its record; None where each record makes one.
            failed: told the record that user code fails on: later windows are without it, too.
        """
        table, initial, step = self._table, self._initializer, self._aggregator
        distinct = list(dict.fromkeys(stored_keys))
        current = dict(zip(distinct, table.read_encoded_many(distinct), strict=True))
        # Follows Kafka Streams: each change of such a window starts anew.
        unreadable = table.unreadable(distinct)
        folded = Folded([], [], [], [] if self._send_old_values else None)
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
                # Decoded anew for each update: what an aggregator changes in place must not be
                # what was handed on before.
                before = initial() if found is None else table.decode(found[0])
                # Follows Kafka Streams: a first aggregate replaces what it starts from.
                old = None if old_values is None else table.own(before)
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
            # Follows Kafka Streams: a deletion is forwarded with the time of the aggregate, but
            # logged with that of the record which caused it.
            logged.append(caused if data is None else time)
            positions.append(position)
            values.append(value)
            timestamps.append(time)
            if old_values is not None:
                old_values.append(old)
        table.write_encoded_many(written, encoded, logged)
        return folded


class _Guarded:
    """The user's functions where a record that fails may be left out: without any traces.

    Args:
        table: holds the aggregates.
        initializer: gives what an aggregate starts from.
        aggregator: gives the next aggregate.
    """

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
        """What an aggregate starts from. It is nobody's yet, so the next step may change it."""
        made = self._initializer()
        self._is_new = True
        return made

    def step(self, key: Any, value: Any, aggregate: Any) -> Any:
        """The next aggregate, of which it is known that it can be serialized."""
        before = aggregate if self._is_new else self._table.own(aggregate)
        self._is_new = False
        after = self._aggregator(key, value, before)
        self._table.encode(after)
        return after


class Reduced:
    """A reducer as an aggregator: the first value is taken as it is.

    Args:
        reducer: (result so far, value) → the next result.
    """

    def __init__(self, reducer: Callable[[Any, Any], Any]) -> None:
        self._reducer = reducer

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else self._reducer(aggregate, value)

    def merge(self, key: Any, one: Any, other: Any) -> Any:
        """The result of two sessions that become one."""
        return other if one is None else self._reducer(one, other)


def updates_of(batch: Batch, stored_keys: list[bytes], indices: list[int] | None = None) -> Updates:
    """Which cached aggregates the records of a batch change.

    Args:
        batch: the records.
        stored_keys: of the aggregates, one for each change.
        indices: of each change the index of its record; None where each record makes one.
    """
    places, offsets = batch.read_at()
    return Updates(
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


def count_one(key: Any, value: Any, aggregate: int) -> int:
    """Counts a record."""
    return aggregate + 1


def nothing() -> None:
    """The aggregate that a reduction starts from."""
    return

"""Aggregations of a table by another key.

Corresponds to Kafka Streams' `KTableRepartitionMap` and other classes.

A changed row leaves its old group and enters its new one. The first node determines both groups and
sends the changes through a repartition topic. The second node subtracts the old value from the
group's aggregate and adds the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import StreamsError
from millstream.operators.aggregates.aggregate import StreamAggregateOperator
from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.operators.aggregates.fold import ReducerAggregator, increment, no_aggregate
from millstream.operators.operator import Operator, Output
from millstream.operators.record_batch import Batch, has_none
from millstream.operators.tables.table_change import Change


class TableSelectOperator(Operator):
    """Turns the changes of a table into changes of its groups.

    A row that stays in its group causes one change. A row that moves causes two: it leaves its old
    group, and then enters the new one. A row for which the selector returns None, or None as key or
    value, is in no group. Changes of a versioned table that are not the latest are dropped.

    `send_old_values` is unused, because no table node follows a grouping.
    """

    def __init__(
        self,
        selector: Callable[[Any, Any], tuple[Any, Any] | None],
        *,
        send_old_values: bool = False,
        versioned: bool = False,
    ) -> None:
        self._selector = selector
        self._versioned = versioned

    def process(self, batch: Batch, output: Output) -> None:
        latest = batch.is_latest
        if self._versioned and latest is not None:
            # Not counted as dropped: follows Kafka Streams.
            batch = batch.select(latest)
        replaced = batch.old_values or [None] * len(batch)
        counts: list[int] = []
        keys: list[Any] = []
        changes: list[Any] = []
        for index, key in enumerate(batch.keys):
            before = len(keys)
            try:
                if key is None:
                    raise StreamsError("A grouped table cannot have a row without a key.")
                self._add(key, batch.values[index], replaced[index], keys, changes)
            except Exception as error:
                self.context.failed(batch, index, error)
            counts.append(len(keys) - before)
        if keys:
            output.emit(batch.expand(counts, keys, changes))

    def _add(self, key: Any, new: Any, old: Any, keys: list[Any], changes: list[Any]) -> None:
        to_group = None if new is None else _checked_pair(self._selector(key, new))
        from_group = None if old is None else _checked_pair(self._selector(key, old))
        if from_group is not None and to_group is not None and from_group[0] == to_group[0]:
            keys.append(to_group[0])
            changes.append(Change(to_group[1], from_group[1]))
            return
        if from_group is not None:
            keys.append(from_group[0])
            changes.append(Change(None, from_group[1]))
        if to_group is not None:
            keys.append(to_group[0])
            changes.append(Change(to_group[1], None))


def _checked_pair(pair: Any) -> tuple[Any, Any] | None:
    """Validate a selector's result. Returns None if it has no key or no value."""
    if pair is None:
        return None
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(
            "The selector of a table's group_by must return a (key, value) tuple, or None for a "
            f"row that is in no group, but returned {type(pair).__name__}: {pair!r}."
        )
    return None if pair[0] is None or pair[1] is None else pair


class TableAggregateOperator(StreamAggregateOperator):
    """Folds the rows of each group into one value."""

    def __init__(
        self,
        store: str,
        initializer: Initializer,
        adder: Aggregator,
        subtractor: Aggregator,
        *,
        send_old_values: bool = False,
    ) -> None:
        aggregator = _GroupAggregator(initializer, adder, subtractor)
        super().__init__(store, no_aggregate, aggregator, send_old_values=send_old_values)

    def usable(self, batch: Batch) -> Batch:
        """Return the records with a key. A group without a key is an error."""
        if not has_none(batch.keys):
            return batch
        keep = [key is not None for key in batch.keys]
        for index, kept in enumerate(keep):
            if not kept:
                error = StreamsError("A group of a table must have a key.")
                self.context.failed(batch, index, error)
        return batch.select(keep)


class TableCountOperator(TableAggregateOperator):
    """Counts the rows of each group."""

    def __init__(self, store: str, *, send_old_values: bool = False) -> None:
        super().__init__(store, int, increment, _decrement, send_old_values=send_old_values)


class TableReduceOperator(TableAggregateOperator):
    """Combines the rows of each group with functions of two values."""

    def __init__(
        self,
        store: str,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        *,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(
            store,
            no_aggregate,
            ReducerAggregator(adder),
            ReducerAggregator(subtractor),
            send_old_values=send_old_values,
        )


class _GroupAggregator:
    """The aggregator of a group: subtracts a row's old value, then adds the new one."""

    def __init__(self, initializer: Initializer, adder: Aggregator, subtractor: Aggregator) -> None:
        self._initializer = initializer
        self._adder = adder
        self._subtractor = subtractor

    def __call__(self, group: Any, change: Change, aggregate: Any) -> Any:
        new, old = change
        if old is not None and aggregate is not None:
            aggregate = self._subtractor(group, old, aggregate)
        if new is None:
            return aggregate
        if aggregate is None:
            aggregate = self._initializer()
        return self._adder(group, new, aggregate)


def _decrement(key: Any, value: Any, count: int) -> int:
    return count - 1

"""Aggregations of a table by another key (Kafka Streams: `KTableRepartitionMap` and others).

A row that changes leaves its old group and enters its new one. The first node finds both groups
and sends what changes through a repartition topic; the second one takes the old value out of the
group's aggregate and puts the new one in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import StreamsError
from millstream.operators.aggregates.aggregate import StreamAggregateOperator
from millstream.operators.aggregates.cached_loops import Aggregator, Initializer
from millstream.operators.aggregates.fold import Reduced, count_one, nothing
from millstream.operators.batch import Batch, has_none
from millstream.operators.operator import Operator, Output
from millstream.operators.tables.changed import Change


class TableSelectOperator(Operator):
    """Turns the changes of a table into changes of its groups.

    A row that stays in its group is one change; one that moves leaves the old group first. A row
    for which the selector returns None, or None as key or value, is in no group. Changes of a
    versioned table that are not the newest are left out.

    Args:
        selector: (key, value) → (group, value in the group), or None.
        send_old_values: nothing comes after a grouping; accepted as every table node is asked.
        versioned: whether the table is versioned.
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
                    raise StreamsError("A table that is grouped cannot have a row without a key.")
                self._add(key, batch.values[index], replaced[index], keys, changes)
            except Exception as error:
                self.context.failed(batch, index, error)
            counts.append(len(keys) - before)
        if keys:
            output.emit(batch.expand(counts, keys, changes))

    def _add(self, key: Any, new: Any, old: Any, keys: list[Any], changes: list[Any]) -> None:
        """Add the changes that one change of the table makes."""
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
    """A selector's result; None if it is None, or has no key or no value."""
    if pair is None:
        return None
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise TypeError(
            "The selector of a table's group_by must return a (key, value) tuple, or None for a "
            f"row that is in no group, but returned {type(pair).__name__}: {pair!r}."
        )
    return None if pair[0] is None or pair[1] is None else pair


class TableAggregateOperator(StreamAggregateOperator):
    """Folds the rows of each group into one value.

    Args:
        store: the name of the store with the aggregates.
        initializer: gives the aggregate that a group starts from.
        adder: (group, value, aggregate) → the next aggregate; None deletes it.
        subtractor: (group, value, aggregate) → the aggregate without that value.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self,
        store: str,
        initializer: Initializer,
        adder: Aggregator,
        subtractor: Aggregator,
        *,
        send_old_values: bool = False,
    ) -> None:
        exchange = _Exchange(initializer, adder, subtractor)
        super().__init__(store, nothing, exchange, send_old_values=send_old_values)

    def usable(self, batch: Batch) -> Batch:
        """All of them: a group without a key is an error."""
        if not has_none(batch.keys):
            return batch
        keep = [key is not None for key in batch.keys]
        for index, kept in enumerate(keep):
            if not kept:
                error = StreamsError("A group of a table cannot be without a key.")
                self.context.failed(batch, index, error)
        return batch.select(keep)


class TableCountOperator(TableAggregateOperator):
    """Counts the rows of each group.

    Args:
        store: the name of the store with the counts.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(self, store: str, *, send_old_values: bool = False) -> None:
        super().__init__(store, int, count_one, _one_less, send_old_values=send_old_values)


class TableReduceOperator(TableAggregateOperator):
    """Combines the rows of each group by functions of two values.

    Args:
        store: the name of the store with the results.
        adder: (result so far, value) → the next result; None deletes it.
        subtractor: (result so far, value) → the result without that value.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self,
        store: str,
        adder: Callable[[Any, Any], Any],
        subtractor: Callable[[Any, Any], Any],
        *,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(
            store, nothing, Reduced(adder), Reduced(subtractor), send_old_values=send_old_values
        )


class _Exchange:
    """The next aggregate of a group: without the old value of a row, then with the new one."""

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


def _one_less(key: Any, value: Any, count: int) -> int:
    return count - 1

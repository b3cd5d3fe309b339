"""Joins of two tables by their keys (Kafka Streams: `KTableKTableInnerJoin` and its kin).

A change of either table is joined with the current value of its key in the other one. Two nodes do
that, one for each table; a third brings their results together and may keep them in a store.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from millstream.operators.batch import Batch
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.tables.table_store import TableOperator
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.operators.usable import newest_changes, with_keys
from millstream.state.keyvalue.table import TimedValue

#: What a side does without a partner. `inner`: nothing. `left`: the table whose values are kept
#: anyway. `right`: the other table of a left join. `outer`: either table of an outer join.
Side = Literal["inner", "left", "right", "outer"]


class TableJoinOperator(Operator):
    """Joins the changes of one table with the current values of another one.

    The result has the later one of the two times. A change without a key is dropped, and so is one
    of a versioned table that is not the newest.

    Args:
        other: reads the other table.
        joiner: (own value, other value) → value.
        side: what to do without a partner.
        send_old_values: whether somebody downstream must know what a change replaces.
        versioned: whether the own table is versioned.
    """

    def __init__(
        self,
        other: GetterSupplier,
        joiner: Callable[[Any, Any], Any],
        side: Side,
        *,
        send_old_values: bool = False,
        versioned: bool = False,
    ) -> None:
        self._other = other
        self._joiner = joiner
        self._needs_other = side in ("inner", "right")
        # With a partner there is always a result, even of a deletion.
        self._joins_deletions = side in ("right", "outer")
        self._send_old_values = send_old_values
        self._versioned = versioned
        self._getter: ValueGetter

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._getter = self._other.make(context)

    def process(self, batch: Batch, output: Output) -> None:
        batch = with_keys(batch, self.context)
        if self._versioned:
            batch = newest_changes(batch, self.context)
        kept: list[int] = []
        values: list[Any] = []
        old_values: list[Any] = []
        timestamps: list[int] = []
        replaced = batch.old_values or [None] * len(batch)
        rows = self._getter.read_ahead(batch.keys)
        for index, key in enumerate(batch.keys):
            try:
                found = self._getter.get(key) if rows is None else rows[index]
                joined = self._join(found, batch.values[index], replaced[index])
            except Exception as error:
                self.context.failed(batch, index, error)
                continue
            if joined is None:
                continue
            value, old_value, other_time = joined
            kept.append(index)
            values.append(value)
            old_values.append(old_value)
            timestamps.append(max(batch.timestamps[index], other_time))
        if kept:
            done = batch if len(kept) == len(batch) else batch.take(kept)
            old = old_values if self._send_old_values else None
            output.emit(done.with_changes(values, old, timestamps))

    def close(self) -> None:
        self._getter.close()

    def _join(
        self, found: TimedValue | None, value: Any, replaced: Any
    ) -> tuple[Any, Any, int] | None:
        """The new value, the old one, and the time of the partner; None for no result at all."""
        joiner = self._joiner
        if found is None:
            if self._needs_other or (value is None and replaced is None):
                return None
            new = None if value is None else joiner(value, None)
            old = None
            if self._send_old_values and replaced is not None:
                old = joiner(replaced, None)
            return new, old, -1
        other, other_time = found
        always = self._joins_deletions
        new = joiner(value, other) if always or value is not None else None
        old = None
        if self._send_old_values and (always or replaced is not None):
            old = joiner(replaced, other)
        return new, old, other_time


class TableJoinMergeOperator(TableOperator):
    """Brings the results of both sides of a join together.

    Args:
        store: the name of the store with the results; None for none.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(self, store: str | None, *, send_old_values: bool = False) -> None:
        super().__init__(store, send_old_values=send_old_values, knows_old_values=True)

    def process(self, batch: Batch, output: Output) -> None:
        self.hand_on(batch, output)

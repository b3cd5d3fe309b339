"""Joins of two tables by their keys.

Corresponds to Kafka Streams' `KTableKTableInnerJoin` and similar classes.

A change of either table is joined with the current value of its key in the other table. Each table
has a node, and a third node, which may have a store, merges their results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch
from millstream.operators.record_filters import latest_changes, with_keys
from millstream.operators.tables.table_store import TableOperator
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.state.keyvalue.key_value_table import TimedValue

#: The role of a table in a join. `inner`: either table of an inner join. `left`: the table of a
#: left join whose rows have a result even without a partner. `right`: the other table of a left
#: join. `outer`: either table of an outer join.
Side = Literal["inner", "left", "right", "outer"]


class TableJoinOperator(Operator):
    """Joins the changes of one table with the current values of another table.

    The result has the later of the two timestamps. Changes without a key are dropped, and so are
    changes of a versioned table that are not the latest.
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
        # Whether a deletion has a result if there is a partner.
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
            batch = latest_changes(batch, self.context)
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
        """Return the new value, the old value and the partner's time; None for no result."""
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
    """Merges the results of both sides of a join."""

    def __init__(self, store: str | None, *, send_old_values: bool = False) -> None:
        super().__init__(store, send_old_values=send_old_values, has_old_values=True)

    def process(self, batch: Batch, output: Output) -> None:
        self.store_and_forward(batch, output)

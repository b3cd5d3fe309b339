"""Operators from table to table, a change at a time: filter and map_values.

Each may keep its results in a store of its own. Without one, what a change replaces is computed
from what the change replaced in the table above (Kafka Streams: `KTableFilter`, `KTableMapValues`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.operators.batch import Batch
from millstream.operators.calls import call_each
from millstream.operators.operator import Output
from millstream.operators.tables.table_store import TableOperator
from millstream.unawaited import checked_effect


class _Derived(TableOperator):
    """A table computed from another one."""

    def compute(self, key: Any, value: Any) -> Any:
        """The value of this table for one of the table above."""
        raise NotImplementedError

    def _compute_both(self, key: Any, value: Any, old_value: Any) -> tuple[Any, Any]:
        return self.compute(key, value), self.compute(key, old_value)

    def process(self, batch: Batch, output: Output) -> None:
        if self._writer is not None:
            values, batch = call_each(self.compute, (batch.keys, batch.values), batch, self.context)
            if values:
                self._writer.write(batch.with_changes(values, None), output)
            return
        if not self._send_old_values:
            values, batch = call_each(self.compute, (batch.keys, batch.values), batch, self.context)
            output.emit(batch.with_changes(values, None))
            return
        replaced = batch.old_values or [None] * len(batch)
        pairs, batch = call_each(
            self._compute_both, (batch.keys, batch.values, replaced), batch, self.context
        )
        if self._skips_absent:
            keep = [new is not None or old is not None for new, old in pairs]
            if not all(keep):
                batch = batch.select(keep)
                pairs = [pair for pair, kept in zip(pairs, keep, strict=True) if kept]
        if pairs:
            values, old_values = map(list, zip(*pairs, strict=True))
            output.emit(batch.with_changes(values, old_values))


class TableFilterOperator(_Derived):
    """Keeps the rows for which the predicate holds; others are deletions.

    A deletion of a row that was not there is left out where that is known. Follows Kafka Streams:
    not below a versioned table, where an older change may come later.

    Args:
        predicate: (key, value) → whether the row stays; not asked for deletions.
        negate: whether it stays otherwise.
        store: the name of the store with the rows; None for none.
        send_old_values: whether somebody downstream must know what a change replaces.
        versioned: whether the table above is versioned.
    """

    def __init__(
        self,
        predicate: Callable[[Any, Any], Any],
        negate: bool,
        store: str | None,
        *,
        send_old_values: bool = False,
        versioned: bool = False,
    ) -> None:
        super().__init__(
            store,
            send_old_values=send_old_values,
            skips_absent=send_old_values and not versioned,
        )
        self._predicate = predicate
        self._negate = negate

    def compute(self, key: Any, value: Any) -> Any:
        if value is None:
            return None
        held = self._predicate(key, value)
        if not isinstance(held, bool):
            held = bool(checked_effect(held))
        return None if held is self._negate else value


class TableMapValuesOperator(_Derived):
    """Replaces each value by the mapper's result; None is a deletion.

    Args:
        mapper: value → value, or (key, value) → value; not asked for deletions.
        with_key: whether it wants to see the key.
        store: the name of the store with the results; None for none.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self,
        mapper: Callable[..., Any],
        with_key: bool,
        store: str | None,
        *,
        send_old_values: bool = False,
    ) -> None:
        super().__init__(store, send_old_values=send_old_values)
        self._mapper = mapper
        self._with_key = with_key

    def compute(self, key: Any, value: Any) -> Any:
        if value is None:
            return None
        return self._mapper(key, value) if self._with_key else self._mapper(value)

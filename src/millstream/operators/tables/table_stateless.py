"""Stateless table operators: filter and map_values.

Each operator may have a store for its results. Without a store, the old value of a change is
computed from the old value in the parent table (Kafka Streams' `KTableFilter`, `KTableMapValues`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.async_checks import checked_effect
from millstream.operators.operator import Output
from millstream.operators.record_batch import Batch
from millstream.operators.tables.table_store import TableOperator
from millstream.operators.user_calls import call_each


class _DerivedTableOperator(TableOperator):
    """An operator that computes a table from its parent table."""

    def compute(self, key: Any, value: Any) -> Any:
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


class TableFilterOperator(_DerivedTableOperator):
    """Keeps rows that satisfy the predicate; the others become deletions.

    If old values are sent, deletions of absent rows are skipped. As in Kafka Streams, this does not
    apply downstream of a versioned table, where an out-of-order change may follow.
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
            store, send_old_values=send_old_values, skips_absent=send_old_values and not versioned
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


class TableMapValuesOperator(_DerivedTableOperator):
    """Replaces each value with the mapper's result; None deletes the row."""

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

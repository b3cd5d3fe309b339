"""Joins of a stream with a table (Kafka Streams' `KStreamKTableJoinProcessor`).

Only records of the stream produce results. Each is joined with the current row of its key or, in a
versioned table, the row at its timestamp. With a grace period, records of the stream wait in a
buffer for late changes of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch, Order, has_none
from millstream.operators.record_filters import INCOMPLETE
from millstream.operators.result_records import ReleasedRecords
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.operators.user_calls import call_each
from millstream.state.buffers.buffer_value import BufferedContext
from millstream.state.buffers.grace_buffer import GraceBuffer
from millstream.state.keyvalue.key_value_table import TimedValue

#: Marks a failed lookup; compared by identity.
_FAILED: Final[Any] = object()


class _TableLookupJoin(Operator):
    """The base class of joins with tables of all types.

    The joiner is (value, row) → value or, if `with_key`, (key, value, row) → value. In a left join,
    records without a row are joined with None.
    """

    def __init__(
        self, table: GetterSupplier, joiner: Callable[..., Any], *, left: bool, with_key: bool
    ) -> None:
        self._table = table
        self._joiner = joiner
        self._left = left
        self._with_key = with_key
        self._getter: ValueGetter

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._getter = self._table.make(context)

    def close(self) -> None:
        self._getter.close()

    def _usable(self, batch: Batch, row_keys: list[Any]) -> tuple[Batch, list[Any]]:
        """Drop records without a value and, except in a left join, records without a key."""
        values = batch.values
        if not has_none(values) and (self._left or not has_none(row_keys)):
            return batch, row_keys
        keep = [
            value is not None and (self._left or key is not None)
            for key, value in zip(row_keys, values, strict=True)
        ]
        if not all(keep):
            self.context.dropped(len(keep) - sum(keep), INCOMPLETE)
            row_keys = [key for key, kept in zip(row_keys, keep, strict=True) if kept]
            batch = batch.select(keep)
        return batch, row_keys

    def _join(self, batch: Batch, row_keys: list[Any], output: Output) -> None:
        found = self._rows(batch, row_keys)
        if _FAILED in found:
            keep = [row is not _FAILED for row in found]
            batch = batch.select(keep)
            found = [row for row in found if row is not _FAILED]
        if not self._left and None in found:
            batch = batch.select(found)
            found = list(filter(None, found))
        if not found:
            return
        rows = [None if row is None else row[0] for row in found]
        columns: tuple[list[Any], ...] = (batch.values, rows)
        if self._with_key:
            columns = (batch.keys, *columns)
        values, batch = call_each(self._joiner, columns, batch, self.context)
        if values:
            output.emit(batch.with_values(values))

    def _rows(self, batch: Batch, row_keys: list[Any]) -> list[TimedValue | None]:
        """Return the row of each record.

        Records dropped after a failed lookup have the row `_FAILED`.
        """
        found = self._getter.read_ahead(row_keys)
        return self._rows_one_by_one(batch, row_keys) if found is None else found

    def _rows_one_by_one(self, batch: Batch, row_keys: list[Any]) -> list[TimedValue | None]:
        rows: list[Any] = []
        for index, key in enumerate(row_keys):
            try:
                rows.append(self._row(key, batch.timestamps[index]))
            except Exception as error:
                self.context.failed(batch, index, error)
                rows.append(_FAILED)
        return rows

    def _row(self, key: Any, timestamp: int) -> TimedValue | None:
        if key is None:
            return None
        getter = self._getter
        return getter.get_as_of(key, timestamp) if getter.is_versioned else getter.get(key)


class StreamGlobalJoinOperator(_TableLookupJoin):
    """Joins each record with a row of a global table.

    The selector returns the key of the row, or None for no row.
    """

    def __init__(
        self,
        table: GetterSupplier,
        joiner: Callable[..., Any],
        key_selector: Callable[[Any, Any], Any],
        *,
        left: bool,
        with_key: bool,
    ) -> None:
        super().__init__(table, joiner, left=left, with_key=with_key)
        self._key_selector = key_selector

    def process(self, batch: Batch, output: Output) -> None:
        row_keys, batch = call_each(
            self._key_selector, (batch.keys, batch.values), batch, self.context
        )
        batch, row_keys = self._usable(batch, row_keys)
        if row_keys:
            self._join(batch, row_keys, output)


class StreamTableJoinOperator(_TableLookupJoin):
    """Joins each record with the row of its key.

    With a grace period, records are buffered.
    """

    def __init__(
        self,
        table: GetterSupplier,
        joiner: Callable[..., Any],
        *,
        left: bool,
        with_key: bool,
        buffer: str | None = None,
    ) -> None:
        super().__init__(table, joiner, left=left, with_key=with_key)
        self._buffer_name = buffer
        self._buffer: GraceBuffer | None = None

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        if self._buffer_name is not None:
            self._buffer = context.store(self._buffer_name)

    def process(self, batch: Batch, output: Output) -> None:
        batch, keys = self._usable(batch, batch.keys)
        if not keys:
            return
        if self._buffer is None:
            self._join(batch, keys, output)
        else:
            self._buffer_and_join(self._buffer, batch, output)

    def _buffer_and_join(self, buffer: GraceBuffer, batch: Batch, output: Output) -> None:
        """Buffer the records, and join those that are due.

        Late records are joined immediately.
        """
        released = ReleasedRecords()
        for index, key in enumerate(batch.keys):
            after = None if batch.order is None else batch.order[index]
            value, row = batch.values[index], batch.rows[index]
            context = BufferedContext(
                batch.timestamps[index],
                batch.origin.offsets[row],
                batch.origin.place(row),
                batch.headers_of(index),
            )
            try:
                # A record without a key has no row.
                waits = key is not None and buffer.put(
                    key,
                    value,
                    timestamp=context.timestamp,
                    place=context.place,
                    offset=context.offset,
                    headers=context.headers,
                )
                if waits:
                    for record in buffer.evict():
                        self._join_one(*record, after, released)
                else:
                    self._join_one(key, value, context, after, released)
            except Exception as error:
                self.context.failed(batch, index, error)
        released.emit(output)

    def _join_one(
        self,
        key: Any,
        value: Any,
        context: BufferedContext,
        after: Order | None,
        released: ReleasedRecords,
    ) -> None:
        row = self._row(key, context.timestamp)
        if row is None and not self._left:
            return
        other = None if row is None else row[0]
        joined = self._joiner(key, value, other) if self._with_key else self._joiner(value, other)
        released.add(key, joined, context, after)

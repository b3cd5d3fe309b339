"""A table's values given by an object of the user's with state (`KTableTransformValues`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import OperatorContext, Output
from millstream.operators.process import RecordScope, close_user_code, initialized
from millstream.operators.tables.table_store import TableOperator
from millstream.operators.tables.value_getter import GetterSupplier, ValueGetter
from millstream.record import UNKNOWN
from millstream.state.keyvalue.table import TimedValue

#: What the user's object may define.
TRANSFORMER_METHODS: Final = ("init", "transform", "close")

#: A row that is read comes from no record: follows Kafka Streams.
_NOWHERE: Final = Origin(None, (UNKNOWN,))


class TableTransformValuesOperator(TableOperator):
    """Replaces each value by what the user's object gives; it is asked about deletions, too.

    Without a store it is also asked what a change replaces.

    Args:
        supplier: gives the object, which has `transform(key, value)`.
        store: the name of the store with the results; None for none.
        send_old_values: whether somebody downstream must know what a change replaces.
    """

    def __init__(
        self, supplier: Callable[[], Any], store: str | None, *, send_old_values: bool = False
    ) -> None:
        super().__init__(store, send_old_values=send_old_values)
        self._supplier = supplier
        self._scope: RecordScope
        self._transformer: Any = None
        self._transform: Callable[..., Any]

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._scope = RecordScope(context)
        initialized(self._supplier, TRANSFORMER_METHODS, self._scope, context, self._keep)
        self._transform = self.guard(self._transformer.transform)

    def process(self, batch: Batch, output: Output) -> None:
        scope, transform = self._scope, self._transform
        computes_old = self._send_old_values and self._writer is None
        replaced = batch.old_values or [None] * len(batch)
        kept: list[int] = []
        values: list[Any] = []
        old_values: list[Any] = []
        try:
            for index, key in enumerate(batch.keys):
                scope.enter(batch, index)
                try:
                    value = transform(key, batch.values[index])
                    old_value = transform(key, replaced[index]) if computes_old else None
                except Exception as error:
                    self.context.failed(batch, index, error)
                    continue
                kept.append(index)
                values.append(value)
                old_values.append(old_value)
        finally:
            scope.leave()
        if not kept:
            return
        done = batch if len(kept) == len(batch) else batch.take(kept)
        self.hand_on(done.with_changes(values, old_values if computes_old else None), output)

    def close(self) -> None:
        close_user_code(self._transformer)

    def _keep(self, transformer: Any) -> None:
        self._transformer = transformer


@dataclass(frozen=True)
class TransformedGetter:
    """Reads a table of transformed values that has no store, with an object of its own.

    Args:
        parent: reads the table that is transformed.
        supplier: gives the object.
    """

    parent: GetterSupplier
    supplier: Callable[[], Any]

    @property
    def stores(self) -> tuple[str, ...]:
        """Those of the transformed table."""
        return self.parent.stores

    def make(self, context: OperatorContext) -> ValueGetter:
        """The getter of one task."""
        return _Transformed(self.parent.make(context), self.supplier, context)


class _Transformed(ValueGetter):
    def __init__(
        self, parent: ValueGetter, supplier: Callable[[], Any], context: OperatorContext
    ) -> None:
        self.is_versioned = parent.is_versioned
        self._parent = parent
        self._context = context
        self._scope = RecordScope(context)
        self._transformer: Any = None
        initialized(supplier, TRANSFORMER_METHODS, self._scope, context, self._keep)

    def get(self, key: Any) -> TimedValue | None:
        return self._transformed(key, self._parent.get(key))

    def get_as_of(self, key: Any, timestamp_ms: int) -> TimedValue | None:
        return self._transformed(key, self._parent.get_as_of(key, timestamp_ms))

    def close(self) -> None:
        self._parent.close()
        close_user_code(self._transformer)

    def _transformed(self, key: Any, found: TimedValue | None) -> TimedValue | None:
        value, timestamp = (None, UNKNOWN) if found is None else found
        current = self._context.task.record
        before = current.timestamp, current.place, current.offset, current.headers
        self._scope.enter(Batch([key], [value], [timestamp], (0,), _NOWHERE), 0)
        try:
            transformed = self._transformer.transform(key, value)
        finally:
            self._scope.leave()
            current.timestamp, current.place, current.offset, current.headers = before
        return None if transformed is None else (transformed, timestamp)

    def _keep(self, transformer: Any) -> None:
        self._transformer = transformer

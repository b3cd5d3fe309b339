"""Transformation of a table's values by a stateful user object.

Corresponds to Kafka Streams' `KTableTransformValues`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from millstream.operators.operator import OperatorContext, Output
from millstream.operators.process import NodeProcessingContext, close_user_object, init_user_object
from millstream.operators.record_batch import Batch, Origin
from millstream.operators.tables.table_store import TableOperator
from millstream.operators.tables.value_getter import DerivedGetterSupplier, ValueGetter
from millstream.record import UNKNOWN
from millstream.state.keyvalue.key_value_table import TimedValue

#: The methods that the user's object may define.
TRANSFORMER_METHODS: Final = ("init", "transform", "close")

#: Follows Kafka Streams: a row that is read has no input record.
_NO_ORIGIN: Final = Origin(None, (UNKNOWN,))


class TableTransformValuesOperator(TableOperator):
    """Replaces each value with the result of the user's object.

    The object also receives deletions. Without a store, the object also transforms the replaced
    values.
    """

    def __init__(
        self, supplier: Callable[[], Any], store: str | None, *, send_old_values: bool = False
    ) -> None:
        super().__init__(store, send_old_values=send_old_values)
        self._supplier = supplier
        self._processor_context: NodeProcessingContext
        self._transformer: Any = None
        self._transform: Callable[..., Any]

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._processor_context = NodeProcessingContext(context)
        init_user_object(
            self._supplier,
            TRANSFORMER_METHODS,
            self._processor_context,
            context,
            self._set_transformer,
        )
        self._transform = self.make_interruptible(self._transformer.transform)

    def process(self, batch: Batch, output: Output) -> None:
        processor_context, transform = self._processor_context, self._transform
        computes_old = self._send_old_values and self._writer is None
        replaced = batch.old_values or [None] * len(batch)
        kept: list[int] = []
        values: list[Any] = []
        old_values: list[Any] = []
        try:
            for index, key in enumerate(batch.keys):
                processor_context.enter(batch, index)
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
            processor_context.leave()
        if not kept:
            return
        done = batch if len(kept) == len(batch) else batch.take(kept)
        self.store_and_forward(
            done.with_changes(values, old_values if computes_old else None), output
        )

    def close(self) -> None:
        close_user_object(self._transformer)

    def _set_transformer(self, transformer: Any) -> None:
        self._transformer = transformer


@dataclass(frozen=True)
class TransformedGetterSupplier(DerivedGetterSupplier):
    """Reads a table of transformed values that has no store.

    It has its own user object.
    """

    supplier: Callable[[], Any]

    def make(self, context: OperatorContext) -> ValueGetter:
        return _TransformedGetter(self.parent.make(context), self.supplier, context)


class _TransformedGetter(ValueGetter):
    def __init__(
        self, parent: ValueGetter, supplier: Callable[[], Any], context: OperatorContext
    ) -> None:
        self.is_versioned = parent.is_versioned
        self._parent = parent
        self._context = context
        self._processor_context = NodeProcessingContext(context)
        self._transformer: Any = None
        init_user_object(
            supplier, TRANSFORMER_METHODS, self._processor_context, context, self._set_transformer
        )

    def get(self, key: Any) -> TimedValue | None:
        return self._transformed(key, self._parent.get(key))

    def get_as_of(self, key: Any, timestamp_ms: int) -> TimedValue | None:
        return self._transformed(key, self._parent.get_as_of(key, timestamp_ms))

    def close(self) -> None:
        self._parent.close()
        close_user_object(self._transformer)

    def _transformed(self, key: Any, found: TimedValue | None) -> TimedValue | None:
        value, timestamp = (None, UNKNOWN) if found is None else found
        current = self._context.task.record
        before = current.timestamp, current.place, current.offset, current.headers
        self._processor_context.enter(Batch([key], [value], [timestamp], (0,), _NO_ORIGIN), 0)
        try:
            transformed = self._transformer.transform(key, value)
        finally:
            self._processor_context.leave()
            current.timestamp, current.place, current.offset, current.headers = before
        return None if transformed is None else (transformed, timestamp)

    def _set_transformer(self, transformer: Any) -> None:
        self._transformer = transformer

"""The operator that runs a user's processor, record by record.

Corresponds to Kafka Streams' `ProcessorNode`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from millstream.async_checks import checked_effect, deferred_method_advice, name_of, reject_deferred
from millstream.config.streams_config import StreamsConfig
from millstream.errors import IllegalStateError, StreamsError, repr_of, summary_of
from millstream.metrics.user import ContextMetrics
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.operators.record_batch import Batch, Order, Origin
from millstream.processor.punctuation import (
    Cancellable,
    PunctuationType,
    Punctuator,
    checked_interval_ms,
)
from millstream.record import UNKNOWN, FixedKeyRecord, Headers, Record, RecordMetadata, TaskId
from millstream.serdes._serde import format_value

logger = logging.getLogger(__name__)

#: The methods that a processor may define.
PROCESSOR_METHODS: Final = ("init", "process", "close")

#: The origin of records that a punctuator forwards: they have no input record.
_NO_ORIGIN: Final = Origin(None, (UNKNOWN,))


@dataclass(frozen=True, slots=True)
class PunctuatorCall:
    """A call of a punctuator, with its node."""

    node: str
    call: Callable[[int], None]

    def __call__(self, time_ms: int) -> None:
        self.call(time_ms)


class NodeProcessingContext:
    """The `ProcessingContext` of one node, and the record that it is processing."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._task = context.task
        self._current = context.task.record
        self._batch: Batch | None = None
        self._index = 0
        self._has_warned = False
        # Only stores need the current record. Setting the record takes 0.4 us, so nodes without
        # stores skip this step.
        self._uses_stores = False

    def enter(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index
        self._current.system_time_ms = None
        if self._uses_stores:
            self.set_current_record()

    def set_current_record(self) -> None:
        """Set the task's current record, which other nodes may have changed."""
        batch, index, current = self._batch, self._index, self._current
        assert batch is not None
        row = batch.rows[index]
        current.timestamp = batch.timestamps[index]
        current.place = batch.origin.place(row)
        current.offset = batch.origin.offsets[row]
        current.headers = batch.headers_of(index)

    def check_result(self, function: object, result: Any) -> None:
        """Reject a returned record, and warn once about other results.

        Raises:
            TypeError: the result is a record, a list of records, a coroutine or a generator.
        """
        checked_effect(result)
        name = name_of(function)
        records = (Record, FixedKeyRecord)
        if isinstance(result, records) or (
            isinstance(result, list | tuple) and result and isinstance(result[0], records)
        ):
            raise TypeError(
                f"{name}() returned a record, which is not forwarded: call "
                "context.forward(record), with the context passed to init(), and return nothing."
            )
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "task %s, node %s: %s() returned %s, which is ignored: use "
                "context.forward(record) to emit records",
                self._context.task_id,
                self._context.node,
                name,
                format_value(result),
            )

    def leave(self) -> None:
        self._batch = None

    # --- ProcessingContext ------------------------------------------------------------------------

    @property
    def application_id(self) -> str:
        return self._task.application_id

    @property
    def task_id(self) -> TaskId:
        return self._context.task_id

    @property
    def state_dir(self) -> Path:
        return self._task.state_dir

    @property
    def config(self) -> StreamsConfig:
        return self._task.config

    @property
    def metrics(self) -> ContextMetrics:
        return self._task.metrics

    def record_metadata(self) -> RecordMetadata | None:
        return None if self._batch is None else self._batch.metadata_of(self._index)

    def current_stream_time_ms(self) -> int:
        if self._batch is not None:
            time = self._batch.origin.stream_time(self._batch.rows[self._index])
            if time is not None:
                return time
        return self._task.stream_time_ms()

    def current_system_time_ms(self) -> int:
        current = self._current
        if current.system_time_ms is None:
            current.system_time_ms = self._context.clock.now_ms()
        return current.system_time_ms

    def get_state_store(self, name: str) -> Any:
        store = self._context.typed_store(name)
        self._uses_stores = True
        if self._batch is not None:
            self.set_current_record()
        return store

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Punctuator,
        *,
        start_ms: int | None = None,
    ) -> Cancellable:
        interval_ms = checked_interval_ms(interval)
        reject_deferred("schedule()", "callback", callback)
        if not isinstance(kind, PunctuationType):
            raise TypeError(
                "schedule() needs PunctuationType.STREAM_TIME or WALL_CLOCK_TIME, but got "
                f"{kind!r}."
            )
        if start_ms is not None and start_ms < 0:
            raise ValueError(f"A schedule cannot start at {start_ms}, before 1970.")
        call = PunctuatorCall(self._context.node, partial(self._punctuate, callback))
        return self._task.schedule(call, interval_ms, kind, start_ms)

    def commit(self) -> None:
        self._task.request_commit()

    def _punctuate(self, callback: Punctuator, time_ms: int) -> None:
        """Call a punctuator. Failures are handled like failures on a record."""
        # A local variable, so that stack inspection finds the node if the thread hangs here.
        context = self._context
        batch = Batch([None], [None], [time_ms], (0,), _NO_ORIGIN, [()])
        self.enter(batch, 0)
        try:
            result = callback(time_ms)
            if result is not None:
                self.check_result(callback, result)
        except Exception as error:
            context.failed(batch, 0, error)
        finally:
            self.leave()


class NodeProcessorContext(NodeProcessingContext):
    """A `ProcessorContext`, from which records can be forwarded.

    Forwarded records are collected, and emitted after the last record of the batch. If a child
    shares a store with this node, they are emitted immediately, because the rest of the user's
    function may read the child's writes.
    """

    def __init__(self, context: OperatorContext, output: Output, *, fixed_key: bool) -> None:
        super().__init__(context)
        self._output = output
        self._fixed_key = fixed_key
        self._kind: type[Record[Any, Any]] | type[FixedKeyRecord[Any, Any]] = (
            FixedKeyRecord if fixed_key else Record
        )
        self._immediate = output.immediate
        self._forwarded = 0
        self._child: str | None = None
        self._clear()

    def enter(self, batch: Batch, index: int) -> None:
        super().enter(batch, index)
        self._forwarded = 0

    def forward(self, record: Any, child: str | None = None) -> None:
        batch = self._batch
        if batch is None:
            raise IllegalStateError(
                "forward() can only be called while a record or punctuation is processed, not in "
                "init(), in close() or on another thread. If it was called correctly, check "
                "whether several tasks share one processor: a supplier must return a new "
                "processor for each call.",
                node=self._context.node,
                task_id=self.task_id,
            )
        if not isinstance(record, self._kind):
            self._reject(record)
        if child != self._child:
            self.emit()
            if child is not None and child not in self._output.children:
                raise StreamsError(
                    f"Unknown downstream node: '{child}' does not exist or is not connected to "
                    f"this processor. Its children are: "
                    f"{', '.join(self._output.children) or 'none'}.",
                    node=self._context.node,
                    task_id=self.task_id,
                )
            self._child = child
        index = self._index
        self._keys.append(record.key)
        self._values.append(record.value)
        self._timestamps.append(record.timestamp)
        headers = record.headers
        self._headers.append(headers)
        if headers:
            self._any_headers = True
        self._rows.append(batch.rows[index])
        self._origin = batch.origin
        if batch.order is not None:
            self._order.append((*batch.order[index], self._forwarded))
            self._forwarded += 1
        if self._immediate:
            self.emit()
            if self._uses_stores:
                self.set_current_record()

    def emit(self) -> None:
        if not self._keys:
            return
        with_headers = self._any_headers or self._origin.headers is not None
        batch = Batch(
            self._keys,
            self._values,
            self._timestamps,
            self._rows,
            self._origin,
            self._order or None,
            self._headers if with_headers else None,
        )
        child = self._child
        self._clear()
        if child is None:
            self._output.emit(batch)
        else:
            self._output.emit_to(child, batch)

    def _clear(self) -> None:
        self._keys: list[Any] = []
        self._values: list[Any] = []
        self._timestamps: list[int] = []
        self._rows: list[int] = []
        self._order: list[Order] = []
        self._headers: list[Headers] = []
        self._any_headers = False
        self._origin = _NO_ORIGIN

    def _reject(self, record: Any) -> None:
        if self._fixed_key:
            raise TypeError(
                "A FixedKeyProcessor must forward the FixedKeyRecord of process(), modified by "
                f"its with_ methods, but got {type(record).__name__}. Use process() instead of "
                "process_values() to change keys."
            )
        raise TypeError(
            f"forward() takes a Record, but got {type(record).__name__}: {repr_of(record)}. Create "
            "one with record.with_value(...) or Record(key, value, timestamp)."
        )

    def _punctuate(self, callback: Punctuator, time_ms: int) -> None:
        try:
            super()._punctuate(callback, time_ms)
        finally:
            self.emit()


class ProcessOperator(Operator):
    def __init__(self, supplier: Callable[[], Any], *, fixed_key: bool = False) -> None:
        self._supplier = supplier
        self._fixed_key = fixed_key
        self._processor_context: NodeProcessorContext
        self._processor: Any = None
        self._process: Callable[[Any], Any]

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._processor_context = NodeProcessorContext(
            context, context.output, fixed_key=self._fixed_key
        )
        init_user_object(
            self._supplier, PROCESSOR_METHODS, self._processor_context, context, self._set_processor
        )
        self._process = self.make_interruptible(self._processor.process)

    def process(self, batch: Batch, output: Output) -> None:
        processor_context, process = self._processor_context, self._process
        make: Callable[..., Any] = FixedKeyRecord if self._fixed_key else Record
        keys, values, timestamps = batch.keys, batch.values, batch.timestamps
        headers = batch.all_headers()
        try:
            for index, key in enumerate(keys):
                processor_context.enter(batch, index)
                try:
                    if headers is None:
                        result = process(make(key, values[index], timestamps[index]))
                    else:
                        record = make(key, values[index], timestamps[index], headers[index])
                        result = process(record)
                    if result is not None:
                        processor_context.check_result(process, result)
                except Exception as error:
                    self.context.failed(batch, index, error)
        finally:
            processor_context.leave()
        processor_context.emit()

    def close(self) -> None:
        close_user_object(self._processor)

    def _set_processor(self, processor: Any) -> None:
        self._processor = processor


def init_user_object(
    supplier: Callable[[], Any],
    methods: Iterable[str],
    processor_context: NodeProcessingContext,
    context: OperatorContext,
    keep: Callable[[Any], None],
) -> None:
    """Create a user object and call its `init` method, if any.

    `keep` receives the object before its `init` is called, so that the object can be closed if
    `init` fails.

    Raises:
        StreamsError: the supplier or `init` failed.
    """
    try:
        user_object = supplier()
        advice = deferred_method_advice(user_object, methods)
        if advice is not None:
            raise TypeError(advice)
        keep(user_object)
        init = getattr(user_object, "init", None)
        if init is not None:
            checked_effect(init(processor_context))
    except StreamsError:
        raise
    except Exception as error:
        raise StreamsError(
            f"The processor could not be initialized: {summary_of(error)}. Fix its init(), or "
            "its supplier.",
            node=context.node,
            task_id=context.task_id,
        ) from error


def close_user_object(user_object: Any) -> None:
    close = getattr(user_object, "close", None)
    if close is not None:
        checked_effect(close())

"""The operator that runs a user's processor, record by record (Kafka Streams' `ProcessorNode`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.errors import IllegalStateError, StreamsError, repr_of, summary_of
from millstream.metrics.user import ContextMetrics
from millstream.operators.batch import Batch, Order, Origin
from millstream.operators.operator import Operator, OperatorContext, Output
from millstream.processor.punctuation import (
    Cancellable,
    PunctuationType,
    Punctuator,
    checked_interval_ms,
)
from millstream.record import UNKNOWN, FixedKeyRecord, Headers, Record, RecordMetadata, TaskId
from millstream.serdes._serde import shown
from millstream.unawaited import (
    checked_effect,
    deferred_method_advice,
    name_of,
    refuse_deferred,
)

logger = logging.getLogger(__name__)

#: What a processor may define.
PROCESSOR_METHODS: Final = ("init", "process", "close")

#: Where the records of a punctuator come from: nowhere.
_NOWHERE: Final = Origin(None, (UNKNOWN,))


@dataclass(frozen=True, slots=True)
class PunctuatorCall:
    """Calls a punctuator of a node."""

    node: str
    call: Callable[[int], None]

    def __call__(self, time_ms: int) -> None:
        self.call(time_ms)


class RecordScope:
    """Which record of which batch user code is working on, and what it may ask meanwhile.

    Args:
        context: what the engine offers to the operator.
    """

    def __init__(self, context: OperatorContext) -> None:
        self._context = context
        self._task = context.task
        self._current = context.task.record
        self._batch: Batch | None = None
        self._index = 0
        self._has_warned = False
        # Only stores want to know the record: 0.4 us each where the user's code has none.
        self._uses_stores = False

    def enter(self, batch: Batch, index: int) -> None:
        """From now on user code works on that record; stores that it writes to must know."""
        self._batch = batch
        self._index = index
        self._current.system_time_ms = None
        if self._uses_stores:
            self.show()

    def show(self) -> None:
        """Make the record the task's current one again, after other nodes had theirs."""
        batch, index, current = self._batch, self._index, self._current
        assert batch is not None
        row = batch.rows[index]
        current.timestamp = batch.timestamps[index]
        current.place = batch.origin.place(row)
        current.offset = batch.origin.offsets[row]
        current.headers = batch.headers_of(index)

    def check_result(self, function: object, result: Any) -> None:
        """Refuse a record that a processor or punctuator returns, and warn once of other results.

        Raises:
            TypeError: it is a record, several of them, a coroutine or a generator.
        """
        checked_effect(result)
        name = name_of(function)
        records = (Record, FixedKeyRecord)
        if isinstance(result, records) or (
            isinstance(result, list | tuple) and result and isinstance(result[0], records)
        ):
            raise TypeError(
                f"{name}() returned a record, which goes nowhere: call context.forward(record), "
                "with the context that init() was given, and return nothing."
            )
        if not self._has_warned:
            self._has_warned = True
            logger.warning(
                "task %s, node %s: %s() returned %s, which is ignored: records go on with "
                "context.forward(record)",
                self._context.task_id,
                self._context.node,
                name,
                shown(result),
            )

    def leave(self) -> None:
        """User code is done."""
        self._batch = None

    # --- what Kafka Streams' ProcessingContext offers ---------------------------------------------

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
            self.show()
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
        refuse_deferred("schedule()", "callback", callback)
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
        """Call a punctuator. What it raises goes where a failure on a record would."""
        # A name of its own, by which the node is found on the stack of a thread that hangs here.
        context = self._context
        batch = Batch([None], [None], [time_ms], (0,), _NOWHERE, [()])
        self.enter(batch, 0)
        try:
            result = callback(time_ms)
            if result is not None:
                self.check_result(callback, result)
        except Exception as error:
            context.failed(batch, 0, error)
        finally:
            self.leave()


class ForwardingScope(RecordScope):
    """A `RecordScope` from which records can be forwarded: a `ProcessorContext`.

    Forwarded records are collected, and emitted when all records of the batch are done. Only where
    a child shares a store with this node they go there at once, since the rest of the user's
    function may look for what the child has written.

    Args:
        context: what the engine offers to the operator.
        output: the node's edges to its children.
        fixed_key: whether only a `FixedKeyRecord` may be forwarded.
    """

    def __init__(self, context: OperatorContext, output: Output, *, fixed_key: bool) -> None:
        super().__init__(context)
        self._output = output
        self._fixed_key = fixed_key
        self._kind: type[Record[Any, Any]] | type[FixedKeyRecord[Any, Any]] = (
            FixedKeyRecord if fixed_key else Record
        )
        self._at_once = output.immediate
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
                "forward() can be called while a record or a punctuation is processed, and not in "
                "init(), in close() or on another thread. If that is the case here, look whether "
                "several tasks share one processor: a supplier must give a new one at each call.",
                node=self._context.node,
                task_id=self.task_id,
            )
        if not isinstance(record, self._kind):
            self._refuse(record)
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
        if self._at_once:
            self.emit()
            if self._uses_stores:
                self.show()

    def emit(self) -> None:
        """Hand on what was forwarded so far."""
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
        self._origin = _NOWHERE

    def _refuse(self, record: Any) -> None:
        if self._fixed_key:
            raise TypeError(
                "A FixedKeyProcessor forwards the FixedKeyRecord it was given, changed by its "
                f"with_ methods, but got {type(record).__name__}. Use process() to change keys."
            )
        raise TypeError(
            f"forward() takes a Record, but got {type(record).__name__}: {repr_of(record)}. Make "
            "one with record.with_value(...) or Record(key, value, timestamp)."
        )

    def _punctuate(self, callback: Punctuator, time_ms: int) -> None:
        try:
            super()._punctuate(callback, time_ms)
        finally:
            self.emit()


class ProcessOperator(Operator):
    """Runs a `Processor` or a `FixedKeyProcessor`.

    Args:
        supplier: gives the processor.
        fixed_key: whether it is a `FixedKeyProcessor`.
    """

    def __init__(self, supplier: Callable[[], Any], *, fixed_key: bool = False) -> None:
        self._supplier = supplier
        self._fixed_key = fixed_key
        self._scope: ForwardingScope
        self._processor: Any = None
        self._process: Callable[[Any], Any]

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._scope = ForwardingScope(context, context.output, fixed_key=self._fixed_key)
        initialized(self._supplier, PROCESSOR_METHODS, self._scope, context, self._keep)
        self._process = self.guard(self._processor.process)

    def process(self, batch: Batch, output: Output) -> None:
        scope, process = self._scope, self._process
        make: Callable[..., Any] = FixedKeyRecord if self._fixed_key else Record
        keys, values, timestamps = batch.keys, batch.values, batch.timestamps
        headers = batch.all_headers()
        try:
            for index, key in enumerate(keys):
                scope.enter(batch, index)
                try:
                    if headers is None:
                        result = process(make(key, values[index], timestamps[index]))
                    else:
                        record = make(key, values[index], timestamps[index], headers[index])
                        result = process(record)
                    if result is not None:
                        scope.check_result(process, result)
                except Exception as error:
                    self.context.failed(batch, index, error)
        finally:
            scope.leave()
        scope.emit()

    def close(self) -> None:
        close_user_code(self._processor)

    def _keep(self, processor: Any) -> None:
        self._processor = processor


def initialized(
    supplier: Callable[[], Any],
    methods: Iterable[str],
    scope: RecordScope,
    context: OperatorContext,
    keep: Callable[[Any], None],
) -> None:
    """Make the user's object and call its `init`, if it has one.

    Args:
        supplier: gives the object.
        methods: which of its methods are called, none of which may be asynchronous.
        scope: what `init` is given.
        context: of the node, for errors.
        keep: takes the object before `init` is called, so that it can be closed if that fails.

    Raises:
        StreamsError: the supplier or `init` failed.
    """
    try:
        made = supplier()
        advice = deferred_method_advice(made, methods)
        if advice is not None:
            raise TypeError(advice)
        keep(made)
        init = getattr(made, "init", None)
        if init is not None:
            checked_effect(init(scope))
    except StreamsError:
        raise
    except Exception as error:
        raise StreamsError(
            f"The processor could not be initialized: {summary_of(error)}. Correct its "
            "init(), or its supplier.",
            node=context.node,
            task_id=context.task_id,
        ) from error


def close_user_code(made: Any) -> None:
    """Call the `close` of the user's object, if there is one."""
    close = getattr(made, "close", None)
    if close is not None:
        checked_effect(close())

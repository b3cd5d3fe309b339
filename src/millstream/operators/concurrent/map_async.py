"""The operator of `map_async`: values from concurrent calls of a function."""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Final, NoReturn

from millstream.async_checks import AWAIT_ADVICE, checked_result, name_of
from millstream.errors import StreamsError
from millstream.operators.concurrent.concurrent_calls import Call
from millstream.operators.concurrent.concurrent_operator import (
    SingleRunnerOperator,
    completed_batch,
    failure_of,
)
from millstream.operators.concurrent.shared_resource import SharedResource, acquire, release
from millstream.operators.operator import OperatorContext, Output
from millstream.operators.record_batch import Batch

#: The maximum number of records in flight in addition to twice the concurrency: enough for the 5 ms
#: until the loop checks for completions, at 100,000 records per second.
_MAX_QUEUED: Final = 500

#: Common key types, which have value equality.
_PLAIN_TYPES: Final = frozenset({str, bytes, int, float, bool, type(None)})


class Ordering(enum.Enum):
    """The order of results, which also determines which calls wait for each other."""

    #: Calls of one key run one after the other, and their results keep that order.
    KEY = "key"
    #: All calls run concurrently; results are emitted in order of completion.
    NONE = "none"
    #: All calls run concurrently; results of each input partition are emitted in input order.
    PARTITION = "partition"


class MapAsyncOperator(SingleRunnerOperator):
    """Replaces each value with the result of a concurrent call."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        is_coroutine: bool,
        with_key: bool,
        concurrency: int,
        ordering: Ordering,
        timeout_ms: int | None,
        using: Callable[[], Any] | None = None,
    ) -> None:
        super().__init__()
        self._function = function
        self._is_coroutine = is_coroutine
        self._arguments = _key_and_value if with_key else _value
        self._concurrency = concurrency
        self._ordering = ordering
        self._timeout_ms = timeout_ms
        #: Creates a resource that is passed as the first argument.
        self._using = using
        self._resource: SharedResource | None = None
        self._max_in_flight = 2 * concurrency + _MAX_QUEUED
        #: Results that are held back because a punctuation comes first.
        self._ready: deque[Call] = deque()
        #: None to emit results in order of completion. Calls of a unit complete in order.
        self._input_order: InputOrder | None

    @property
    def remaining_capacity(self) -> int:
        # Queued records would delay each commit, possibly beyond the transaction timeout.
        limit = (
            self._concurrency if self.runner_context.drains_before_commit else self._max_in_flight
        )
        return limit - self._in_flight

    @property
    def has_completions(self) -> bool:
        return bool(self._ready) or self._runner.has_completed

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        runner_context = self.runner_context
        runners, function = runner_context.runners, self._bound_function()
        if self._is_coroutine:
            self._runner = runners.make_coroutine_runner(
                function, self._arguments, self._concurrency, self._timeout_ms
            )
        else:
            self._runner = runners.make_thread_runner(function, self._arguments, self._concurrency)
        by_offset = runner_context.in_offset_order or self._ordering is Ordering.PARTITION
        self._input_order = InputOrder() if by_offset else None

    def close(self) -> None:
        try:
            if hasattr(self, "_runner"):
                super().close()
        finally:
            resource, self._resource = self._resource, None
            if resource is not None:
                release(resource)

    def _bound_function(self) -> Callable[..., Any]:
        using = self._using
        if using is None:
            return self._function
        try:
            self._resource = acquire(using, on_loop=self._is_coroutine)
        except Exception as error:
            raise StreamsError(
                f"using={name_of(using)} could not be opened: {type(error).__name__}: {error}",
                node=self.context.node,
                task_id=self.context.task_id,
            ) from error
        return self._resource.bound(self._function)

    def process(self, batch: Batch, output: Output) -> None:
        if self._ordering is Ordering.KEY:
            batch, units = self._with_units(batch)
            calls = [Call(batch, index, unit) for index, unit in enumerate(units)]
        else:
            calls = [Call(batch, index, None) for index in range(len(batch))]
        self._add_in_flight(batch)
        if self._input_order is not None:
            self._input_order.add(calls)
        self._runner.start(calls)

    def release(self, output: Output) -> Sequence[Batch]:
        done: list[Batch] = []
        ready = self._ready
        if self._runner.has_completed:
            calls = self._runner.take_completed()
            if self._input_order is not None:
                calls = self._input_order.release(calls)
            ready.extend(call for call in calls if self._has_result(call, done))
        if ready:
            batch = completed_batch(list(ready), self.runner_context.downstream_time)
            for _ in range(len(batch)):
                ready.popleft()
            done.append(batch)
            output.emit(batch)
        return self._remove_in_flight(done)

    def _has_result(self, call: Call, done: list[Batch]) -> bool:
        failure = failure_of(call)
        if failure is None:
            try:
                checked_result(call.result, AWAIT_ADVICE)
                return True
            except TypeError as error:
                failure = error
        self.context.failed(call.batch, call.index, failure)
        done.append(call.batch.take([call.index]))
        return False

    def _with_units(self, batch: Batch) -> tuple[Batch, list[Hashable]]:
        """Return the records with usable keys, and their units."""
        try:
            return batch, list(map(_unit, batch.keys))
        except TypeError:
            # Repeat one by one to find the failing record.
            kept: list[int] = []
            units: list[Hashable] = []
        for index, key in enumerate(batch.keys):
            try:
                units.append(_unit(key))
                kept.append(index)
            except TypeError as error:
                self.context.failed(batch, index, error)
        return batch.take(kept), units


def _value(call: Call) -> tuple[Any, ...]:
    return (call.batch.values[call.index],)


def _key_and_value(call: Call) -> tuple[Any, ...]:
    return (call.batch.keys[call.index], call.batch.values[call.index])


def _unit(key: Any) -> Hashable:
    """Return the unit of a key. Calls without a key (None) have no unit.

    Raises:
        TypeError: the class of the key has identity equality, so equal keys cannot be recognized.
    """
    if type(key) not in _PLAIN_TYPES:
        _check_equality(key)
    try:
        hash(key)
    except TypeError:
        # Different keys with equal representations wait for each other. That costs time, but is
        # correct.
        return repr(key)
    return key  # type: ignore[no-any-return]


def _check_equality(key: Any) -> None:
    kind = type(key)
    if kind in _PLAIN_TYPES or isinstance(key, enum.Enum):
        return
    if isinstance(key, dict):
        for pair in key.items():
            _check_equality(pair)
    elif isinstance(key, tuple | list | set | frozenset):
        for part in key:
            _check_equality(part)
    elif _is_of_object(kind, "__eq__"):
        _reject_key_type(kind, "has no __eq__")
    elif kind.__hash__ is None and _is_of_object(kind, "__repr__"):
        _reject_key_type(kind, "has an __eq__, but no __hash__ and no __repr__")


def _is_of_object(kind: type, method: str) -> bool:
    return getattr(kind, method) is getattr(object, method)


def _reject_key_type(kind: type, why: str) -> NoReturn:
    raise TypeError(
        f"keys of class {kind.__qualname__}, which {why}, cannot be compared, so the order of "
        "records per key cannot be kept. Make the class a @dataclass(frozen=True), or use "
        'ordering="partition" or "none"'
    )


class InputOrder:
    """Releases the results of each input partition in input order."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, deque[Call]] = defaultdict(deque)

    def add(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self._queues[_partition_of(call)].append(call)

    def release(self, completed: Sequence[Call]) -> list[Call]:
        """Return the completed calls before the first incomplete call of each partition."""
        for call in completed:
            call.done = True
        released: list[Call] = []
        for partition in dict.fromkeys(map(_partition_of, completed)):
            queue = self._queues[partition]
            while queue and queue[0].done:
                released.append(queue.popleft())
        return released


def _partition_of(call: Call) -> Hashable:
    batch = call.batch
    return batch.origin.place(batch.rows[call.index])

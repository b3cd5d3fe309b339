"""The operator of `map_batches` with an `async def` function."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from millstream.operators.arrow import ArrowFormat, with_results
from millstream.operators.concurrent.concurrent_calls import Call
from millstream.operators.concurrent.concurrent_operator import (
    SingleRunnerOperator,
    downstream_batch,
    failure_of,
)
from millstream.operators.operator import OperatorContext, Output
from millstream.operators.record_batch import Batch, merge_batches


class MapBatchesAsyncOperator(SingleRunnerOperator):
    """Replaces values with the results of concurrent calls that take Arrow batches.

    Each call processes one batch. While the maximum number of calls is running, records wait, and
    the next batch contains the records that have arrived in the meantime, up to `max_records`:
    batches are small at low load and large at high load. Results are emitted in the order of the
    records.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        arrow: ArrowFormat,
        max_records: int,
        *,
        concurrency: int,
        timeout_ms: int | None,
    ) -> None:
        super().__init__()
        self._function = function
        self._arrow = arrow
        self._max_records = max_records
        self._concurrency = concurrency
        self._timeout_ms = timeout_ms
        self._is_ordered = False
        #: Records that do not belong to a call yet.
        self._waiting: deque[Batch] = deque()
        #: The calls in the order of the records. Completed calls wait for earlier ones.
        self._calls: deque[Call] = deque()
        #: Results that are held back because a punctuation comes first.
        self._ready: Batch | None = None

    @property
    def remaining_capacity(self) -> int:
        # One batch waits in addition to the running calls, unless commits wait for all records.
        batches = self._concurrency + (not self.runner_context.drains_before_commit)
        return batches * self._max_records - self._in_flight

    @property
    def has_completions(self) -> bool:
        return (
            self._ready is not None
            or self._runner.has_completed
            or bool(self._calls and self._calls[0].done)
        )

    def init(self, context: OperatorContext) -> None:
        super().init(context)
        self._runner = self.runner_context.runners.make_coroutine_runner(
            self._function, self._columns, self._concurrency, self._timeout_ms
        )

    def process(self, batch: Batch, output: Output) -> None:
        self._add_in_flight(batch)
        self._is_ordered = batch.order is not None
        self._waiting.append(_without_order(batch))
        self._begin()

    def release(self, output: Output) -> Sequence[Batch]:
        for call in self._runner.take_completed():
            call.done = True
        done: list[Batch] = []
        ready = [] if self._ready is None else [self._ready]
        self._ready = None
        while self._calls and self._calls[0].done:
            call = self._calls.popleft()
            failed = partial(self.context.failed, call.batch)
            left, failures = with_results(call.batch, self._results(call), failed)
            if failures:
                done.append(call.batch.take(failures))
            if left.keys:
                ready.append(left)
        self._begin()
        if ready:
            self._emit(merge_batches(ready), output, done)
        return self._remove_in_flight(done)

    def _begin(self) -> None:
        if self._is_halted:
            return
        while self._waiting and sum(not call.done for call in self._calls) < self._concurrency:
            batch = merge_batches(list(self._next_parts()))
            call = Call(batch, 0, None)
            self._calls.append(call)
            if any(value is not None for value in batch.values):
                self._runner.start([call])
            else:
                call.result, call.done = [], True

    def _next_parts(self) -> Iterator[Batch]:
        waiting, remaining_capacity = self._waiting, self._max_records
        while waiting and remaining_capacity:
            part = waiting.popleft()
            if len(part) > remaining_capacity:
                waiting.appendleft(part.take(range(remaining_capacity, len(part))))
                part = part.take(range(remaining_capacity))
            remaining_capacity -= len(part)
            yield part

    def _columns(self, call: Call) -> tuple[Any, ...]:
        return (self._arrow.columns(call.batch),)

    def _results(self, call: Call) -> Sequence[Any] | Exception:
        if (failure := failure_of(call)) is not None:
            return failure
        count = sum(value is not None for value in call.batch.values)
        try:
            return self._arrow.values(call.result, count) if count else []
        except Exception as error:
            return error

    def _emit(self, batch: Batch, output: Output, done: list[Batch]) -> None:
        arrived = downstream_batch(
            batch, self.runner_context.downstream_time, ordered=self._is_ordered
        )
        if len(arrived) < len(batch):
            self._ready = batch.take(range(len(arrived), len(batch)))
        done.append(arrived)
        output.emit(arrived)


def _without_order(batch: Batch) -> Batch:
    """Drop the depth-first positions.

    They are only comparable within one step, but a call can process records of several steps. The
    batches of these steps are queued in order.
    """
    if batch.order is None:
        return batch
    return Batch(
        batch.keys, batch.values, batch.timestamps, batch.rows, batch.origin, None, batch.headers
    )

"""The operator of `map_batches` with an `async def` function: Arrow columns, beside the loop."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from millstream.operators.apart.apart_operator import UnitsOperator, arriving, failure_of
from millstream.operators.apart.calls import Call
from millstream.operators.arrow import ArrowFormat, answered
from millstream.operators.batch import Batch, merge_batches
from millstream.operators.operator import OperatorContext, Output


class MapBatchesAsyncOperator(UnitsOperator):
    """Replaces each value by what the function gives for it. One call is one batch.

    While calls are made, records wait, so that the next batch has all that has come meanwhile:
    batches are small where there is little to do, and large where there is much. Results go on in
    the order in which the records came.

    Args:
        function: the user's, of a `pyarrow.RecordBatch`.
        arrow: how records become one, and results values.
        most: how many records are in one at most.
        concurrency: how many calls there are at a time.
        timeout_ms: after how long a call is given up; None for never.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        arrow: ArrowFormat,
        most: int,
        *,
        concurrency: int,
        timeout_ms: int | None,
    ) -> None:
        super().__init__()
        self._function = function
        self._arrow = arrow
        self._most = most
        self._concurrency = concurrency
        self._timeout_ms = timeout_ms
        self._is_ordered = False
        #: What is in no call yet.
        self._waiting: deque[Batch] = deque()
        #: In the order of the records; those that have ended wait for the first.
        self._calls: deque[Call] = deque()
        #: What may go on, but had to let somebody be called first.
        self._free: Batch | None = None

    @property
    def room(self) -> int:
        """How many more may be taken: one batch waits beside those that are in calls."""
        # Where a commit waits for all of it, none waits.
        batches = self._concurrency + (not self.equipment.lands)
        return batches * self._most - self._in_flight

    @property
    def has_landed(self) -> bool:
        """Whether calls have ended."""
        return (
            self._free is not None
            or self._units.have_ended
            or bool(self._calls and self._calls[0].done)
        )

    def init(self, context: OperatorContext) -> None:
        """Begin with nothing in flight."""
        super().init(context)
        self._units = self.equipment.apart.coroutines(
            self._function, self._columns, self._concurrency, self._timeout_ms
        )

    def process(self, batch: Batch, output: Output) -> None:
        """Let the records wait for a call, or begin it."""
        self._hold(batch)
        self._is_ordered = batch.order is not None
        self._waiting.append(_without_order(batch))
        self._begin()

    def release(self, output: Output) -> Sequence[Batch]:
        """Emit the results that may go on, and begin the next calls."""
        for call in self._units.ended():
            call.done = True
        done: list[Batch] = []
        free = [] if self._free is None else [self._free]
        self._free = None
        while self._calls and self._calls[0].done:
            call = self._calls.popleft()
            failed = partial(self.context.failed, call.batch)
            left, failures = answered(call.batch, self._answers(call), failed)
            if failures:
                done.append(call.batch.take(failures))
            if left.keys:
                free.append(left)
        self._begin()
        if free:
            self._emit(merge_batches(free), output, done)
        return self._let_go(done)

    def _begin(self) -> None:
        if self._is_halted:
            return
        while self._waiting and sum(not call.done for call in self._calls) < self._concurrency:
            batch = merge_batches(list(self._next_parts()))
            call = Call(batch, 0, None)
            self._calls.append(call)
            if any(value is not None for value in batch.values):
                self._units.start([call])
            else:
                call.result, call.done = [], True

    def _next_parts(self) -> Iterator[Batch]:
        waiting, room = self._waiting, self._most
        while waiting and room:
            part = waiting.popleft()
            if len(part) > room:
                waiting.appendleft(part.take(range(room, len(part))))
                part = part.take(range(room))
            room -= len(part)
            yield part

    def _columns(self, call: Call) -> tuple[Any, ...]:
        return (self._arrow.columns(call.batch),)

    def _answers(self, call: Call) -> Sequence[Any] | Exception:
        if (failure := failure_of(call)) is not None:
            return failure
        count = sum(value is not None for value in call.batch.values)
        try:
            return self._arrow.values(call.result, count) if count else []
        except Exception as error:
            return error

    def _emit(self, batch: Batch, output: Output, done: list[Batch]) -> None:
        arrived = arriving(batch, self.equipment.time, ordered=self._is_ordered)
        if len(arrived) < len(batch):
            self._free = batch.take(range(len(arrived), len(batch)))
        done.append(arrived)
        output.emit(arrived)


def _without_order(batch: Batch) -> Batch:
    """Records of several steps of the task: they are in the order in which they came."""
    if batch.order is None:
        return batch
    return Batch(
        batch.keys,
        batch.values,
        batch.timestamps,
        batch.rows,
        batch.origin,
        None,
        batch.headers,
    )

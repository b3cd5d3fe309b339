"""Base classes of concurrent operators."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from millstream.operators.concurrent.concurrent_calls import Call, CallRunner
from millstream.operators.concurrent.runner_context import DownstreamTime, RunnerContext
from millstream.operators.operator import Operator, Output
from millstream.operators.record_batch import Batch, Order, Origin
from millstream.record import Headers

#: The default of `max_pending`. Each of these records takes about 100 bytes, plus its serialized
#: form.
_MAX_PENDING: Final = 100_000


class ConcurrentOperator(Operator):
    """An operator that emits its results later, when the loop calls `release`.

    The records passed to `process` are in flight until `release` returns them. Until then, their
    input records are not completed.
    """

    runner_context: RunnerContext

    def set_runner_context(self, runner_context: RunnerContext) -> None:
        """Set the context that the operators of the task share. Called before `init`."""
        self.runner_context = runner_context

    @property
    @abstractmethod
    def in_flight(self) -> int: ...

    @property
    @abstractmethod
    def remaining_capacity(self) -> int: ...

    @property
    def max_pending(self) -> int:
        """The maximum number of records taken from a partition but not committable yet.

        Includes completed records after a record that is in flight.
        """
        return _MAX_PENDING

    @property
    @abstractmethod
    def has_completions(self) -> bool:
        """Whether `release` may have work to do."""

    @property
    def awaits_delivery(self) -> bool:
        """Whether records are waiting for the delivery of their outputs."""
        return False

    def on_delivered(self) -> None:
        """Called when all sent records have been delivered or rejected."""

    @abstractmethod
    def halt(self) -> None:
        """Start no more calls, and drop the queued ones."""

    @property
    @abstractmethod
    def can_finish(self) -> bool:
        """Whether any record in flight may still complete.

        After `halt`, only calls that are already running can complete.
        """

    @abstractmethod
    def release(self, output: Output) -> Sequence[Batch]:
        """Emit the results that are due; return the records no longer in flight.

        Raises:
            ProcessingError: user code failed for a record, and the handler returned FAIL.
        """


class SingleRunnerOperator(ConcurrentOperator):
    """A concurrent operator with one runner.

    The results of its calls are the new values.
    """

    def __init__(self) -> None:
        self._in_flight = 0
        self._is_halted = False
        self._runner: CallRunner

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def halt(self) -> None:
        self._is_halted = True
        self._runner.halt()

    @property
    def can_finish(self) -> bool:
        return not self._is_halted or self._runner.is_running or self.has_completions

    def close(self) -> None:
        """Close the runner. The next owner of the task repeats the work in flight."""
        self._runner.close()

    def _add_in_flight(self, batch: Batch) -> None:
        self.runner_context.in_flight_records.add(batch)
        self._in_flight += len(batch)

    def _remove_in_flight(self, done: list[Batch]) -> Sequence[Batch]:
        self._in_flight -= sum(map(len, done))
        return done


def completed_batch(calls: Sequence[Call], time: DownstreamTime) -> Batch:
    """Return the batch to emit for completed calls.

    It contains the records of the calls, with the results as values. `time` provides the stream
    time at each record. If `time` ends the batch early, for example because a stream-time
    punctuation becomes due, the batch contains only the records of the first calls.
    """
    times = time.advance([call.batch.timestamps[call.index] for call in calls])
    calls = calls[: len(times)]
    first = calls[0].batch
    alike = all(call.batch is first for call in calls)
    source = first.take([call.index for call in calls]) if alike else _merged_calls(calls)
    source = source.with_values([call.result for call in calls])
    return _with_own_origin(source, times, ordered=first.order is not None)


def downstream_batch(batch: Batch, time: DownstreamTime, *, ordered: bool) -> Batch:
    """Return the batch to emit for results.

    It contains the same records, with the downstream stream time. `time` provides the stream time
    at each record. The batch contains only the first records if `time` ends it early, for example
    because a stream-time punctuation becomes due.
    """
    times = time.advance(batch.timestamps)
    if len(times) < len(batch):
        batch = batch.take(range(len(times)))
    return _with_own_origin(batch, times, ordered=ordered)


def failure_of(call: Call) -> Exception | None:
    """Return a call's exception, for exception handlers; None if it has a result.

    Raises:
        BaseException: the call raised an exception that is not an `Exception`, such as SystemExit.
    """
    error = call.error
    if error is None or isinstance(error, Exception):
        return error
    raise error


def _with_own_origin(source: Batch, times: list[int], *, ordered: bool) -> Batch:
    partitions, offsets = source.input_positions()
    origin = Origin(
        [partition for partition, _ in zip(partitions, times, strict=False)],
        list(offsets),
        source.all_headers(),
        lambda: times,
    )
    order: list[Order] | None = None
    if ordered:
        order = [(index,) for index in range(len(times))]
    return Batch(source.keys, source.values, source.timestamps, range(len(times)), origin, order)


def _merged_calls(calls: Sequence[Call]) -> Batch:
    pairs = [(call.batch, call.index) for call in calls]
    headers: list[Headers] = [batch.headers_of(index) for batch, index in pairs]
    metadata = [(batch.origin, batch.rows[index]) for batch, index in pairs]
    origin = Origin(
        [origin.place(row) for origin, row in metadata],
        [origin.offsets[row] for origin, row in metadata],
        headers if any(headers) else None,
    )
    return Batch(
        [batch.keys[index] for batch, index in pairs],
        [batch.values[index] for batch, index in pairs],
        [batch.timestamps[index] for batch, index in pairs],
        range(len(pairs)),
        origin,
    )

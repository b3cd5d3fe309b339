"""User code for every record of a batch, functions and serdes: which record does it fail on?"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol

from millstream.errors import BatchSerializationError
from millstream.operators.batch import Batch
from millstream.unawaited import checked_result, is_unawaited


class Failures(Protocol):
    """Whom to tell that user code raised."""

    def failed(self, batch: Batch, index: int, error: Exception) -> None:
        """Let that record be left out, or raise."""
        ...


def call_each(
    function: Callable[..., Any],
    columns: tuple[list[Any], ...],
    batch: Batch,
    failures: Failures,
) -> tuple[list[Any], Batch]:
    """The function's result for each record, and the records that have one.

    A record on which the function raises goes to the processing exception handler; if that
    continues, the record alone is left out. The function is never called twice for a record.

    Args:
        function: what to call.
        columns: the arguments, one list an argument, as long as the batch.
        batch: the records.
        failures: whom to tell of a failure.

    Raises:
        ProcessingError: the function raised and the handler says FAIL.
    """
    results: list[Any] = []
    size = len(batch)
    try:
        # list.extend() keeps what it has when the iterator raises, so the number of results is the
        # index of the record that failed; map() calls without a Python frame in between.
        results.extend(map(function, *columns))
        if len(results) == size:
            return _checked(results, batch, failures)
        failure: Exception = _stopped()
    except Exception as error:
        failure = error
    keep = [True] * size
    index = len(results)
    while True:
        failures.failed(batch, index, failure)
        keep[index] = False
        done = len(results)
        try:
            rest = [islice(column, index + 1, None) for column in columns]
            results.extend(map(function, *rest))
            index += 1 + len(results) - done
            if index == size:
                return _checked(results, batch.select(keep), failures)
            failure = _stopped()
        except Exception as error:
            index += 1 + len(results) - done
            failure = error


def serialize_each(
    serialize_many: Callable[[list[Any]], list[Any]],
    objects: list[Any],
    failed: Callable[[int, BatchSerializationError], None],
) -> tuple[list[Any], list[bool] | None]:
    """The bytes of each object, and which objects have any; None if all of them do.

    An object that cannot be serialized is left out alone. None is serialized twice.

    Args:
        serialize_many: the serde's, for a topic.
        objects: what to serialize.
        failed: told the index of an object that cannot be; it raises if that is the end.
    """
    try:
        return serialize_many(objects), None
    except BatchSerializationError as error:
        failure = error
    keep = [True] * len(objects)
    done: list[Any] = []
    start = 0
    while True:
        index = start + failure.index
        done += failure.done
        failed(index, failure)
        keep[index] = False
        start = index + 1
        try:
            done += serialize_many(objects[start:])
            return done, keep
        except BatchSerializationError as error:
            failure = error


def _checked(results: list[Any], batch: Batch, failures: Failures) -> tuple[list[Any], Batch]:
    """The same, unless the first result is a coroutine: then those that are count as failures."""
    # Only the first one is looked at: 140 ns a batch. Where a coroutine comes later, it is a value
    # that no serde takes.
    if results and is_unawaited(results[0]):
        return call_each(checked_result, (results,), batch, failures)
    return results, batch


def _stopped() -> Exception:
    """A function that raises StopIteration ends the iteration silently: make it a failure."""
    return RuntimeError("The function raised StopIteration.")

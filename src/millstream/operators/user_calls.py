"""Calls of user functions and serdes per record, with failures and interruption."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from millstream.async_checks import checked_result, is_unawaited
from millstream.errors import BatchSerializationError
from millstream.operators.record_batch import Batch


class FailureHandler(Protocol):
    """Handles failures of user code."""

    def failed(self, batch: Batch, index: int, error: Exception) -> None: ...


def call_each(
    function: Callable[..., Any],
    columns: tuple[list[Any], ...],
    batch: Batch,
    failure_handler: FailureHandler,
) -> tuple[list[Any], Batch]:
    """Call a function for each record.

    Returns the results, and the records with a result. If the function raises for a record, the
    processing exception handler is called. If the handler continues, only that record is dropped.
    The function is never called twice for a record.

    Raises:
        ProcessingError: the function raised, and the handler returned FAIL.
    """
    results: list[Any] = []
    size = len(batch)
    try:
        # list.extend() keeps its elements when the iterator raises, so the number of results is the
        # index of the failed record. map() calls without a Python frame in between.
        results.extend(map(function, *columns))
        if len(results) == size:
            return _without_coroutines(results, batch, failure_handler)
        failure: Exception = _stop_iteration_error()
    except Exception as error:
        failure = error
    keep = [True] * size
    index = len(results)
    while True:
        failure_handler.failed(batch, index, failure)
        keep[index] = False
        done = len(results)
        try:
            rest = [islice(column, index + 1, None) for column in columns]
            results.extend(map(function, *rest))
            index += 1 + len(results) - done
            if index == size:
                return _without_coroutines(results, batch.select(keep), failure_handler)
            failure = _stop_iteration_error()
        except Exception as error:
            index += 1 + len(results) - done
            failure = error


def serialize_each(
    serialize_many: Callable[[list[Any]], list[Any]],
    objects: list[Any],
    failed: Callable[[int, BatchSerializationError], None],
) -> tuple[list[Any], list[bool] | None]:
    """Serialize objects, and drop those that cannot be serialized.

    Returns the data, and a list of whether each object was serialized, or None if all were. No
    object is serialized twice. `failed` may raise.
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


def _without_coroutines(
    results: list[Any], batch: Batch, failure_handler: FailureHandler
) -> tuple[list[Any], Batch]:
    """Return the results.

    If the first one is a coroutine, all coroutines count as failures.
    """
    # Only the first result is checked, at 140 ns per batch. Later coroutines are values that no
    # serde accepts.
    if results and is_unawaited(results[0]):
        return call_each(checked_result, (results,), batch, failure_handler)
    return results, batch


def _stop_iteration_error() -> Exception:
    """Return the error for StopIteration, which would silently end the iteration."""
    return RuntimeError("The function raised StopIteration.")


_Function = TypeVar("_Function", bound=Callable[..., Any])


class BatchInterruptedError(BaseException):
    """Raised to stop a batch that has taken too long.

    The functions of its nodes are no longer called. Not an `Exception`, so that exception handlers
    and most user code do not catch it. If user code catches it, for example with a bare `except:`
    around `forward()`, `TimeLimits` raises it again.
    """


class _InterruptibleFunction(NamedTuple):
    """A user function wrapped in a `partial`, and the `partial`'s original state."""

    call: partial[Any]
    state: tuple[Any, ...]


class UserCalls:
    """The interruptible user functions of one executor.

    Each function is called through a `functools.partial`, which is implemented in C, needs no
    Python frame and takes about 15 ns per call. An interruption replaces the function inside the
    `partial`, at any point of a loop in Python or C: the current call completes, and the next one
    raises.

    `interrupt` may be called from another thread; the other methods belong to the stream thread.
    """

    def __init__(self) -> None:
        self._interruptible: list[_InterruptibleFunction] = []
        self._has_raised = False
        # Keeps alive the bound method that interrupted `partial`s refer to.
        self._raise = self._interrupted

    def add(self, function: _Function) -> _Function:
        """Return an interruptible version of a function."""
        call: partial[Any] = partial(function)
        # Keeps the referents of the `partial` alive during a call.
        state = (call.func, call.args, call.keywords, None)
        self._interruptible.append(_InterruptibleFunction(call, state))
        return cast("_Function", call)

    def interrupt(self) -> None:
        for each in self._interruptible:
            each.call.__setstate__((self._raise, (), {}, None))  # type: ignore[attr-defined]

    def restore(self) -> bool:
        """Re-enable calls. Returns whether a call has raised `BatchInterruptedError`."""
        for each in self._interruptible:
            each.call.__setstate__(each.state)  # type: ignore[attr-defined]
        has_raised, self._has_raised = self._has_raised, False
        return has_raised

    def _interrupted(self, *_: Any, **__: Any) -> Any:
        self._has_raised = True
        raise BatchInterruptedError

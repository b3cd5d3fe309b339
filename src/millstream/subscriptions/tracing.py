"""Who is told of each task on its way, for traces."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from inspect import isawaitable
from typing import Any, Protocol

from millstream.clock import Clock
from millstream.record import Headers
from millstream.subscriptions.complaints import Complaints
from millstream.subscriptions.context import Next, ProcessingContext

logger = logging.getLogger(__name__)


class TaskTrace(Protocol):
    """The trace of one task. Called by several threads, one after the other.

    Semantics: Decaton's `RecordTraceHandle`.

    Example:
        >>> class Printed:
        ...     def processing(self):
        ...         return contextlib.nullcontext()
        ...     def completed(self, outcome, error):
        ...         print("it is", outcome)
        ...     def retry_headers(self):
        ...         return ()
    """

    def processing(self) -> AbstractContextManager[Any]:
        """A context manager around the call of the processors: around all of what they do, if they
        are `async`, and else until the first one returns. Entered and left on that thread."""
        ...

    def completed(self, outcome: str, error: BaseException | None) -> None:
        """The task is done, and its offset is not waited for on its account any more.

        Args:
            outcome: "complete", "retry" or "fail".
            error: what it failed with, perhaps.
        """
        ...

    def retry_headers(self) -> Headers:
        """Headers that go with a retry, in place of those of the same names."""
        ...


class Tracing(Protocol):
    """Makes the traces of tasks. Whatever it raises is logged, and no concern of the task.

    It is shipped by pickling. Semantics: Decaton's `TracingProvider`.

    Example:
        >>> class Printing:
        ...     def trace_for(self, context, subscription):
        ...         print(subscription, "got", context.describe())
        ...         return Printed()
    """

    def trace_for(self, context: ProcessingContext, subscription: str) -> TaskTrace:
        """Begin the trace of a task, perhaps as a part of what its headers tell.

        Args:
            context: the task, which was taken and has not begun.
            subscription: its name.
        """
        ...


class Traces:
    """Tells a `Tracing` of the tasks of one partition; what it raises stays here.

    Args:
        tracing: the user's.
        subscription: its name.
        clock: for complaints.
    """

    def __init__(self, tracing: Tracing, subscription: str, clock: Clock) -> None:
        self._tracing = tracing
        self._subscription = subscription
        self._complaints = Complaints(logger, clock)

    def begin(self, contexts: Iterable[ProcessingContext]) -> None:
        """Tasks were taken."""
        for context in contexts:
            try:
                context.trace = self._tracing.trace_for(context, self._subscription)
            except Exception as error:
                self._complain("trace_for", error)

    def around(self, calls: tuple[Next, ...], is_async: bool) -> tuple[Next, ...]:
        """Processors with the trace around them."""
        first, *others = calls

        def call(context: ProcessingContext, task: Any) -> Any:
            entered = self._enter(context)
            try:
                result = first(context, task)
            except BaseException as error:
                self._leave(entered, error)
                raise
            self._leave(entered)
            return result

        async def call_async(context: ProcessingContext, task: Any) -> None:
            entered = self._enter(context)
            try:
                result = first(context, task)
                if isawaitable(result):
                    await result
            except BaseException as error:
                self._leave(entered, error)
                raise
            self._leave(entered)

        return (call_async if is_async else call, *others)

    def complete(self, contexts: Iterable[ProcessingContext]) -> None:
        """Tasks are done."""
        for context in contexts:
            if context.trace is None:
                continue
            try:
                context.trace.completed(context.outcome or "complete", context.error)
            except Exception as error:
                self._complain("completed", error)

    def retry_headers(self, context: ProcessingContext) -> Headers:
        """Headers for the retry of a task."""
        if context.trace is None:
            return ()
        try:
            return tuple(context.trace.retry_headers())
        except Exception as error:
            self._complain("retry_headers", error)
            return ()

    def _enter(self, context: ProcessingContext) -> AbstractContextManager[Any] | None:
        if context.trace is None:
            return None
        try:
            entered: AbstractContextManager[Any] = context.trace.processing()
            entered.__enter__()
        except Exception as error:
            self._complain("processing", error)
            return None
        return entered

    def _leave(
        self, entered: AbstractContextManager[Any] | None, error: BaseException | None = None
    ) -> None:
        if entered is None:
            return
        try:
            # What it answers does not count: the task's error stays an error.
            if error is None:
                entered.__exit__(None, None, None)
            else:
                entered.__exit__(type(error), error, error.__traceback__)
        except Exception as failure:
            if failure is not error:
                self._complain("processing", failure)

    def _complain(self, what: str, error: Exception) -> None:
        self._complaints.tell(
            f"{what}() of the tracing of subscription {self._subscription} failed", error
        )

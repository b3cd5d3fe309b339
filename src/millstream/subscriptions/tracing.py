"""Tracing hooks for tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import AbstractContextManager
from inspect import isawaitable
from typing import Any, Protocol

from millstream.clock import Clock
from millstream.record import Headers
from millstream.subscriptions.processing_context import ProcessingContext, ProcessorCall, TaskTrace
from millstream.subscriptions.rate_limited_log import RateLimitedLog

logger = logging.getLogger(__name__)


class Tracing(Protocol):
    """Creates the traces of tasks. Exceptions are logged and do not affect the task.

    Must be picklable. Semantics: Decaton's `TracingProvider`.

    Example:
        >>> class Printing:
        ...     def trace_for(self, context, subscription):
        ...         print(subscription, "got", context.describe())
        ...         return Printed()
    """

    def trace_for(self, context: ProcessingContext, subscription: str) -> TaskTrace:
        """Start the trace of a task, usually as a child of the trace in its headers.

        Args:
            context: the context of the task, which has not started yet.
            subscription: the name of the subscription.
        """


class TaskTraces:
    """Calls a `Tracing` for the tasks of one partition and logs its exceptions."""

    def __init__(self, tracing: Tracing, subscription: str, clock: Clock) -> None:
        self._tracing = tracing
        self._subscription = subscription
        self._log = RateLimitedLog(logger, clock)

    def begin(self, contexts: Iterable[ProcessingContext]) -> None:
        for context in contexts:
            try:
                context.trace = self._tracing.trace_for(context, self._subscription)
            except Exception as error:
                self._log_failure("trace_for", error)

    def wrap(self, calls: tuple[ProcessorCall, ...], is_async: bool) -> tuple[ProcessorCall, ...]:
        first, *others = calls

        def call(context: ProcessingContext, task: Any) -> Any:
            manager = self._enter(context)
            try:
                result = first(context, task)
            except BaseException as error:
                self._leave(manager, error)
                raise
            self._leave(manager)
            return result

        async def call_async(context: ProcessingContext, task: Any) -> None:
            manager = self._enter(context)
            try:
                result = first(context, task)
                if isawaitable(result):
                    await result
            except BaseException as error:
                self._leave(manager, error)
                raise
            self._leave(manager)

        return (call_async if is_async else call, *others)

    def complete(self, contexts: Iterable[ProcessingContext]) -> None:
        for context in contexts:
            if context.trace is None:
                continue
            try:
                context.trace.completed(context.outcome or "complete", context.error)
            except Exception as error:
                self._log_failure("completed", error)

    def retry_headers(self, context: ProcessingContext) -> Headers:
        if context.trace is None:
            return ()
        try:
            return tuple(context.trace.retry_headers())
        except Exception as error:
            self._log_failure("retry_headers", error)
            return ()

    def _enter(self, context: ProcessingContext) -> AbstractContextManager[Any] | None:
        if context.trace is None:
            return None
        try:
            manager: AbstractContextManager[Any] = context.trace.processing()
            manager.__enter__()
        except Exception as error:
            self._log_failure("processing", error)
            return None
        return manager

    def _leave(
        self, manager: AbstractContextManager[Any] | None, error: BaseException | None = None
    ) -> None:
        if manager is None:
            return
        try:
            # The result is ignored, so the context manager cannot suppress the error of the task.
            if error is None:
                manager.__exit__(None, None, None)
            else:
                manager.__exit__(type(error), error, error.__traceback__)
        except Exception as failure:
            if failure is not error:
                self._log_failure("processing", failure)

    def _log_failure(self, method: str, error: Exception) -> None:
        self._log.warning(
            f"{method}() of the tracing of subscription {self._subscription} failed", error
        )

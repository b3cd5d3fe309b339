"""Tasks that are processed after their processor has returned."""

from __future__ import annotations

from asyncio import CancelledError
from inspect import isawaitable
from typing import Any

from millstream.async_checks import checked_effect
from millstream.operators.concurrent.coroutine_runner import as_failure
from millstream.subscriptions.processing_context import (
    ProcessingContext,
    ProcessorCall,
    PushedContext,
    TaskHost,
    no_retry_topic,
)
from millstream.subscriptions.task_completion import Completion
from millstream.subscriptions.tasks.task_extraction import DecatonTask


class DeferredTaskContext(PushedContext):
    """The context of a deferred task, with which a retry can be requested later."""

    __slots__ = ("_completion", "is_entered")

    def __init__(self, parent: ProcessingContext, completion: Completion) -> None:
        super().__init__(parent)
        self._completion = completion
        #: Whether the task is being processed.
        self.is_entered = False

    def retry(self) -> None:
        """Retry the whole task after its processing.

        If the task is not in progress, it is retried immediately.
        """
        if not self.host.can_retry:
            raise no_retry_topic()
        self.outcome = "retry"
        if not self.is_entered:
            self._completion.retry()


class DeferredTask:
    """A deferred task that is processed later, on any thread.

    Raises:
        IllegalStateError: the task was already deferred.
    """

    __slots__ = ("_calls", "_host", "completion", "context", "task")

    def __init__(self, context: ProcessingContext, task: Any) -> None:
        self.task = task
        self.completion: Completion = context.defer_completion()
        self.context = DeferredTaskContext(context, self.completion)
        self._host: TaskHost = context.host
        self._calls: tuple[ProcessorCall, ...] = context.further

    @property
    def is_open(self) -> bool:
        """Whether to process the task.

        False if the task has timed out or its partition is halted.
        """
        return self._host.is_open and not self.completion.is_done

    def enter(self) -> bool:
        """Begin processing the task. Returns whether this is still allowed.

        If so, `leave` must be called afterwards.
        """
        self.context.is_entered = not self.completion.is_done and self._host.enter()
        return self.context.is_entered

    def leave(self) -> None:
        self.context.is_entered = False
        if self.context.outcome == "retry":
            # The retry may have been requested after the caller checked.
            self.completion.retry()
        self._host.leave()

    @property
    def has_next(self) -> bool:
        return bool(self._calls)

    def count(self, name: str) -> None:
        self._host.count(name, 1)

    def push(self) -> None:
        """Call the next processor, which is not `async`, and complete the task."""
        pushed = self._pushed()
        try:
            checked_effect(self._calls[0](pushed, pushed.task))
        except BaseException as error:
            self._end(pushed, error)
        else:
            self._end(pushed, None)

    async def push_async(self) -> None:
        """Call the next processor, which is `async`, and complete the task."""
        pushed = self._pushed()
        try:
            result = self._calls[0](pushed, pushed.task)
            if isawaitable(result):
                await result
        except (Exception, CancelledError) as error:
            self._end(pushed, as_failure(error))
        else:
            self._end(pushed, None)

    def _pushed(self) -> ProcessingContext:
        context = self.context
        task = DecatonTask(context.metadata, self.task, context.payload)
        host = _PushedTaskHost(self._host, self.completion)
        pushed = ProcessingContext(
            host, context.batch, context.index, task, self._calls, context.taken_ns
        )
        pushed.trace = context.trace
        return pushed

    def _end(self, pushed: ProcessingContext, error: BaseException | None) -> None:
        if pushed.returned(error):
            self.completion.land(pushed.outcome or "complete", pushed.error)


class _PushedTaskHost:
    """The `TaskHost` of a task that was pushed later.

    Delegates everything but the completion.
    """

    def __init__(self, host: TaskHost, completion: Completion) -> None:
        self._host = host
        self._completion = completion
        self.clock = host.clock
        self.subscription_id = host.subscription_id
        self.key_serde = host.key_serde
        self.can_retry = host.can_retry
        self.track_deadline = host.track_deadline
        self.report_leak = host.report_leak
        self.enter = host.enter
        self.leave = host.leave
        self.count = host.count

    @property
    def deferred_timeout_ms(self) -> int | None:
        return self._host.deferred_timeout_ms

    @property
    def is_open(self) -> bool:
        return self._host.is_open

    def task_completed(self, context: ProcessingContext) -> None:
        self._completion.land(context.outcome or "complete", context.error)

"""Tasks that are gone on with after their processor has returned, by whoever has gathered them."""

from __future__ import annotations

from asyncio import CancelledError
from inspect import isawaitable
from typing import Any

from millstream.clock import Clock
from millstream.operators.apart.coroutines import as_failure
from millstream.serdes import Serde
from millstream.subscriptions.completion import Completion
from millstream.subscriptions.context import (
    Host,
    Next,
    ProcessingContext,
    PushedContext,
    no_retry_topic,
)
from millstream.subscriptions.tasks.extraction import DecatonTask
from millstream.unawaited import checked_effect


class GatheredContext(PushedContext):
    """The same task, as it is seen where several of them are worked on at a time: who has gathered
    them has deferred it, and asks later whether it is to be retried.

    Attributes:
        is_entered: whether something is being done with it that has not returned.
    """

    __slots__ = ("_completion", "is_entered")

    def __init__(self, above: ProcessingContext, completion: Completion) -> None:
        super().__init__(above)
        self._completion = completion
        self.is_entered = False

    def retry(self) -> None:
        """Retry all of it: when what is done with it has returned, or now if it has."""
        if not self.host.can_retry:
            raise no_retry_topic()
        self.outcome = "retry"
        if not self.is_entered:
            self._completion.retry()


class Later:
    """A task that is deferred, to be gone on with later, on any thread.

    Args:
        context: where it came from.
        task: what is handed on: it, or what was made of it.

    Attributes:
        context: where it came from; its `outcome` is "retry" once that was asked for.
        task: what is handed on.
        completion: completes it.

    Raises:
        IllegalStateError: it was deferred before.
    """

    __slots__ = ("_calls", "_host", "completion", "context", "task")

    def __init__(self, context: ProcessingContext, task: Any) -> None:
        self.task = task
        self.completion: Completion = context.defer_completion()
        self.context = GatheredContext(context, self.completion)
        self._host: Host = context.host
        self._calls: tuple[Next, ...] = context.further

    @property
    def is_open(self) -> bool:
        """Whether it is still to be processed: not once its time is over, or its partition is being
        given up."""
        return self._host.is_open and not self.completion.is_done

    def enter(self) -> bool:
        """Whether it still may be processed; if so, `leave` follows."""
        self.context.is_entered = not self.completion.is_done and self._host.enter()
        return self.context.is_entered

    def leave(self) -> None:
        """What was done with it has returned."""
        self.context.is_entered = False
        if self.context.outcome == "retry":
            # Perhaps asked for after whoever did it has looked.
            self.completion.retry()
        self._host.leave()

    @property
    def has_next(self) -> bool:
        """Whether there is a processor to push it to."""
        return bool(self._calls)

    def count(self, name: str) -> None:
        """Add one to a counter of its partition."""
        self._host.count(name, 1)

    def push(self) -> None:
        """Call the next processor, which is not `async`; the task is completed when that is done
        with it."""
        pushed = self._pushed()
        try:
            checked_effect(self._calls[0](pushed, pushed.task))
        except BaseException as error:
            self._end(pushed, error)
        else:
            self._end(pushed, None)

    async def push_async(self) -> None:
        """The same for one that is."""
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
        host = _LaterHost(self._host, self.completion)
        pushed = ProcessingContext(
            host, context.batch, context.index, task, self._calls, context.taken_ns
        )
        pushed.trace = context.trace
        return pushed

    def _end(self, pushed: ProcessingContext, error: BaseException | None) -> None:
        if pushed.returned(error):
            self.completion.land(pushed.outcome or "complete", pushed.error)


class _LaterHost:
    """The partition of a task that was pushed later: as before, but for its end. It is `Host`."""

    def __init__(self, host: Host, completion: Completion) -> None:
        self._host = host
        self._completion = completion
        self.keep = host.keep
        self.leaked = host.leaked
        self.enter = host.enter
        self.leave = host.leave
        self.count = host.count

    @property
    def clock(self) -> Clock:
        return self._host.clock

    @property
    def subscription_id(self) -> str:
        return self._host.subscription_id

    @property
    def key_serde(self) -> Serde[Any] | None:
        return self._host.key_serde

    @property
    def can_retry(self) -> bool:
        return self._host.can_retry

    @property
    def deferred_timeout_ms(self) -> int | None:
        return self._host.deferred_timeout_ms

    @property
    def is_open(self) -> bool:
        return self._host.is_open

    def landed(self, context: ProcessingContext) -> None:
        """The deferred task whose processor has returned is done: so is the one it stands for."""
        self._completion.land(context.outcome or "complete", context.error)

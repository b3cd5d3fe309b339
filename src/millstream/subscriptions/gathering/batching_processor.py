"""A processor that is given lists of tasks."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from millstream.durations import milliseconds
from millstream.operators.apart.coroutines import as_failure
from millstream.subscriptions.completion import Completion
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.gathering.alarm import CLOCK, LoopAlarm, ThreadAlarm
from millstream.subscriptions.gathering.batching import BatchingWindow
from millstream.subscriptions.gathering.later import Later
from millstream.subscriptions.processors import Scope, Scoped, TaskProcessor
from millstream.unawaited import checked_effect, is_asynchronous, refuse_generator


class BatchedTask(NamedTuple):
    """One of the tasks that a `BatchingProcessor` is given.

    Args:
        task: as it was decoded.
        context: where it came from; `context.retry()` lets it be tried again.
        completion: completes it by itself, or lets it fail by itself.

    Example:
        >>> def store_all(tasks: list[BatchedTask]) -> None:
        ...     database.insert([each.task for each in tasks])
    """

    task: Any
    context: ProcessingContext
    completion: Completion


#: The user's: takes a list of tasks.
Batches = Callable[[list[BatchedTask]], Any]


class BatchingProcessor(Scoped):
    """Hands tasks to a function as lists: as soon as there are `capacity`, or when the first has
    waited for `linger`. The last processor of a chain.

    One list at a time for each instance, in the order of the tasks, so the order of keys is kept;
    how many instances there are, the scope says. When the function has returned, the tasks are
    complete; if it raises, those that it has not completed one by one have failed, each as if its
    processor had raised. What waits when a partition is given up is processed by its next owner.

    Semantics: Decaton's `BatchingProcessor`, whose lists are one longer, wait from the last list
    instead of from the first task, and come no more after an exception.

    Args:
        function: takes a list of `BatchedTask`; plain, on the thread of the last task of a list or
            on one of its own, or `async`.
        capacity: how many tasks a list has at most, no more than `max_pending_records`.
        linger: how long the first task of a list waits for others.
        scope: how many tasks share an instance; not `Scope.UNIT` if the function is `async`.
        completes: whether tasks are complete when the function has returned; else it completes
            each itself, then or later, by its completion.

    Raises:
        ConfigError: `capacity` or `linger` is out of bounds.

    Example:
        >>> def store_all(tasks: list[BatchedTask]) -> None:
        ...     database.insert([each.task for each in tasks])
        >>> processor = BatchingProcessor(
        ...     store_all, capacity=500, linger=timedelta(milliseconds=100)
        ... )
    """

    def __init__(
        self,
        function: Batches,
        *,
        capacity: int,
        linger: timedelta,
        scope: Scope = Scope.PARTITION,
        completes: bool = True,
    ) -> None:
        linger_ms = milliseconds("BatchingProcessor", "linger", linger, least_ms=0)
        BatchingWindow[Any](capacity=capacity, linger_ms=linger_ms)
        refuse_generator("BatchingProcessor", "function", function)
        asynchronous = is_asynchronous(function)
        kind = _AsyncBatching if asynchronous else _Batching
        supplier = partial(kind, function, capacity, linger_ms, completes)
        super().__init__(supplier, scope)
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "_asynchronous", asynchronous)

    #: How many tasks a list has at most.
    capacity: int
    _asynchronous: bool

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return self._asynchronous


class _Lists(TaskProcessor):
    """What the two kinds have in common."""

    def __init__(self, function: Batches, capacity: int, linger_ms: int, completes: bool) -> None:
        self._function = function
        self._completes = completes
        self._window: BatchingWindow[Later] = BatchingWindow(capacity=capacity, linger_ms=linger_ms)
        #: Lists that are full, or due.
        self._ready: deque[list[Later]] = deque()

    def _add(self, context: ProcessingContext, task: Any) -> bool:
        """One more task; whether it makes a list full."""
        full = self._window.add(Later(context, task), CLOCK.monotonic_ms())
        if full is not None:
            self._ready.append(full)
        return full is not None

    def _take_due(self) -> None:
        due = self._window.due(CLOCK.monotonic_ms())
        if due is not None:
            self._ready.append(due)

    def _end(self, tasks: Sequence[Later], error: BaseException | None) -> None:
        for each in tasks:
            if error is not None:
                each.completion.fail(error)
            elif each.context.outcome == "retry":
                each.completion.retry()
            elif self._completes:
                each.completion.complete()
            each.leave()


class _Batching(_Lists):
    """For plain functions. Usable from several threads."""

    def __init__(self, function: Batches, capacity: int, linger_ms: int, completes: bool) -> None:
        super().__init__(function, capacity, linger_ms, completes)
        self._lock = threading.Lock()
        self._calling = threading.Lock()
        self._alarm = ThreadAlarm(self._next_due_ms, self._ring)

    def process(self, context: ProcessingContext, task: Any) -> None:
        """Gather a task."""
        with self._lock:
            is_full = self._add(context, task)
            is_first = len(self._window) == 1
        if is_full:
            self._call()
        elif is_first:
            self._alarm.set()

    def close(self) -> None:
        """What waits is given up."""
        self._alarm.close()
        with self._lock:
            self._window.take()
            self._ready.clear()

    def _next_due_ms(self) -> int | None:
        with self._lock:
            return self._window.next_due_ms()

    def _ring(self) -> None:
        with self._lock:
            self._take_due()
        self._call()

    def _call(self) -> None:
        with self._calling:
            while True:
                with self._lock:
                    if not self._ready:
                        return
                    tasks = self._ready.popleft()
                wanted = [each for each in tasks if each.enter()]
                if not wanted:
                    continue
                error: BaseException | None = None
                try:
                    checked_effect(self._function(_batch(wanted)))
                except BaseException as failure:
                    error = failure
                self._end(wanted, error)


class _AsyncBatching(_Lists):
    """For coroutine functions. On the event loop only."""

    def __init__(self, function: Batches, capacity: int, linger_ms: int, completes: bool) -> None:
        super().__init__(function, capacity, linger_ms, completes)
        self._calling = asyncio.Lock()
        self._alarm = LoopAlarm(self._next_due_ms, self._ring)

    async def process(self, context: ProcessingContext, task: Any) -> None:
        """Gather a task."""
        if self._add(context, task):
            await self._call()
        else:
            self._alarm.set()

    def close(self) -> None:
        """What waits is given up, by its host as well."""
        self._alarm.close()

    def _next_due_ms(self) -> int | None:
        return CLOCK.monotonic_ms() if self._ready else self._window.next_due_ms()

    async def _ring(self) -> None:
        self._take_due()
        await self._call()

    async def _call(self) -> None:
        try:
            async with self._calling:
                while self._ready:
                    wanted = [each for each in self._ready.popleft() if each.enter()]
                    if wanted:
                        await self._call_with(wanted)
        finally:
            # Who calls belongs to one partition, which may be given up, and tasks to others.
            if self._ready:
                self._alarm.hasten()

    async def _call_with(self, tasks: list[Later]) -> None:
        error: BaseException | None = None
        try:
            await self._function(_batch(tasks))
        except BaseException as failure:
            if _is_given_up():
                self._put_back(tasks)
                raise
            error = as_failure(failure)
        self._end(tasks, error)

    def _put_back(self, tasks: Sequence[Later]) -> None:
        for each in tasks:
            each.leave()
        self._ready.appendleft([each for each in tasks if not each.completion.is_done])


def _is_given_up() -> bool:
    """Whether who called is cancelled, since its partition is given up."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _batch(tasks: Sequence[Later]) -> list[BatchedTask]:
    return [BatchedTask(each.task, each.context, each.completion) for each in tasks]

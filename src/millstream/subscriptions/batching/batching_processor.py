"""A processor that passes tasks in batches to a function."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.async_checks import checked_effect, is_asynchronous, reject_generator
from millstream.durations import milliseconds
from millstream.errors import ConfigError
from millstream.operators.concurrent.coroutine_runner import as_failure
from millstream.subscriptions.batching.deferred_tasks import DeferredTask
from millstream.subscriptions.batching.linger_timer import (
    CLOCK,
    EventLoopLingerTimer,
    ThreadLingerTimer,
)
from millstream.subscriptions.processing_context import ProcessingContext
from millstream.subscriptions.task_completion import Completion
from millstream.subscriptions.task_processors import Scope, Scoped, TaskProcessor

T = TypeVar("T")


class BatchingWindow(Generic[T]):
    """Collects items until there are `capacity` of them, or the first one is due.

    Holds fewer than `capacity` items. Decaton's `BatchingProcessor` flushes one item later, and
    measures the linger time from its last flush instead of the first item.

    Raises:
        ConfigError: an argument is out of bounds.
    """

    __slots__ = ("_capacity", "_items", "_linger_ms", "_since_ms")

    def __init__(self, *, capacity: int, linger_ms: int) -> None:
        self._items: list[T] = []
        self._since_ms = 0
        self._capacity = 1
        self._linger_ms = 0
        self.change(capacity=capacity, linger_ms=linger_ms)

    def __len__(self) -> int:
        return len(self._items)

    def change(self, *, capacity: int, linger_ms: int) -> None:
        """Change the bounds.

        If the items already reach the new capacity, the next call returns them.

        Raises:
            ConfigError: an argument is out of bounds; the bounds stay unchanged.
        """
        for name, value, least in (("capacity", capacity, 1), ("linger_ms", linger_ms, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    f"A batching window got {name}={value!r}, but it must be an int of at least "
                    f"{least}."
                )
        self._capacity = capacity
        self._linger_ms = linger_ms

    def add(self, item: T, now_ms: int) -> list[T] | None:
        """Add an item. Returns the batch if it is full."""
        if not self._items:
            self._since_ms = now_ms
        self._items.append(item)
        return self.take() if len(self._items) >= self._capacity else None

    def add_all(self, items: Sequence[T], now_ms: int) -> list[list[T]]:
        if not self._items:
            self._since_ms = now_ms
        waiting = [*self._items, *items]
        whole = len(waiting) - len(waiting) % self._capacity
        full = [
            waiting[start : start + self._capacity] for start in range(0, whole, self._capacity)
        ]
        if full:
            self._since_ms = now_ms
        self._items = waiting[whole:]
        return full

    def due(self, now_ms: int) -> list[T] | None:
        """Return the batch if it is full or the first item has waited long enough."""
        due_ms = self.next_due_ms()
        return None if due_ms is None or due_ms > now_ms else self.take()

    def next_due_ms(self) -> int | None:
        """Return when `due` returns a batch, on the clock of `add`; None if empty."""
        if not self._items:
            return None
        enough = len(self._items) >= self._capacity
        return self._since_ms if enough else self._since_ms + self._linger_ms

    def take(self) -> list[T]:
        taken, self._items = self._items, []
        return taken


class BatchedTask(NamedTuple):
    """A task in the batch of a `BatchingProcessor`.

    Args:
        task: the deserialized task.
        context: the context of the task; `context.retry()` requests a retry.
        completion: completes or fails this task individually.

    Example:
        >>> def store_all(tasks: list[BatchedTask]) -> None:
        ...     database.insert([each.task for each in tasks])
    """

    task: Any
    context: ProcessingContext
    completion: Completion


#: The user's function, which takes a list of tasks.
BatchFunction = Callable[[list[BatchedTask]], Any]


class BatchingProcessor(Scoped):
    """Calls a function with batches of `capacity` tasks, or fewer after `linger`.

    Must be the last processor of a chain. An instance processes one batch at a time, in the order
    of the tasks, so the tasks of each key stay in order; `scope` determines the number of
    instances. When the function returns, the tasks are complete; if it raises, the tasks that it
    has not completed individually fail as if their processor had raised. Tasks that are still
    waiting when a partition is released are processed by its next owner.

    Semantics: Decaton's `BatchingProcessor`, except that Decaton's batches have one more task and
    linger from the last batch instead of the first task, and that Decaton stops batching after an
    exception.

    Args:
        function: takes a list of `BatchedTask`; may be `async`. A plain function runs on the thread
            of the last task of the batch or on a timer thread.
        capacity: the maximum size of a batch, at most `max_pending_records`.
        linger: the maximum wait of the first task of a batch.
        scope: which tasks share an instance; not `Scope.UNIT` if the function is `async`.
        completes: whether tasks are complete when the function returns; otherwise the function
            completes each one through its completion, at any time.

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
        function: BatchFunction,
        *,
        capacity: int,
        linger: timedelta,
        scope: Scope = Scope.PARTITION,
        completes: bool = True,
    ) -> None:
        linger_ms = milliseconds("BatchingProcessor", "linger", linger, min_ms=0)
        BatchingWindow[Any](capacity=capacity, linger_ms=linger_ms)
        reject_generator("BatchingProcessor", "function", function)
        asynchronous = is_asynchronous(function)
        kind = _AsyncBatching if asynchronous else _ThreadBatching
        supplier = partial(kind, function, capacity, linger_ms, completes)
        super().__init__(supplier, scope)
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "_asynchronous", asynchronous)

    #: The maximum size of a batch.
    capacity: int
    _asynchronous: bool

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function."""
        return self._asynchronous


@dataclass(eq=False)
class _BatchingBase(TaskProcessor):
    function: BatchFunction
    capacity: int
    linger_ms: int
    completes: bool

    def __post_init__(self) -> None:
        self._window: BatchingWindow[DeferredTask] = BatchingWindow(
            capacity=self.capacity, linger_ms=self.linger_ms
        )
        #: Batches that are full or due.
        self._ready: deque[list[DeferredTask]] = deque()

    def _add(self, context: ProcessingContext, task: Any) -> bool:
        full = self._window.add(DeferredTask(context, task), CLOCK.monotonic_ms())
        if full is not None:
            self._ready.append(full)
        return full is not None

    def _take_due(self) -> None:
        due = self._window.due(CLOCK.monotonic_ms())
        if due is not None:
            self._ready.append(due)

    def _end(self, tasks: Sequence[DeferredTask], error: BaseException | None) -> None:
        for each in tasks:
            if error is not None:
                each.completion.fail(error)
            elif each.context.outcome == "retry":
                each.completion.retry()
            elif self.completes:
                each.completion.complete()
            each.leave()


class _ThreadBatching(_BatchingBase):
    """The implementation for plain functions. Thread-safe."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lock = threading.Lock()
        self._calling = threading.Lock()
        self._timer = ThreadLingerTimer(self._next_due_ms, self._on_due)

    def process(self, context: ProcessingContext, task: Any) -> None:
        with self._lock:
            is_full = self._add(context, task)
            is_first = len(self._window) == 1
        if is_full:
            self._call()
        elif is_first:
            self._timer.set()

    def close(self) -> None:
        self._timer.close()
        with self._lock:
            self._window.take()
            self._ready.clear()

    def _next_due_ms(self) -> int | None:
        with self._lock:
            return self._window.next_due_ms()

    def _on_due(self) -> None:
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
                entered = [each for each in tasks if each.enter()]
                if not entered:
                    continue
                error: BaseException | None = None
                try:
                    checked_effect(self.function(_batch(entered)))
                except BaseException as failure:
                    error = failure
                self._end(entered, error)


class _AsyncBatching(_BatchingBase):
    """The implementation for coroutine functions. Runs only on the event loop."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._calling = asyncio.Lock()
        self._timer = EventLoopLingerTimer(self._next_due_ms, self._on_due)

    async def process(self, context: ProcessingContext, task: Any) -> None:
        if self._add(context, task):
            await self._call()
        else:
            self._timer.set()

    def close(self) -> None:
        """Close the timer. The partition discards the waiting tasks."""
        self._timer.close()

    def _next_due_ms(self) -> int | None:
        return CLOCK.monotonic_ms() if self._ready else self._window.next_due_ms()

    async def _on_due(self) -> None:
        self._take_due()
        await self._call()

    async def _call(self) -> None:
        try:
            async with self._calling:
                while self._ready:
                    entered = [each for each in self._ready.popleft() if each.enter()]
                    if entered:
                        await self._call_with(entered)
        finally:
            # If the partition of the caller was released, the timer processes the remaining
            # batches, which may contain tasks of other partitions.
            if self._ready:
                self._timer.reschedule()

    async def _call_with(self, tasks: list[DeferredTask]) -> None:
        error: BaseException | None = None
        try:
            await self.function(_batch(tasks))
        except BaseException as failure:
            if _is_cancelled():
                self._put_back(tasks)
                raise
            error = as_failure(failure)
        self._end(tasks, error)

    def _put_back(self, tasks: Sequence[DeferredTask]) -> None:
        for each in tasks:
            each.leave()
        self._ready.appendleft([each for each in tasks if not each.completion.is_done])


def _is_cancelled() -> bool:
    """Return whether the calling task was canceled.

    A task is canceled when its partition is being released.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _batch(tasks: Sequence[DeferredTask]) -> list[BatchedTask]:
    return [BatchedTask(each.task, each.context, each.completion) for each in tasks]

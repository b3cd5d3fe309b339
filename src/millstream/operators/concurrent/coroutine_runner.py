"""A runner that awaits `async def` functions on the event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millstream.operators.concurrent.concurrent_calls import Call, CompletedCalls, CompletionSignal
from millstream.operators.concurrent.event_loop import event_loop
from millstream.record import TaskId


def as_failure(error: BaseException) -> BaseException:
    """Convert a cancellation by user code to an Exception.

    The cancellation would bypass all handlers.
    """
    if not isinstance(error, asyncio.CancelledError):
        return error
    failure = RuntimeError("the call was canceled by code that it awaited, not by the task")
    failure.__cause__ = error
    return failure


class CoroutineRunner:
    """Runs calls as coroutines, in order within each unit. Implements `CallRunner`.

    Each worker coroutine runs one call after another, because a separate coroutine for each call
    would take 3 us more per call.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        max_concurrent: int,
        timeout_ms: int | None,
        signal: CompletionSignal,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._max_concurrent = max_concurrent
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1_000
        self._signal = signal
        self._completed = CompletedCalls(signal)
        self._loop = event_loop()
        self._halted = False
        #: The number of started calls that have not completed.
        self._started = 0
        # The attributes below are used only on the thread of the event loop.
        self._ready: deque[Call] = deque()
        #: Calls that wait for another call of their unit, which is running or ready.
        self._queues: dict[Any, deque[Call]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def task_id(self) -> TaskId | None:
        return self._signal.task_id

    @property
    def has_completed(self) -> bool:
        return bool(self._completed)

    @property
    def is_running(self) -> bool:
        return self._started > 0

    def start(self, calls: Sequence[Call]) -> None:
        self._loop.call_soon_threadsafe(self._accept, calls)

    def take_completed(self) -> list[Call]:
        return self._completed.take()

    def halt(self) -> None:
        self._halted = True

    def close(self, *, cancel: bool = True) -> None:
        self._halted = self._closed = True
        self._loop.call_soon_threadsafe(self._cancel, cancel)

    def _accept(self, calls: Sequence[Call]) -> None:
        if self._halted:
            return
        queues, ready = self._queues, self._ready
        for call in calls:
            unit = call.unit
            if unit is None:
                ready.append(call)
            elif (queue := queues.get(unit)) is not None:
                queue.append(call)
            else:
                queues[unit] = deque()
                ready.append(call)
        for _ in range(min(len(ready), self._max_concurrent - len(self._running))):
            task = self._loop.create_task(self._run_worker())
            self._running.add(task)
            # A task that is canceled before its first step does not run the `finally` of
            # `_run_worker`.
            task.add_done_callback(self._running.discard)

    async def _run_worker(self) -> None:
        try:
            await self._work()
        finally:
            # The worker is removed in the same step of the event loop in which it found no more
            # calls, so calls that arrive in a later step start a new worker.
            self._running.discard(asyncio.current_task())

    async def _work(self) -> None:
        ready, arguments = self._ready, self._arguments
        while ready:
            call: Call | None = ready.popleft()
            while call is not None:
                # Incremented before `_halted` is read. Callers of `halt` set `_halted` before they
                # read `_started`, so they never miss a running call.
                self._started += 1
                if self._halted:
                    self._started -= 1
                    return
                try:
                    call.result = await self._await_result(arguments(call))
                except BaseException as error:
                    # Includes SystemExit, which would stop the event loop. The error is raised on
                    # the thread of the task instead.
                    call.error = as_failure(error)
                if not self._closed:
                    self._completed.add(call)
                self._started -= 1
                if self._halted:
                    # After `close`, no caller waits for completions.
                    if not self._closed:
                        self._signal.notify()
                    return
                call = self._next(call.unit)

    async def _await_result(self, arguments: tuple[Any, ...]) -> Any:
        awaitable = self._function(*arguments)
        if not inspect.isawaitable(awaitable):
            raise TypeError(
                f"the function returned {type(awaitable).__name__}, which is not awaitable"
            )
        if self._timeout_s is None:
            return await awaitable
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await awaitable
        except TimeoutError as error:
            if not limit.expired():
                # The error comes from user code, not from this timeout.
                raise
            raise TimeoutError(f"no result within {self._timeout_s * 1_000:.0f} ms") from error

    def _next(self, unit: Any) -> Call | None:
        if unit is None:
            return None
        queue = self._queues[unit]
        if queue:
            return queue.popleft()
        del self._queues[unit]
        return None

    def _cancel(self, cancel: bool) -> None:
        self._ready.clear()
        self._queues.clear()
        if cancel:
            for task in list(self._running):
                task.cancel()

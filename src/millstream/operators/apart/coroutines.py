"""`async def` functions, many at a time on the event loop, those of a unit one after the other."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millstream.operators.apart.calls import Call
from millstream.operators.apart.event_loop import event_loop
from millstream.operators.apart.landing import Ended, Landing


def as_failure(error: BaseException) -> BaseException:
    """What to tell of an error of the user's: one that cancels would go past all handlers."""
    if not isinstance(error, asyncio.CancelledError):
        return error
    failure = RuntimeError("the call was cancelled, and not by the task: what it awaited was")
    failure.__cause__ = error
    return failure


class Coroutines:
    """Takes what `Apart.coroutines` takes, and where to tell that calls have ended. It is `Units`.

    A few coroutines take call after call, since one a call would cost 3 us more.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Callable[[Call], tuple[Any, ...]],
        most: int,
        timeout_ms: int | None,
        landing: Landing,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._most = most
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1_000
        self._landing = landing
        self._ended = Ended(landing)
        self._loop = event_loop()
        self._halted = False
        #: Calls that were begun and have not ended.
        self._begun = 0
        # From here on all belongs to the loop's thread.
        self._ready: deque[Call] = deque()
        #: Those that wait for another one of their unit, which runs or is ready.
        self._queues: dict[Any, deque[Call]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def have_ended(self) -> bool:
        """Whether calls have ended since `ended`."""
        return bool(self._ended)

    @property
    def are_running(self) -> bool:
        """Whether calls were begun that are not to be had from `ended` yet."""
        return self._begun > 0

    def start(self, calls: Sequence[Call]) -> None:
        """Make these calls as soon as there is room."""
        self._loop.call_soon_threadsafe(self._accept, calls)

    def ended(self) -> list[Call]:
        """The calls that have ended since the last time."""
        return self._ended.take()

    def halt(self) -> None:
        """Begin no more."""
        self._halted = True

    def close(self, *, cancel: bool = True) -> None:
        """Begin no more, and cancel what runs."""
        self._halted = self._closed = True
        self._loop.call_soon_threadsafe(self._give_up, cancel)

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
        for _ in range(min(len(ready), self._most - len(self._running))):
            task = self._loop.create_task(self._work_and_leave())
            self._running.add(task)
            # For one that is cancelled before its first step.
            task.add_done_callback(self._running.discard)

    async def _work_and_leave(self) -> None:
        try:
            await self._work()
        finally:
            # In the step that found nothing to do: calls that come in the next one must not count
            # on this worker.
            self._running.discard(asyncio.current_task())

    async def _work(self) -> None:
        ready, arguments = self._ready, self._arguments
        while ready:
            call: Call | None = ready.popleft()
            while call is not None:
                # Before it is asked whether to begin: whoever halts looks at the two the other way.
                self._begun += 1
                if self._halted:
                    self._begun -= 1
                    return
                try:
                    call.result = await self._called(arguments(call))
                except BaseException as error:
                    # SystemExit, too, which would end the loop: the task's thread raises it.
                    call.error = as_failure(error)
                if not self._closed:
                    self._ended.add(call)
                self._begun -= 1
                if self._halted:
                    # Who is closed may have ended by itself, but nobody waits for it.
                    if not self._closed:
                        self._landing.tell()
                    return
                call = self._next(call.unit)

    async def _called(self, arguments: tuple[Any, ...]) -> Any:
        awaitable = self._function(*arguments)
        if not inspect.isawaitable(awaitable):
            raise TypeError(f"the function gave {type(awaitable).__name__}, which is not awaitable")
        if self._timeout_s is None:
            return await awaitable
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await awaitable
        except TimeoutError as error:
            if not limit.expired():
                # The user's own, of something shorter.
                raise
            raise TimeoutError(f"no result within {self._timeout_s * 1_000:.0f} ms") from error

    def _next(self, unit: Any) -> Call | None:
        """The call that has waited for one of its unit."""
        if unit is None:
            return None
        queue = self._queues[unit]
        if queue:
            return queue.popleft()
        del self._queues[unit]
        return None

    def _give_up(self, cancel: bool) -> None:
        self._ready.clear()
        self._queues.clear()
        if cancel:
            for task in list(self._running):
                task.cancel()

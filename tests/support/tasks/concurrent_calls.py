"""Concurrent calls that a test completes, in any order; and waiting for completed calls."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millstream.operators.concurrent.concurrent_calls import Call, CallRunner
from support.waiting import wait_for

Arguments = Callable[[Call], tuple[Any, ...]]


class ManualCalls:
    """All calls of a task. Implements `CallRunners`.

    Nothing runs by itself: `end` executes a started call.

    Attributes:
        begun: the running calls in the order of their start.
        on_wait: called when the task waits for a completion.
    """

    def __init__(self) -> None:
        self.begun: list[tuple[ManualRunner, Call]] = []
        self.created: list[ManualRunner] = []
        self.notified = 0
        self.on_wait: Callable[[], None] = lambda: None

    def make_coroutine_runner(
        self,
        function: Callable[..., Any],
        arguments: Arguments,
        most: int,
        timeout_ms: int | None,
    ) -> ManualRunner:
        return self.make_thread_runner(function, arguments, most)

    def make_thread_runner(
        self, function: Callable[..., Any], arguments: Arguments, most: int
    ) -> ManualRunner:
        self.created.append(ManualRunner(self, function, arguments, most))
        return self.created[-1]

    def began(self, runner: ManualRunner, call: Call) -> None:
        """Note that a call has started."""
        self.begun.append((runner, call))

    def notify(self) -> None:
        self.notified += 1

    def clear(self) -> None:
        """Do nothing: calls never complete between a check and a wait."""

    def wait(self, timeout_ms: int) -> bool:
        self.on_wait()
        return True

    def end(self, index: int = 0) -> Call:
        """Execute and complete a running call."""
        runner, call = self.begun.pop(index)
        runner.make(call)
        return call

    def end_all(self) -> None:
        """Execute and complete all calls, including queued ones."""
        while self.begun:
            self.end()


class ManualRunner:
    """The calls of one operator. Implements `CallRunner`."""

    def __init__(
        self,
        held: ManualCalls,
        function: Callable[..., Any],
        arguments: Arguments,
        most: int,
    ) -> None:
        self._held = held
        self._function = function
        self._arguments = arguments
        self._most = most
        self._ready: deque[Call] = deque()
        self._queues: dict[Any, deque[Call]] = {}
        self._completed: list[Call] = []
        self._running = 0
        self._is_halted = False
        self.is_closed = False

    def start(self, calls: Sequence[Call]) -> None:
        assert not self.is_closed
        for call in calls:
            if call.unit is None:
                self._ready.append(call)
            elif (queue := self._queues.get(call.unit)) is not None:
                queue.append(call)
            else:
                self._queues[call.unit] = deque()
                self._ready.append(call)
        self._begin()

    def _begin(self) -> None:
        while self._ready and self._running < self._most and not self._is_halted:
            self._running += 1
            self._held.began(self, self._ready.popleft())

    def take_completed(self) -> list[Call]:
        completed, self._completed = self._completed, []
        return completed

    @property
    def has_completed(self) -> bool:
        return bool(self._completed)

    def halt(self) -> None:
        self._is_halted = True

    @property
    def is_running(self) -> bool:
        return self._running > 0

    def close(self, *, cancel: bool = True) -> None:
        """Drop queued calls; a test may still end running ones, whose results are ignored."""
        self.is_closed = True
        self._ready.clear()
        self._queues.clear()

    def make(self, call: Call) -> None:
        """Execute a running call."""
        try:
            call.result = result_of(self._function(*self._arguments(call)))
        except Exception as error:
            call.error = error
        self._running -= 1
        if self.is_closed:
            return
        self._completed.append(call)
        self._held.notify()
        if call.unit is not None:
            queue = self._queues[call.unit]
            if queue:
                self._ready.append(queue.popleft())
            else:
                del self._queues[call.unit]
        self._begin()


def result_of(result: Any) -> Any:
    """The result of a function or of its coroutine, which must not wait."""
    if not inspect.iscoroutine(result):
        return result
    try:
        result.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a coroutine that waits cannot be executed synchronously")


def completed_calls(runner: CallRunner, count: int) -> list[Call]:
    """Wait until this many calls have completed, and return them in the order of completion."""
    found: list[Call] = []

    def is_enough() -> bool:
        found.extend(runner.take_completed())
        return len(found) >= count

    wait_for(is_enough, what=f"{count} calls completed")
    return found

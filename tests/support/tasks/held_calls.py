"""Calls beside a task that end when a test says so, in the order that it likes."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from millstream.operators.apart.calls import Call

Arguments = Callable[[Call], tuple[Any, ...]]


class HeldCalls:
    """All calls of a task. It is `Apart`.

    Nothing runs by itself: a call that was begun is made by `end`.

    Attributes:
        begun: the calls that run, in the order in which they were begun.
        on_wait: called when the task waits for the end of one.
    """

    def __init__(self) -> None:
        self.begun: list[tuple[HeldUnits, Call]] = []
        self.made: list[HeldUnits] = []
        self.told = 0
        self.on_wait: Callable[[], None] = lambda: None

    def coroutines(
        self,
        function: Callable[..., Any],
        arguments: Arguments,
        most: int,
        timeout_ms: int | None,
    ) -> HeldUnits:
        return self.threads(function, arguments, most)

    def threads(self, function: Callable[..., Any], arguments: Arguments, most: int) -> HeldUnits:
        self.made.append(HeldUnits(self, function, arguments, most))
        return self.made[-1]

    def began(self, units: HeldUnits, call: Call) -> None:
        """One runs from now on."""
        self.begun.append((units, call))

    def tell(self) -> None:
        self.told += 1

    def hear(self) -> None:
        """It is not asked before it looks."""

    def wait(self, timeout_ms: int) -> bool:
        self.on_wait()
        return True

    def end(self, index: int = 0) -> Call:
        """Let one of those that were begun come to its end."""
        units, call = self.begun.pop(index)
        units.make(call)
        return call

    def end_all(self) -> None:
        """Let all end that were begun, and those that waited for them."""
        while self.begun:
            self.end()


class HeldUnits:
    """Some of them. It is `Units`."""

    def __init__(
        self,
        held: HeldCalls,
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
        self._ended: list[Call] = []
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

    def ended(self) -> list[Call]:
        ended, self._ended = self._ended, []
        return ended

    @property
    def have_ended(self) -> bool:
        return bool(self._ended)

    def halt(self) -> None:
        self._is_halted = True

    @property
    def are_running(self) -> bool:
        return self._running > 0

    def close(self, *, cancel: bool = True) -> None:
        """What runs comes to its end when the test lets it, and nobody hears of it."""
        self.is_closed = True
        self._ready.clear()
        self._queues.clear()

    def make(self, call: Call) -> None:
        """Make a call that was begun."""
        try:
            call.result = made(self._function(*self._arguments(call)))
        except Exception as error:
            call.error = error
        self._running -= 1
        if self.is_closed:
            return
        self._ended.append(call)
        self._held.tell()
        if call.unit is not None:
            queue = self._queues[call.unit]
            if queue:
                self._ready.append(queue.popleft())
            else:
                del self._queues[call.unit]
        self._begin()


def made(result: Any) -> Any:
    """What a function has returned, or its coroutine, which must not wait for anything."""
    if not inspect.iscoroutine(result):
        return result
    try:
        result.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a coroutine that waits cannot be made at once")

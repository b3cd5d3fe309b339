"""A processor that hands on only one of the tasks of a key that come together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from millstream.durations import milliseconds
from millstream.errors import IllegalStateError
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.gathering.alarm import CLOCK, LoopAlarm, ThreadAlarm
from millstream.subscriptions.gathering.compaction import Choice, CompactionWindow
from millstream.subscriptions.gathering.later import Later
from millstream.subscriptions.processors import Scope, Scoped, TaskProcessor
from millstream.unawaited import refuse_deferred

#: The user's: which of two tasks of a key is kept, the earlier one given first.
Chooser = Callable[[Any, Any], Choice]


class CompactionProcessor(Scoped):
    """Keeps one task of each key for a while, and pushes the one that is left to the next
    processor. The first processor of a chain, most of the time.

    The first task of a key waits for `linger`. Those that come meanwhile compete with it, and the
    loser is complete at once. What is left is pushed on a thread of its own, one task after the
    other, or on the event loop, all at a time, and is complete when the next processors are done
    with it; tasks without a key count as tasks of one key. What waits when a partition is given up
    is processed by its next owner.

    Semantics: Decaton's `CompactionProcessor`, which loses track of a task whose next processor
    raises: here it fails as any other.

    Args:
        chooser: which of two tasks is kept: takes the earlier and the later one, and gives
            `Choice.LEFT`, `Choice.RIGHT`, or `Choice.EITHER`, which is the later one.
        linger: how long the first task of a key waits for others.
        scope: how many tasks share an instance.

    Raises:
        ConfigError: `linger` is out of bounds.
        TypeError: the chooser is asynchronous.

    Example:
        >>> newest = CompactionProcessor(
        ...     lambda left, right: Choice.RIGHT, linger=timedelta(seconds=1)
        ... )
        >>> processors = [newest, print]
    """

    def __init__(
        self, chooser: Chooser, *, linger: timedelta, scope: Scope = Scope.PARTITION
    ) -> None:
        refuse_deferred("CompactionProcessor", "chooser", chooser)
        linger_ms = milliseconds("CompactionProcessor", "linger", linger, least_ms=0)
        super().__init__(partial(_Compaction, chooser, linger_ms), scope)


class _Compaction(TaskProcessor):
    """Usable from several threads, or on the event loop."""

    def __init__(self, chooser: Chooser, linger_ms: int) -> None:
        def choose(left: Later, right: Later) -> Choice:
            # One that nobody will process must not win over one that somebody has to.
            return chooser(left.task, right.task) if left.is_open else Choice.RIGHT

        self._lock = threading.Lock()
        self._window: CompactionWindow[bytes, Later] = CompactionWindow(linger_ms, choose)
        self._alarm: ThreadAlarm | LoopAlarm | None = None

    def process(self, context: ProcessingContext, task: Any) -> None:
        """Let a task compete with the one of its key that waits."""
        later = Later(context, task)
        if not later.has_next:
            raise IllegalStateError(
                "A CompactionProcessor is the last one of its subscription: there is no processor "
                "for the tasks that it keeps. Put it before the others."
            )
        with self._lock:
            loser = self._window.add(context.raw_key, later, CLOCK.monotonic_ms())
            is_first = loser is None and len(self._window) == 1
        if loser is not None and loser.is_open:
            loser.completion.complete()
            loser.count("processor.compaction.compacted")
        if is_first:
            # Those that come later are due later.
            self._set_alarm()

    def close(self) -> None:
        """What waits is given up."""
        if self._alarm is not None:
            self._alarm.close()
        with self._lock:
            self._window.take()

    def _set_alarm(self) -> None:
        with self._lock:
            if self._alarm is None:
                due = self._next_due_ms
                self._alarm = (
                    LoopAlarm(due, self._push_async) if _on_loop() else ThreadAlarm(due, self._push)
                )
        self._alarm.set()

    def _next_due_ms(self) -> int | None:
        with self._lock:
            return self._window.next_due_ms()

    def _due(self) -> list[Later]:
        with self._lock:
            return self._window.due(CLOCK.monotonic_ms())

    def _push(self) -> None:
        for later in self._due():
            if later.enter():
                try:
                    later.push()
                finally:
                    later.leave()

    async def _push_async(self) -> None:
        await asyncio.gather(*[_pushed(later) for later in self._due()])


async def _pushed(later: Later) -> None:
    if later.enter():
        try:
            await later.push_async()
        finally:
            later.leave()


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

"""A processor that pushes only one of several tasks of a key."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Hashable
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.async_checks import reject_deferred
from millstream.durations import milliseconds
from millstream.errors import ConfigError, IllegalStateError
from millstream.subscriptions.batching.deferred_tasks import DeferredTask
from millstream.subscriptions.batching.linger_timer import (
    CLOCK,
    EventLoopLingerTimer,
    ThreadLingerTimer,
)
from millstream.subscriptions.processing_context import ProcessingContext
from millstream.subscriptions.task_processors import Scope, Scoped, TaskProcessor

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Choice(Enum):
    """Which of two tasks to keep: the earlier (left), the later (right), or either.

    The two tasks have the same key.

    Example:
        >>> Choice.RIGHT.name
        'RIGHT'
    """

    LEFT = auto()
    RIGHT = auto()
    EITHER = auto()


class _KeptItem(NamedTuple, Generic[T]):
    item: T
    due_ms: int


class CompactionWindow(Generic[K, T]):
    """Keeps one item per key until `linger_ms` after the first item of that key.

    As in Decaton's `CompactionProcessor`, items without a key (None) count as items of one key, and
    `EITHER` keeps the later one.

    Raises:
        ConfigError: `linger_ms` is out of bounds.
    """

    __slots__ = ("_chooser", "_kept", "_linger_ms")

    def __init__(self, linger_ms: int, chooser: Callable[[T, T], Choice]) -> None:
        if isinstance(linger_ms, bool) or not isinstance(linger_ms, int) or linger_ms < 0:
            raise ConfigError(
                f"A compaction window got linger_ms={linger_ms!r}, but it must be an int of at "
                "least 0."
            )
        self._linger_ms = linger_ms
        self._chooser = chooser
        # In the order of the first items, and thus of due times: replacements keep their position.
        self._kept: dict[K | None, _KeptItem[T]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, key: K | None, item: T, now_ms: int) -> T | None:
        """Add an item. Returns the discarded item, if any.

        Raises:
            ConfigError: the chooser did not return a `Choice`. In this case, and if the chooser
                raises, the item is not added.
        """
        kept = self._kept.get(key)
        if kept is None:
            self._kept[key] = _KeptItem(item, now_ms + self._linger_ms)
            return None
        choice = self._chooser(kept.item, item)
        if choice is Choice.LEFT:
            return item
        if choice not in (Choice.RIGHT, Choice.EITHER):
            raise ConfigError(
                f"The chooser of a compaction returned {choice!r}, but must return a Choice: LEFT, "
                "RIGHT or EITHER."
            )
        self._kept[key] = kept._replace(item=item)
        return kept.item

    def due(self, now_ms: int) -> list[T]:
        """Return the due items, in the order of the first items of their keys."""
        due: list[T] = []
        keys: list[K | None] = []
        for key, kept in self._kept.items():
            if kept.due_ms > now_ms:
                break
            due.append(kept.item)
            keys.append(key)
        for key in keys:
            del self._kept[key]
        return due

    def next_due_ms(self) -> int | None:
        """Return when `due` returns items, on the clock of `add`; None if empty."""
        return next((kept.due_ms for kept in self._kept.values()), None)

    def take(self) -> list[T]:
        taken = [kept.item for kept in self._kept.values()]
        self._kept.clear()
        return taken


#: The user's function, which chooses between the earlier and the later of two tasks.
Chooser = Callable[[Any, Any], Choice]


class CompactionProcessor(Scoped):
    """Keeps one task per key for `linger`, then pushes it to the next processor.

    Usually the first processor of a chain. The first task of a key waits for `linger`. The chooser
    compares each later task of the key with the waiting task, and the discarded task is completed
    immediately. Remaining tasks are pushed one after the other on a timer thread, or concurrently
    on the event loop, and are complete when the next processors have completed them. Tasks without
    a key count as tasks of one key. Tasks that are still waiting when a partition is released are
    processed by its next owner.

    Semantics: Decaton's `CompactionProcessor`, except that Decaton loses tasks whose next processor
    raises; in Millstream, these tasks fail like any other task.

    Args:
        chooser: takes the earlier and the later of two tasks, and returns which one to keep:
            `Choice.LEFT`, `Choice.RIGHT`, or `Choice.EITHER`, which means the later one.
        linger: how long the first task of a key waits for others.
        scope: which tasks share an instance.

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
        reject_deferred("CompactionProcessor", "chooser", chooser)
        linger_ms = milliseconds("CompactionProcessor", "linger", linger, min_ms=0)
        super().__init__(partial(_Compaction, chooser, linger_ms), scope)


class _Compaction(TaskProcessor):
    """The implementation. Thread-safe; also runs on the event loop."""

    def __init__(self, chooser: Chooser, linger_ms: int) -> None:
        def choose(left: DeferredTask, right: DeferredTask) -> Choice:
            # A task that will not be processed must not displace a task that will be.
            return chooser(left.task, right.task) if left.is_open else Choice.RIGHT

        self._lock = threading.Lock()
        self._window: CompactionWindow[bytes, DeferredTask] = CompactionWindow(linger_ms, choose)
        self._timer: ThreadLingerTimer | EventLoopLingerTimer | None = None

    def process(self, context: ProcessingContext, task: Any) -> None:
        deferred = DeferredTask(context, task)
        if not deferred.has_next:
            raise IllegalStateError(
                "A CompactionProcessor cannot be the last processor of a subscription, because it "
                "pushes tasks to the next one. Put it before other processors."
            )
        with self._lock:
            discarded = self._window.add(context.raw_key, deferred, CLOCK.monotonic_ms())
            is_first = discarded is None and len(self._window) == 1
        if discarded is not None and discarded.is_open:
            discarded.completion.complete()
            discarded.count("processor.compaction.compacted")
        if is_first:
            # Tasks that are added later are due later and do not change the timer.
            self._start_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.close()
        with self._lock:
            self._window.take()

    def _start_timer(self) -> None:
        with self._lock:
            if self._timer is None:
                due = self._next_due_ms
                self._timer = (
                    EventLoopLingerTimer(due, self._push_async)
                    if _on_loop()
                    else ThreadLingerTimer(due, self._push)
                )
        self._timer.set()

    def _next_due_ms(self) -> int | None:
        with self._lock:
            return self._window.next_due_ms()

    def _due(self) -> list[DeferredTask]:
        with self._lock:
            return self._window.due(CLOCK.monotonic_ms())

    def _push(self) -> None:
        for deferred in self._due():
            if deferred.enter():
                try:
                    deferred.push()
                finally:
                    deferred.leave()

    async def _push_async(self) -> None:
        await asyncio.gather(*[_pushed(deferred) for deferred in self._due()])


async def _pushed(deferred: DeferredTask) -> None:
    if deferred.enter():
        try:
            await deferred.push_async()
        finally:
            deferred.leave()


def _on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True

"""Timers that call a batching processor when its first task is due."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from millstream.clock import SystemClock

logger = logging.getLogger(__name__)

CLOCK: Final = SystemClock()


class ThreadLingerTimer:
    """Calls a function when it is due, on a thread that the first `set` starts.

    Exceptions of the function are logged and do not stop the timer.

    Args:
        next_due_ms: returns the monotonic time of the next call; None if no call is needed.
    """

    def __init__(self, next_due_ms: Callable[[], int | None], callback: Callable[[], None]) -> None:
        self._next_due_ms = next_due_ms
        self._callback = callback
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def set(self) -> None:
        """Notify the timer of a new or earlier due time."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="linger-timer", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Stop the timer. A running call continues."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while self._wait():
            try:
                self._callback()
            except Exception:
                logger.exception("Batched tasks could not be processed")

    def _wait(self) -> bool:
        """Wait until the call is due. Returns False if the timer is closed."""
        with self._changed:
            while not self._closed:
                due_ms = self._next_due_ms()
                left_ms = None if due_ms is None else due_ms - CLOCK.monotonic_ms()
                if left_ms is not None and left_ms <= 0:
                    return True
                self._changed.wait(None if left_ms is None else left_ms / 1_000)
            return False


class EventLoopLingerTimer:
    """Calls a coroutine function when it is due.

    The function runs on the event loop on which `set` is called. The arguments are those of
    `ThreadLingerTimer`. Calls never overlap.
    """

    def __init__(
        self, next_due_ms: Callable[[], int | None], callback: Callable[[], Awaitable[None]]
    ) -> None:
        self._next_due_ms = next_due_ms
        self._callback = callback
        self._task: asyncio.Task[None] | None = None
        self._rescheduled = asyncio.Event()
        self._closed = False

    def set(self) -> None:
        """Start the timer if it is not running."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def reschedule(self) -> None:
        """Notify the timer of an earlier due time."""
        self._rescheduled.set()
        self.set()

    def close(self) -> None:
        self._closed = True

    async def _run(self) -> None:
        try:
            while not self._closed and (due_ms := self._next_due_ms()) is not None:
                left_ms = due_ms - CLOCK.monotonic_ms()
                if left_ms > 0:
                    self._rescheduled.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._rescheduled.wait(), left_ms / 1_000)
                    continue
                try:
                    await self._callback()
                except Exception:
                    logger.exception("Batched tasks could not be processed")
        finally:
            self._task = None

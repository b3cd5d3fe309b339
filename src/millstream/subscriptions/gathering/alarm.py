"""Calling a processor that gathers tasks when the first of them has waited long enough."""

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


class ThreadAlarm:
    """Calls a function when it is due, on a thread of its own that begins with the first `set`.

    What the function raises is logged, and does not end the calls.

    Args:
        next_due_ms: the monotonic time of the next call; None while there is none.
        ring: what to call.
    """

    def __init__(self, next_due_ms: Callable[[], int | None], ring: Callable[[], None]) -> None:
        self._next_due_ms = next_due_ms
        self._ring = ring
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def set(self) -> None:
        """There is something due now, or sooner than before."""
        with self._changed:
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="gathered", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Call no more. A call that is under way comes to its end."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while self._wait():
            try:
                self._ring()
            except Exception:
                logger.exception("Tasks that were gathered could not be handed on")

    def _wait(self) -> bool:
        """Wait until it is due; false if it is closed."""
        with self._changed:
            while not self._closed:
                due_ms = self._next_due_ms()
                left_ms = None if due_ms is None else due_ms - CLOCK.monotonic_ms()
                if left_ms is not None and left_ms <= 0:
                    return True
                self._changed.wait(None if left_ms is None else left_ms / 1_000)
            return False


class LoopAlarm:
    """The same on the event loop that it is set on, for a coroutine function.

    Args:
        next_due_ms: the monotonic time of the next call; None while there is none.
        ring: what to call, one call after the other.
    """

    def __init__(
        self, next_due_ms: Callable[[], int | None], ring: Callable[[], Awaitable[None]]
    ) -> None:
        self._next_due_ms = next_due_ms
        self._ring = ring
        self._task: asyncio.Task[None] | None = None
        self._sooner = asyncio.Event()
        self._closed = False

    def set(self) -> None:
        """There is something due now, which was not before."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def hasten(self) -> None:
        """The same, where something else was due already, and later."""
        self._sooner.set()
        self.set()

    def close(self) -> None:
        """Call no more. A call that is under way comes to its end."""
        self._closed = True

    async def _run(self) -> None:
        try:
            while not self._closed and (due_ms := self._next_due_ms()) is not None:
                left_ms = due_ms - CLOCK.monotonic_ms()
                if left_ms > 0:
                    self._sooner.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._sooner.wait(), left_ms / 1_000)
                    continue
                try:
                    await self._ring()
                except Exception:
                    logger.exception("Tasks that were gathered could not be handed on")
        finally:
            self._task = None

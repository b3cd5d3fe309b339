"""Logs where a coroutine blocks the event loop."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Final

logger = logging.getLogger(__name__)

_PACKAGE: Final = __name__.partition(".")[0]
#: How often the loop is probed: one wake-up of two threads a second.
_PROBE_S: Final = 1.0
#: On a busy machine a loop takes longer than its coroutines need.
_BLOCKED_S: Final = 1.0
#: At most so often a place is logged.
_AGAIN_S: Final = 60.0
_FRAMES: Final = 6


class LoopWatchdog:
    """A thread that probes an event loop and logs the stack of a coroutine that blocks it.

    A coroutine that calls a blocking function, such as `time.sleep` or a client that is not
    asynchronous, stops all others of the process, so that records are worked on one at a time.

    A call in C that holds the interpreter lock stops this thread as well, and is not seen.

    Args:
        loop: the event loop.
        thread: runs it.
        blocked_s: for how long it may be busy.
        probe_s: the pause between two probes.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        *,
        blocked_s: float = _BLOCKED_S,
        probe_s: float = _PROBE_S,
    ) -> None:
        self._loop = loop
        self._watched = thread
        self._blocked_s = blocked_s
        self._probe_s = probe_s
        self._again_at: dict[str, float] = {}
        self._over = threading.Event()

    def start(self) -> None:
        """Probe the loop until it is closed, its thread ends, or `stop` is called."""
        name = f"{self._watched.name}-watchdog"
        threading.Thread(target=self._watch, name=name, daemon=True).start()

    def stop(self) -> None:
        """Probe no more."""
        self._over.set()

    def _watch(self) -> None:
        while self._watched.is_alive() and not self._over.wait(self._probe_s):
            try:
                self._probe()
            except RuntimeError:
                return  # the loop is closed
            except Exception:
                logger.exception("Probing the event loop failed")

    def _probe(self) -> None:
        turned = threading.Event()
        began = time.monotonic()
        self._loop.call_soon_threadsafe(turned.set)
        # The second wait is for a process that was suspended, where the first one ends before the
        # loop could turn.
        if turned.wait(self._blocked_s) or turned.wait(self._blocked_s / 2):
            return
        frame = sys._current_frames().get(self._watched.ident or 0)
        if frame is not None:
            self._log(frame, time.monotonic() - began)
        while self._watched.is_alive() and not self._over.is_set():
            if turned.wait(self._probe_s):
                return

    def _log(self, frame: FrameType, blocked_s: float) -> None:
        stack = _stack_of_user(frame)
        if not stack:
            return  # many coroutines, of which none blocks
        place = stack[0]
        key, now = f"{place.filename}:{place.name}", time.monotonic()
        if now < self._again_at.get(key, now):
            return
        self._again_at[key] = now + _AGAIN_S
        logger.warning(
            "%s() at %s:%s blocks the event loop of this process, which has not turned for %.1f s: "
            "all other calls of map_async, map_batches and subscriptions wait meanwhile. Await an "
            "asynchronous client (asyncio.sleep, not time.sleep), call blocking code with "
            "asyncio.to_thread(), or give a plain function, which runs on threads. The stack:\n%s",
            place.name,
            place.filename,
            place.lineno,
            blocked_s,
            "".join(traceback.format_list(stack[-_FRAMES:])).rstrip(),
        )


def _stack_of_user(frame: FrameType) -> list[traceback.FrameSummary]:
    """The frames of a coroutine, outermost first: those inside of the last one of Millstream.

    Empty where the loop is between two steps.
    """
    frames: list[FrameType] = []
    inner: FrameType | None = frame
    while inner is not None and not _is_of(inner, _PACKAGE):
        frames.append(inner)
        inner = inner.f_back
    # The loop itself, where a task of the user's own runs, or none.
    while frames and _is_of(frames[-1], "asyncio", "selectors", "uvloop"):
        frames.pop()
    return traceback.StackSummary.extract((each, each.f_lineno) for each in reversed(frames))


def _is_of(frame: FrameType, *packages: str) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in packages

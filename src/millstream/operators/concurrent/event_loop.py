"""The process's event loop, which runs all `async` user code, and its watchdog."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
import traceback
from types import FrameType
from typing import Final

#: The name of the loop's thread, which runs until the process ends.
THREAD_NAME: Final = "event-loop"

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def event_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop. The first call starts it.

    All tasks of a process use the same loop, so that they can share resources that are bound to a
    loop, such as a connection pool.
    """
    global _loop, _pid
    with _lock:
        # A forked process inherits the loop object, but not its thread.
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            # A daemon thread, so that the process does not wait for calls when it exits. Unfinished
            # calls are repeated.
            thread = threading.Thread(target=_run, args=(_loop,), name=THREAD_NAME, daemon=True)
            thread.start()
            LoopWatchdog(_loop, thread).start()
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


logger = logging.getLogger(__name__)

_PACKAGE: Final = __name__.partition(".")[0]
#: The interval between two probes. Each probe wakes two threads.
_PROBE_S: Final = 1.0
#: The time without a response after which the loop counts as blocked. On a busy machine, the loop
#: may respond late even if no coroutine blocks it.
_BLOCKED_S: Final = 1.0
#: The minimum interval between two log lines about the same function.
_LOG_INTERVAL_S: Final = 60.0
#: The number of innermost frames in a log line.
_FRAMES: Final = 6


class LoopWatchdog:
    """A thread that probes an event loop and logs the stack of a blocking coroutine.

    A coroutine that calls a blocking function, such as `time.sleep` or a synchronous client, blocks
    all other coroutines of the process, so that records are processed one at a time. A C call that
    holds the GIL also blocks this thread and is not detected.
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
        self._next_log: dict[str, float] = {}
        self._stopped = threading.Event()

    def start(self) -> None:
        """Probe the loop until it is closed, its thread ends, or `stop` is called."""
        name = f"{self._watched.name}-watchdog"
        threading.Thread(target=self._watch, name=name, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while self._watched.is_alive() and not self._stopped.wait(self._probe_s):
            try:
                self._probe()
            except RuntimeError:
                return  # the loop is closed
            except Exception:
                logger.exception("Probing the event loop failed")

    def _probe(self) -> None:
        ran = threading.Event()
        began = time.monotonic()
        self._loop.call_soon_threadsafe(ran.set)
        # The second wait is for a process that was suspended: its first wait may end before the
        # loop could run.
        if ran.wait(self._blocked_s) or ran.wait(self._blocked_s / 2):
            return
        frame = sys._current_frames().get(self._watched.ident or 0)
        if frame is not None:
            self._log(frame, time.monotonic() - began)
        while self._watched.is_alive() and not self._stopped.is_set():
            if ran.wait(self._probe_s):
                return

    def _log(self, frame: FrameType, blocked_s: float) -> None:
        stack = _user_stack(frame)
        if not stack:
            return  # The loop is busy, but no coroutine blocks it.
        outermost = stack[0]
        key, now = f"{outermost.filename}:{outermost.name}", time.monotonic()
        if now < self._next_log.get(key, now):
            return
        self._next_log[key] = now + _LOG_INTERVAL_S
        logger.warning(
            "%s() at %s:%s has blocked the event loop of this process for %.1f s. Meanwhile, all "
            "other calls of map_async, map_batches and subscriptions wait. Await an asynchronous "
            "client (asyncio.sleep, not time.sleep), call blocking code with asyncio.to_thread(), "
            "or pass a plain function, which runs on threads. Stack:\n%s",
            outermost.name,
            outermost.filename,
            outermost.lineno,
            blocked_s,
            "".join(traceback.format_list(stack[-_FRAMES:])).rstrip(),
        )


def _user_stack(frame: FrameType) -> list[traceback.FrameSummary]:
    """Return the frames called by Millstream's innermost frame, outermost first.

    The result is empty if the loop is between two steps.
    """
    frames: list[FrameType] = []
    inner: FrameType | None = frame
    while inner is not None and not _is_in_package(inner, _PACKAGE):
        frames.append(inner)
        inner = inner.f_back
    # Frames of the loop itself remain if no task, or a task that user code created, is running.
    while frames and _is_in_package(frames[-1], "asyncio", "selectors", "uvloop"):
        frames.pop()
    return traceback.StackSummary.extract((each, each.f_lineno) for each in reversed(frames))


def _is_in_package(frame: FrameType, *packages: str) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in packages

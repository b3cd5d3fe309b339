"""The event loop of this process, on which everything `async` of its tasks runs."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Final

from millstream.operators.apart.loop_watchdog import LoopWatchdog

#: What its thread is called, which lives as long as the process.
THREAD_NAME: Final = "event-loop"

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid = 0


def event_loop() -> asyncio.AbstractEventLoop:
    """The loop, begun with the first call: one for all tasks of a process, so that they can share
    what belongs to a loop, such as a pool of connections."""
    global _loop, _pid
    with _lock:
        # A process that was forked from one with a loop has its object, but not its thread.
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            # Nobody who ends waits for calls: what is not finished is done again.
            thread = threading.Thread(target=_run, args=(_loop,), name=THREAD_NAME, daemon=True)
            thread.start()
            LoopWatchdog(_loop, thread).start()
        return _loop


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()

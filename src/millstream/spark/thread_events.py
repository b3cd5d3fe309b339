"""The events that an engine reports to its owner about stream threads."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

logger = logging.getLogger(__name__)

#: The maximum number of queued reports; `put` blocks at this limit.
_MAX_PENDING_REPORTS: Final = 10_000


class ThreadEvent(NamedTuple):
    """An event of a stream thread.

    The type of `data` depends on `kind`:

    - `registered`: the thread is running and accepts commands; `data` is its `Hello`. Emitted again
      after each restart.
    - `report`: the thread sent a report; `data` is the `Report`.
    - `restarting`: the thread ended unexpectedly and will be restarted; `data` is the reason, a
      str.
    - `exited`: the thread ended and will not be restarted; `data` is a `ThreadExit`.
    - `failed`: the thread cannot run, or cannot continue; `data` is a `SparkError`.
    """

    thread: str
    kind: Literal["registered", "report", "restarting", "exited", "failed"]
    data: Any


class ThreadEventQueue:
    """Delivers events to the engine's owner on a dedicated thread.

    For a report, `put` blocks while too many reports are pending. For other events, it never
    blocks, because the owner may be waiting for such an event on this queue's thread. Exceptions
    that `on_event` raises are logged.
    """

    def __init__(self, on_event: Callable[[ThreadEvent], None]) -> None:
        self._on_event = on_event
        self._waiting: queue.SimpleQueue[ThreadEvent | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._reports = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._dispatch, name="millstream-events")
        self._thread.daemon = True

    def start(self) -> None:
        self._thread.start()

    @property
    def is_event_thread(self) -> bool:
        """Whether the current thread is the one that calls `on_event`."""
        return threading.current_thread() is self._thread

    def put(self, event: ThreadEvent) -> None:
        """Add an event.

        For a report, blocks while the queue is open and too many reports are pending.
        """
        if event.kind == "report":
            with self._room:
                self._room.wait_for(lambda: self._is_closed or self._reports < _MAX_PENDING_REPORTS)
                if self._is_closed:
                    return
                self._reports += 1
        self._waiting.put(event)

    def close(self, timeout_s: float) -> None:
        """Deliver the pending events, then stop. Later reports are dropped."""
        self._waiting.put(None)
        if self._thread.ident is not None and not self.is_event_thread:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                logger.warning(
                    "%d thread events were not delivered in time", self._waiting.qsize() - 1
                )
        with self._room:
            self._is_closed = True
            self._room.notify_all()

    def _dispatch(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("The handler of thread events failed on %s", event.kind)
            if event.kind == "report":
                with self._room:
                    self._reports -= 1
                    self._room.notify()

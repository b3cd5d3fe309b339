"""What the owner of an engine is told about its stream threads, one event after the other."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

logger = logging.getLogger(__name__)

#: How many reports may wait for the owner; beyond it those who report are slowed down.
_MAX_WAITING: Final = 10_000


class ThreadEvent(NamedTuple):
    """Something that happened to a stream thread.

    `kind` and what `data` then is:

    - `registered`: the thread runs and can be sent commands; its `Hello`. Comes again after each
      restart.
    - `report`: the thread told something; a `Report`.
    - `restarting`: it ended unexpectedly and is started again; a str saying why.
    - `exited`: it ended and is not started again; a `ThreadExit`.
    - `failed`: it cannot be run, or not any more; a `SparkError`.
    """

    thread: str
    kind: Literal["registered", "report", "restarting", "exited", "failed"]
    data: Any


class EventQueue:
    """Hands events to the owner on a thread of its own, so that the owner may take its time.

    Reports wait for room where many are pending. The other events never do: the owner may wait for
    one of them on this queue's thread.

    Args:
        on_event: the owner's function. What it raises is logged.
    """

    def __init__(self, on_event: Callable[[ThreadEvent], None]) -> None:
        self._on_event = on_event
        self._waiting: queue.SimpleQueue[ThreadEvent | None] = queue.SimpleQueue()
        self._room = threading.Condition()
        self._reports = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._hand_over, name="millstream-events")
        self._thread.daemon = True

    def start(self) -> None:
        """Begin to hand events over."""
        self._thread.start()

    @property
    def is_telling(self) -> bool:
        """Whether this is the thread on which the owner is told."""
        return threading.current_thread() is self._thread

    def put(self, event: ThreadEvent) -> None:
        """Add an event; a report waits while there are too many, unless the queue is closed."""
        if event.kind == "report":
            with self._room:
                self._room.wait_for(lambda: self._is_closed or self._reports < _MAX_WAITING)
                if self._is_closed:
                    return
                self._reports += 1
        self._waiting.put(event)

    def close(self, timeout_s: float) -> None:
        """Hand over what has been put so far, and end. Later reports are dropped."""
        self._waiting.put(None)
        if self._thread.ident is not None and not self.is_telling:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                logger.warning("%d events were not taken in time", self._waiting.qsize() - 1)
        with self._room:
            self._is_closed = True
            self._room.notify_all()

    def _hand_over(self) -> None:
        while (event := self._waiting.get()) is not None:
            try:
                self._on_event(event)
            except Exception:
                logger.exception("The handler of thread events failed on %s", event.kind)
            if event.kind == "report":
                with self._room:
                    self._reports -= 1
                    self._room.notify()

"""What ends the wait of a thread when another one has something for it."""

from __future__ import annotations

import queue
from typing import Final

from millstream.clock import Deadline, SystemClock

_CLOCK: Final = SystemClock()


class Waker:
    """Ends the wait of the one thread that owns it, from any other thread or a signal handler.

    A wake that comes while the owner does not wait is not lost: its waits end at once until it
    calls `clear`. Who looks for news after that therefore misses none.
    """

    def __init__(self) -> None:
        self._is_set = False
        # Its `put` takes no lock that the interrupted code could hold.
        self._tokens: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def is_set(self) -> bool:
        """Whether somebody has called since the last `clear`: the owner is to look around.

        For waits that cannot be interrupted, and so are cut into slices.
        """
        return self._is_set

    def wake(self) -> None:
        """End the wait of the owner."""
        if not self._is_set:
            self._is_set = True
            self._tokens.put(None)

    def wait(self, timeout_ms: int) -> bool:
        """Wait until somebody calls; whether somebody did."""
        deadline = Deadline(_CLOCK, timeout_ms)
        # One that was cleared may have left a token.
        while not self._is_set:
            try:
                self._tokens.get(timeout=deadline.remaining_ms(timeout_ms) / 1_000)
            except queue.Empty:
                break
        return self._is_set

    def clear(self) -> None:
        """What was called for so far is being looked at."""
        self._is_set = False
        while not self._tokens.empty():
            try:
                self._tokens.get_nowait()
            except queue.Empty:
                return

"""Where calls tell that they have ended, and where the loop hears of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from millstream.operators.apart.calls import Call
from millstream.waker import Waker


class Landing:
    """Told of the ends of calls by any thread, and heard by the one of the task.

    Args:
        wake: ends the wait of the loop.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        # Told of a completion that is thrown away as well, at any moment and on any thread: also on
        # one that is just about to hear of others.
        self._told = Waker()

    def tell(self) -> None:
        """A call has ended. 0.1 us if that was told and not yet heard."""
        if not self._told.is_set:
            self._told.wake()
            self._wake()

    def hear(self) -> None:
        """What has ended so far is about to be looked at: the next end is told anew."""
        self._told.clear()

    def wait(self, timeout_ms: int) -> bool:
        """Wait until a call ends; whether one did since the last `hear`."""
        return self._told.wait(timeout_ms)


class Ended:
    """The calls of some units that have ended, from whichever thread.

    Args:
        landing: told of each.
    """

    def __init__(self, landing: Landing) -> None:
        self._landing = landing
        self._calls: deque[Call] = deque()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, call: Call) -> None:
        """A call has ended."""
        self._calls.append(call)
        self._landing.tell()

    def take(self) -> list[Call]:
        """Those since the last time."""
        calls = self._calls
        return [calls.popleft() for _ in range(len(calls))]

"""Sees from beside that the processing loop comes round, and tells the driver when it does not."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Final

from millstream.clock import Clock
from millstream.runtime.control import CommitsOverdue, LoopStalled, Report
from millstream.runtime.whereabouts import depth_of, stall_of

logger = logging.getLogger(__name__)

_LOOK_MS: Final = 1_000
#: How often it looks within the limit, where that is short.
_LOOKS: Final = 10


class Watchdog:
    """A thread beside the stream thread. To be entered on the thread that is watched.

    The stream thread only counts its rounds. One that holds the interpreter lock for ever, in a
    library written in C, stops this one, too: then the driver hears nothing at all any more, and
    kills the process.

    Args:
        name: of the stream thread.
        rounds: how often its loop has told that it goes on.
        limit_ms: how long it may be silent: `max.poll.interval.ms`, after which its member leaves
            the group. Told again each time that it has passed once more.
        tell: takes reports; safe to call beside the stream thread.
        clock: for intervals.
        look: called at each look, before all else.
        look_ms: how often it looks at least; by default as `limit_ms` needs it.
        uncommitted_ms: for how long records have been processed without a commit, once that is
            too long; else 0.
    """

    def __init__(
        self,
        name: str,
        rounds: Callable[[], int],
        limit_ms: int,
        tell: Callable[[Report], None],
        clock: Clock,
        look: Callable[[], None] = lambda: None,
        look_ms: int | None = None,
        uncommitted_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._rounds = rounds
        self._limit_ms = limit_ms
        self._tell = tell
        self._clock = clock
        self._look = look
        self._look_ms = max(10, min(_LOOK_MS, limit_ms // _LOOKS, look_ms or _LOOK_MS))
        self._watched = self._skip = 0
        self._seen = -1
        self._since_ms = clock.monotonic_ms()
        self._told_ms = 0
        self._uncommitted_ms = uncommitted_ms
        self._told_uncommitted_ms = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"{name}-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._watched = threading.get_ident()
        # What has started the stream thread says nothing about where it hangs.
        self._skip = depth_of(sys._getframe(1))
        self._since_ms = self._clock.monotonic_ms()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """See whether the loop has come round since the last look, and tell if it is time to."""
        now_ms, rounds = self._clock.monotonic_ms(), self._rounds()
        if rounds != self._seen:
            self._seen, self._since_ms = rounds, now_ms
            if self._told_ms:
                self._told_ms = 0
                self._tell(LoopStalled(None))
            return
        silent_ms = now_ms - self._since_ms
        if silent_ms - self._told_ms < self._limit_ms:
            return
        frame = sys._current_frames().get(self._watched)
        if frame is not None:
            self._told_ms = silent_ms
            self._tell(LoopStalled(stall_of(frame, silent_ms, self._skip)))

    def look_at_commits(self) -> None:
        """Report when commits are overdue, again whenever that has lasted twice as long, and when
        they are not any more."""
        overdue_ms, before_ms = self._uncommitted_ms(), self._told_uncommitted_ms
        if overdue_ms >= max(1, 2 * before_ms):
            self._told_uncommitted_ms = overdue_ms
            self._tell(CommitsOverdue(overdue_ms))
        elif before_ms and not overdue_ms:
            self._told_uncommitted_ms = 0
            self._tell(CommitsOverdue(None))

    def _watch(self) -> None:
        while not self._over.wait(self._look_ms / 1_000):
            try:
                self._look()
                self.look_at_commits()
                self.look()
            except Exception:
                # The next look may find what it can read; the stream thread goes on in any case.
                logger.exception("looking after the processing loop failed")

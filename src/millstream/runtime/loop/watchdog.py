"""Monitors the progress of the processing loop and reports stalls to the driver."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from typing import Final

from millstream.clock import Clock
from millstream.runtime.stack_inspection import depth_of, stall_of
from millstream.runtime.thread_control import CommitsOverdue, LoopStalled, Report

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_MS: Final = 1_000
#: The number of checks per limit, if the limit is short.
_CHECKS_PER_LIMIT: Final = 10


class Watchdog:
    """A thread that monitors the stream thread.

    The context must be entered on the monitored thread.

    The stream thread only counts its rounds. If a C extension holds the interpreter lock forever,
    the watchdog stops as well: the driver then receives no more messages and kills the process.

    Args:
        limit_ms: the stall timeout, `max.poll.interval.ms`, after which the member leaves the
            group. A stall is reported again each time the timeout elapses.
        report: sends reports; must be thread-safe.
        uncommitted_ms: returns how long records have been processed without a commit, if that is
            too long; else 0.
    """

    def __init__(
        self,
        name: str,
        rounds: Callable[[], int],
        limit_ms: int,
        report: Callable[[Report], None],
        clock: Clock,
        on_check: Callable[[], None] = lambda: None,
        check_interval_ms: int = _CHECK_INTERVAL_MS,
        uncommitted_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._rounds = rounds
        self._limit_ms = limit_ms
        self._report = report
        self._clock = clock
        self._on_check = on_check
        longest_ms = min(_CHECK_INTERVAL_MS, limit_ms // _CHECKS_PER_LIMIT, check_interval_ms)
        self._check_interval_ms = max(10, longest_ms)
        self._watched_thread_id = self._skip = 0
        self._last_rounds = -1
        self._since_ms = clock.monotonic_ms()
        self._reported_ms = 0
        self._uncommitted_ms = uncommitted_ms
        self._reported_uncommitted_ms = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name=f"{name}-watchdog", daemon=True)

    def __enter__(self) -> Watchdog:
        self._watched_thread_id = threading.get_ident()
        # The outer frames, which started the stream thread, are not part of the location.
        self._skip = depth_of(sys._getframe(1))
        self._since_ms = self._clock.monotonic_ms()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def check_loop(self) -> None:
        """Report a stall of the loop that lasts too long, and the end of the stall."""
        now_ms, rounds = self._clock.monotonic_ms(), self._rounds()
        if rounds != self._last_rounds:
            self._last_rounds, self._since_ms = rounds, now_ms
            if self._reported_ms:
                self._reported_ms = 0
                self._report(LoopStalled(None))
            return
        silent_ms = now_ms - self._since_ms
        if silent_ms - self._reported_ms < self._limit_ms:
            return
        frame = sys._current_frames().get(self._watched_thread_id)
        if frame is not None:
            self._reported_ms = silent_ms
            self._report(LoopStalled(stall_of(frame, silent_ms, self._skip)))

    def check_commits(self) -> None:
        """Report overdue commits, and the commit that ends the delay.

        Overdue commits are reported again each time the delay has doubled.
        """
        overdue_ms, before_ms = self._uncommitted_ms(), self._reported_uncommitted_ms
        if overdue_ms >= max(1, 2 * before_ms):
            self._reported_uncommitted_ms = overdue_ms
            self._report(CommitsOverdue(overdue_ms))
        elif before_ms and not overdue_ms:
            self._reported_uncommitted_ms = 0
            self._report(CommitsOverdue(None))

    def _watch(self) -> None:
        while not self._stopped.wait(self._check_interval_ms / 1_000):
            try:
                self._on_check()
                self.check_commits()
                self.check_loop()
            except Exception:
                # The next check may succeed. The stream thread continues in any case.
                logger.exception("checking the processing loop failed")

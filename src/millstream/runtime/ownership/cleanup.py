"""Removing the state of tasks that have long moved elsewhere."""

from __future__ import annotations

from millstream.clock import Clock
from millstream.state.directories.state_directory import StateDirectory


class StateCleanup:
    """Deletes unused task directories (`state.cleanup.delay.ms`).

    A directory that was left behind is worth keeping for a while, as its task may come back. Much
    later it does harm: the changelog has forgotten by then which keys were deleted in between.

    Args:
        directory: the application's state on this host.
        unused_for_ms: how long a directory must have been unused; also how often it is looked.
        clock: for both.
    """

    def __init__(self, directory: StateDirectory, unused_for_ms: int, clock: Clock) -> None:
        self._directory = directory
        self._unused_for_ms = unused_for_ms
        self._clock = clock
        self._last_ms = clock.monotonic_ms()

    def run(self) -> None:
        """Look for unused directories if it is time to."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._last_ms < self._unused_for_ms:
            return
        self._last_ms = now_ms
        self._directory.remove_obsolete_tasks(unused_for_ms=self._unused_for_ms, clock=self._clock)

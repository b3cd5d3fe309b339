"""For how long a stream thread has processed records without a commit."""

from __future__ import annotations

from typing import Final

from millstream.clock import Clock

#: A commit is overdue after its interval, twice the limits on work, and no more than this besides.
_MOST_MS: Final = 60_000


class UncommittedWork:
    """Measures how long records have been processed since the last commit.

    Work that is given up and done again counts on: only a commit ends it, or a long pause without
    any records. The properties may be read from another thread.

    Args:
        clock: time.
        limit_ms: the shortest limit on work between two commits; None where there is none.
    """

    def __init__(self, clock: Clock, limit_ms: int | None) -> None:
        self._clock = clock
        self._grace_ms = _MOST_MS if limit_ms is None else min(_MOST_MS, 2 * limit_ms)
        self._since_ms: int | None = None
        self._last_ms = 0
        self._commits = 0

    def processed(self, commit_interval_ms: int) -> None:
        """Records were processed.

        Args:
            commit_interval_ms: how often is committed.
        """
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None or now_ms - self._last_ms > self._due_ms(commit_interval_ms):
            self._since_ms = now_ms
        self._last_ms = now_ms

    def committed(self, total: int) -> None:
        """There have been so many commits by now."""
        if total != self._commits:
            self._commits, self._since_ms = total, None

    @property
    def uncommitted_ms(self) -> int:
        """For how long records have been processed without a commit; 0 after one."""
        since_ms = self._since_ms
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    def overdue_ms(self, commit_interval_ms: int) -> int:
        """The same, once that is too long; else 0."""
        due_ms, waits_ms = self._due_ms(commit_interval_ms), self.uncommitted_ms
        is_at_work = self._clock.monotonic_ms() - self._last_ms <= due_ms
        return waits_ms if waits_ms > due_ms and is_at_work else 0

    def _due_ms(self, commit_interval_ms: int) -> int:
        return commit_interval_ms + self._grace_ms

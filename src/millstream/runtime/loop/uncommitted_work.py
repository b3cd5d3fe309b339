"""The age of a stream thread's uncommitted work."""

from __future__ import annotations

from typing import Final

from millstream.clock import Clock

#: A commit is overdue after its interval plus a grace period: twice the limit on work, but at most
#: this long.
_MAX_GRACE_MS: Final = 60_000


class UncommittedWork:
    """Measures how long records have been processed since the last commit.

    For `uncommitted_ms` and `overdue_ms`, work that is discarded and repeated still counts: only a
    commit or a long pause without records resets the time. `describe` covers only the current
    attempt. The properties may be read from another thread.

    Args:
        limit_ms: the shortest limit on work between two commits; None for no limit.
    """

    def __init__(
        self, clock: Clock, limit_ms: int | None, settings: str = "max.poll.interval.ms"
    ) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._settings = settings
        self._grace_ms = _MAX_GRACE_MS if limit_ms is None else min(_MAX_GRACE_MS, 2 * limit_ms)
        self._since_ms: int | None = None
        self._attempt_ms: int | None = None
        self._batch_ms: int | None = None
        self._last_batch_ms = 0
        self._commits = 0

    def batch_began(self, began_ms: int) -> None:
        self._batch_ms = began_ms

    def batch_ended(self, count: int, commit_interval_ms: int) -> None:
        """Record the end of the batch; a batch without records does not count as work."""
        began_ms, self._batch_ms = self._batch_ms, None
        if not count or began_ms is None:
            return
        if self._since_ms is None or began_ms - self._last_batch_ms > self._due_ms(
            commit_interval_ms
        ):
            self._since_ms = began_ms
        if self._attempt_ms is None:
            self._attempt_ms = began_ms
        self._last_batch_ms = self._clock.monotonic_ms()

    def committed(self, total: int) -> None:
        """Record the total number of commits."""
        if total != self._commits:
            self._commits, self._since_ms = total, None
            self._attempt_ms = None

    def discarded(self) -> None:
        """Record that the uncommitted work was discarded and will be repeated."""
        self._attempt_ms = self._batch_ms = None

    def describe(self) -> str:
        """Describe the duration and limit of uncommitted work; empty if there is none.

        The text follows a message in a log line. A failed batch counts from its start.
        """
        began_ms = self._batch_ms if self._attempt_ms is None else self._attempt_ms
        if began_ms is None:
            return ""
        took = f" The uncommitted work has taken {self._clock.monotonic_ms() - began_ms} ms"
        if self._limit_ms is None:
            return f"{took}."
        return f"{took}; limit: {self._limit_ms} ms ({self._settings})."

    @property
    def uncommitted_ms(self) -> int:
        """How long records have been processed without a commit; 0 after a commit."""
        since_ms = self._since_ms
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    def overdue_ms(self, commit_interval_ms: int) -> int:
        """Return `uncommitted_ms` if a commit is overdue; else 0."""
        due_ms, waits_ms = self._due_ms(commit_interval_ms), self.uncommitted_ms
        is_at_work = self._clock.monotonic_ms() - self._last_batch_ms <= due_ms
        return waits_ms if waits_ms > due_ms and is_at_work else 0

    def _due_ms(self, commit_interval_ms: int) -> int:
        return commit_interval_ms + self._grace_ms

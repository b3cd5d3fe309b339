"""Giving up what cannot be committed, and asking the group for the tasks again."""

from __future__ import annotations

import logging

from millstream.clock import Clock
from millstream.errors import TaskMigratedError
from millstream.runtime.backoff import Backoff
from millstream.runtime.loop.commits import Commits
from millstream.runtime.loop.overdue_commits import UncommittedWork
from millstream.runtime.loop.rebalances import Rebalances

logger = logging.getLogger(__name__)

#: The pauses before the group is joined anew, until a commit has worked.
_FIRST_MS = 100
_MOST_MS = 10_000


class JoiningAnew:
    """Drops what cannot be committed and asks for the tasks again, more rarely each time.

    The pause is none of the loop's: it goes on as a thread without active tasks does.

    Args:
        rebalances: the thread's place in the group.
        commits: tell whether anything was committed meanwhile.
        uncommitted: the work that is dropped, for the log.
        clock: for the pauses.
    """

    def __init__(
        self, rebalances: Rebalances, commits: Commits, uncommitted: UncommittedWork, clock: Clock
    ) -> None:
        self._rebalances = rebalances
        self._commits = commits
        self._uncommitted = uncommitted
        self._backoff = Backoff(clock, first_ms=_FIRST_MS, most_ms=_MOST_MS)
        self._commits_before = 0

    def because_of(self, error: TaskMigratedError) -> None:
        """Join anew."""
        if self._commits.total > self._commits_before:
            self._backoff.reset()
        self._commits_before = self._commits.total
        pause_ms = self._backoff.next_pause_ms()
        logger.warning(
            "giving all active tasks up without a commit, and joining the group anew in %d ms: "
            "%s%s",
            pause_ms,
            error,
            self._uncommitted.described(),
        )
        self._rebalances.drop_work()
        self._rebalances.rejoin("its work could not be committed", pause_ms)

"""How many records a task takes at a time."""

from __future__ import annotations

from typing import Final

#: About how long a batch should take, and how many records the first one has.
_BATCH_MS: Final = 200
_FIRST_RECORDS: Final = 128


class BatchSize:
    """Lets a batch take about 200 ms, however slow the user's code is.

    Commits, rebalances and the command to close wait for the end of a batch.
    """

    def __init__(self) -> None:
        #: How many records the next batch may have.
        self.limit = _FIRST_RECORDS

    def fit(self, count: int, limit: int, took_ms: int) -> None:
        """Learn from a batch.

        Args:
            count: how many records it had.
            limit: how many it might have had.
            took_ms: how long it took.
        """
        if took_ms > _BATCH_MS:
            self.limit = max(1, count * _BATCH_MS // took_ms)
        elif count == limit and 2 * took_ms < _BATCH_MS:
            self.limit = max(self.limit, 2 * limit)

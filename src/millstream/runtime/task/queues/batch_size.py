"""How many records a task takes at a time."""

from __future__ import annotations

from typing import Final

#: About how long a batch should take, and how many records the first one has.
_BATCH_MS: Final = 200
_FIRST_RECORDS: Final = 128


class BatchSize:
    """Adapts the number of records in a batch to the time that batches take.

    Commits, rebalances and commands wait for the end of a batch.

    Args:
        first: the records of the first batch. With 1, no batch takes longer than the limits of the
            group and of the transaction before anything is measured; a dozen batches later it
            makes no difference: 200,000 records took 0.6 s of the processor with 1 and with 128.
        batch_ms: how long a batch should take.
    """

    def __init__(self, first: int = _FIRST_RECORDS, batch_ms: int = _BATCH_MS) -> None:
        #: How many records the next batch may have.
        self.limit = first
        self._batch_ms = batch_ms

    def fit(self, count: int, limit: int, took_ms: int) -> None:
        """Adapt to a batch.

        Args:
            count: how many records it had.
            limit: how many it might have had.
            took_ms: how long it took.
        """
        if took_ms > self._batch_ms:
            self.limit = max(1, count * self._batch_ms // took_ms)
        elif count == limit and 2 * took_ms < self._batch_ms:
            self.limit = max(self.limit, 2 * limit)

    def restart(self) -> None:
        """Begin with single records again, after a batch that took too long."""
        self.limit = 1


class FlushSize:
    """Adapts the records between two commits to the time that flushing the caches takes.

    A flush hands on at most one result for each of these records, and calls the functions
    downstream of the caches for it.
    """

    #: How much more a flush may have than the one before it.
    _GROWTH: Final = 8

    def __init__(self) -> None:
        #: After how many records the next commit is due; None while flushes are fast, so that only
        #: `commit.interval.ms` counts.
        self.limit: int | None = None

    def fit(self, count: int, took_ms: int, flush_ms: int) -> None:
        """Adapt to a flush.

        Args:
            count: how many records came since the flush before.
            took_ms: how long it took.
            flush_ms: how long it should take at most.
        """
        if took_ms > flush_ms:
            self.limit = max(1, count * flush_ms // (2 * took_ms))
        elif self.limit is not None and count >= self.limit:
            growth = min(self._GROWTH, flush_ms // (2 * took_ms + 1))
            self.limit = max(self.limit, self.limit * growth)

    def restart(self) -> None:
        """Begin with single records again, after a flush that took too long."""
        self.limit = 1

"""How many records are taken at a time while somebody waits for answers."""

from __future__ import annotations

from typing import Final

from millstream.clock import Clock

#: How long a batch should take while somebody asks, for how long after a question that is so, and
#: how many records a batch has at least.
_BATCH_MS: Final = 5
_ASKED_MS: Final = 1_000
_LEAST_RECORDS: Final = 100


class Pace:
    """Makes batches small while questions come, since they are answered between batches.

    A batch of some thousand records takes tens of milliseconds; one of 5 ms costs a few percent of
    throughput.

    Args:
        most: how many records a batch may have while nobody asks.
        clock: time.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._limit = most
        self._until_ms: int | None = None

    @property
    def limit(self) -> int:
        """How many records the next batch may have."""
        return self._limit if self.is_asked else self._most

    @property
    def is_asked(self) -> bool:
        """Whether somebody has asked a moment ago, and so may ask again."""
        if self._until_ms is not None and self._clock.monotonic_ms() > self._until_ms:
            self._until_ms = None
        return self._until_ms is not None

    def asked(self) -> None:
        """Somebody asks."""
        self._until_ms = self._clock.monotonic_ms() + _ASKED_MS

    def took(self, count: int, took_ms: int) -> None:
        """Learn from a batch.

        Args:
            count: how many records it had.
            took_ms: how long it took.
        """
        if self._until_ms is None:
            return
        if took_ms > _BATCH_MS:
            self._limit = max(_LEAST_RECORDS, count * _BATCH_MS // took_ms)
        elif count >= self._limit and 2 * took_ms < _BATCH_MS:
            self._limit = min(self._most, 2 * self._limit)

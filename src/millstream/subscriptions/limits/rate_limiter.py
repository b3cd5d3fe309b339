"""How many tasks of a partition may start in a second."""

from __future__ import annotations

import sys
from typing import Final

from millstream.subscriptions.properties.properties import UNLIMITED

#: What one task costs; in this unit a rate of r gains r in a microsecond, so nothing is rounded.
_TASK: Final = 1_000_000


class RateLimiter:
    """A token bucket for one partition, asked by the loop that owns the partition. Never waits.

    What is not used is kept, but for no longer than a second. As in Guava's `SmoothBursty`, which
    Decaton's `AveragingRateLimiter` follows, a task may start whenever nothing is owed, and is paid
    for afterwards: in any s seconds at most rate * s + rate + 1 tasks start, and in the first ones
    after the start no more than rate * s + 1. A change of the rate keeps what is owed.

    Args:
        rate: tasks a second; -1 is no limit, 0 lets none start.
        now_us: the time, in microseconds from an arbitrary start; it must not go back.

    Example:
        >>> from millstream.subscriptions.limits.rate_limiter import RateLimiter
        >>> limiter = RateLimiter(10, now_us=0)
        >>> limiter.permits(now_us=0)
        1
        >>> limiter.take(1)
        >>> limiter.permits(now_us=99_999), limiter.permits(now_us=100_000)
        (0, 1)
        >>> limiter.permits(now_us=500_000)
        5
    """

    __slots__ = ("_kept", "_now_us", "_rate")

    def __init__(self, rate: int, *, now_us: int) -> None:
        self._rate = rate
        self._now_us = now_us
        # Negative while tasks that have started are not paid for.
        self._kept = 0

    @property
    def rate(self) -> int:
        """Tasks a second; -1 is no limit, 0 lets none start."""
        return self._rate

    def permits(self, now_us: int) -> int:
        """How many tasks may start now; `sys.maxsize` without a limit."""
        self._gain(now_us)
        if self._rate == UNLIMITED:
            return sys.maxsize
        if self._rate == 0 or self._kept < 0:
            return 0
        return self._kept // _TASK + 1

    def take(self, count: int) -> None:
        """So many tasks start, no more than `permits` has just said."""
        if self._rate != UNLIMITED:
            self._kept -= count * _TASK

    def change_rate(self, rate: int, now_us: int) -> None:
        """Another rate from now on; what may start at once does not grow by it."""
        self._gain(now_us)
        self._rate = rate
        self._kept = 0 if rate == UNLIMITED else min(self._kept, rate * _TASK)

    def _gain(self, now_us: int) -> None:
        passed_us = max(0, now_us - self._now_us)
        self._now_us += passed_us
        if self._rate > 0:
            self._kept = min(self._rate * _TASK, self._kept + passed_us * self._rate)

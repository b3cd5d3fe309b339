"""The rate limit of a partition."""

from __future__ import annotations

import sys
from typing import Final

from millstream.subscriptions.properties.subscription_properties import UNLIMITED

#: The cost of one task. In this unit, a rate of r earns r per microsecond without rounding.
_TASK_COST: Final = 1_000_000


class RateLimiter:
    """A token bucket for one partition. Never blocks; not thread-safe.

    Unused permits accumulate for at most one second. As in Guava's `SmoothBursty`, on which
    Decaton's `AveragingRateLimiter` is based, a task may start whenever the balance is not
    negative, and is charged afterwards: in any s seconds, at most rate * s + rate + 1 tasks start,
    and in the first s seconds, at most rate * s + 1. A change of the rate keeps a negative balance.

    Args:
        rate: tasks per second; -1 means unlimited, 0 stops all tasks.
        now_us: the time, in microseconds from an arbitrary start; it must not go back.
    """

    __slots__ = ("_balance", "_now_us", "rate")

    def __init__(self, rate: int, *, now_us: int) -> None:
        self.rate = rate
        self._now_us = now_us
        # Negative until enough permits for the started tasks have been earned.
        self._balance = 0

    def permits(self, now_us: int) -> int:
        """Return the number of tasks that may start now; `sys.maxsize` if unlimited."""
        self._earn(now_us)
        if self.rate == UNLIMITED:
            return sys.maxsize
        if self.rate == 0 or self._balance < 0:
            return 0
        return self._balance // _TASK_COST + 1

    def take(self, count: int) -> None:
        """Charge for started tasks. `count` must not exceed the last result of `permits`."""
        if self.rate != UNLIMITED:
            self._balance -= count * _TASK_COST

    def change_rate(self, rate: int, now_us: int) -> None:
        """Change the rate.

        This never raises the number of tasks that may start immediately.
        """
        self._earn(now_us)
        self.rate = rate
        self._balance = 0 if rate == UNLIMITED else min(self._balance, rate * _TASK_COST)

    def _earn(self, now_us: int) -> None:
        passed_us = max(0, now_us - self._now_us)
        self._now_us += passed_us
        if self.rate > 0:
            self._balance = min(self.rate * _TASK_COST, self._balance + passed_us * self.rate)

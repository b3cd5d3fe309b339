"""The token bucket of a partition, step by step."""

from __future__ import annotations

import sys

import pytest

from millstream.subscriptions.operator.rate_limiter import RateLimiter

SECOND = 1_000_000


def count_starts(limiter: RateLimiter, from_us: int, to_us: int, step_us: int = 1_000) -> int:
    """Return how many tasks start if all permits are taken, every `step_us`."""
    count = 0
    for now_us in range(from_us, to_us + 1, step_us):
        permits = limiter.permits(now_us)
        limiter.take(permits)
        count += permits
    return count


def test_rate_is_that_of_decaton() -> None:
    """Measured: 27 tasks in 2.6 s at 10 per second."""
    assert count_starts(RateLimiter(10, now_us=0), 0, 2_600_000) == 27


def test_pause_adds_permits_of_at_most_a_second() -> None:
    """After an hour, the permits of a second, and one more that is paid off later."""
    limiter = RateLimiter(10, now_us=0)
    assert limiter.permits(3_600 * SECOND) == 11


def test_rate_of_zero_permits_nothing() -> None:
    """No permits accumulate meanwhile."""
    limiter = RateLimiter(0, now_us=0)
    assert limiter.permits(SECOND) == 0
    limiter.change_rate(5, 10 * SECOND)
    assert limiter.permits(10 * SECOND) == 1


def test_no_limit_permits_everything() -> None:
    """There is no debt afterwards."""
    limiter = RateLimiter(-1, now_us=0)
    assert limiter.permits(SECOND) == sys.maxsize
    limiter.take(1_000_000)
    limiter.change_rate(5, SECOND)
    assert (limiter.rate, limiter.permits(SECOND)) == (5, 1)


def test_change_of_the_rate_keeps_debts_and_reduces_permits() -> None:
    """Detects changes that permit a task each time, or a burst of the previous rate."""
    in_debt = RateLimiter(1, now_us=0)
    in_debt.take(1)
    for now_us in range(1_000, 500_000, 1_000):
        in_debt.change_rate(1 + now_us // 1_000 % 2, now_us)
        assert in_debt.permits(now_us) == 0
    with_permits = RateLimiter(100, now_us=0)
    with_permits.change_rate(2, SECOND)
    assert with_permits.permits(SECOND) == 3
    stopped = RateLimiter(100, now_us=0)
    stopped.change_rate(0, SECOND)
    stopped.change_rate(100, SECOND)
    assert stopped.permits(SECOND) == 1


@pytest.mark.parametrize("rate", [1, 3, 7, 999, 1_000_000])
def test_debts_are_paid_off_at_the_rate(rate: int) -> None:
    """Not a microsecond later than necessary."""
    limiter = RateLimiter(rate, now_us=123)
    limiter.take(limiter.permits(123) + 2 * rate)
    paid_us = 123 + 2 * SECOND + -(-SECOND // rate)
    assert limiter.permits(paid_us - 1) == 0
    assert limiter.permits(paid_us) >= 1


def test_clock_that_goes_back_adds_no_permits() -> None:
    """No time counts twice."""
    limiter = RateLimiter(10, now_us=SECOND)
    limiter.take(1)
    assert limiter.permits(0) == 0
    assert limiter.permits(SECOND + 99_999) == 0
    assert limiter.permits(SECOND + 100_000) == 1

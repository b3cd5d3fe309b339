"""The token bucket of a partition, step by step."""

from __future__ import annotations

import sys

import pytest

from millstream.subscriptions.limits.rate_limiter import RateLimiter

SECOND = 1_000_000


def started(limiter: RateLimiter, from_us: int, to_us: int, step_us: int = 1_000) -> int:
    """How many tasks start, when as many as may start do, all `step_us`."""
    count = 0
    for now_us in range(from_us, to_us + 1, step_us):
        permits = limiter.permits(now_us)
        limiter.take(permits)
        count += permits
    return count


def test_as_many_start_as_in_decaton() -> None:
    """27 in 2.6 s at 10 a second, when measured."""
    assert started(RateLimiter(10, now_us=0), 0, 2_600_000) == 27


def test_a_pause_is_made_up_for_by_a_second_at_most() -> None:
    """After an hour, as many as in a second, and the one that is paid for afterwards."""
    limiter = RateLimiter(10, now_us=0)
    assert limiter.permits(3_600 * SECOND) == 11


def test_no_rate_lets_none_start() -> None:
    """And nothing gathers meanwhile."""
    limiter = RateLimiter(0, now_us=0)
    assert limiter.permits(SECOND) == 0
    limiter.change_rate(5, 10 * SECOND)
    assert limiter.permits(10 * SECOND) == 1


def test_no_limit_lets_all_start() -> None:
    """Nothing is owed afterwards."""
    limiter = RateLimiter(-1, now_us=0)
    assert limiter.permits(SECOND) == sys.maxsize
    limiter.take(1_000_000)
    limiter.change_rate(5, SECOND)
    assert (limiter.rate, limiter.permits(SECOND)) == (5, 1)


def test_a_change_keeps_what_is_owed_and_cuts_what_is_kept() -> None:
    """Hunts changes that let tasks start each time, or a burst of the former rate."""
    owing = RateLimiter(1, now_us=0)
    owing.take(1)
    for now_us in range(1_000, 500_000, 1_000):
        owing.change_rate(1 + now_us // 1_000 % 2, now_us)
        assert owing.permits(now_us) == 0
    rich = RateLimiter(100, now_us=0)
    rich.change_rate(2, SECOND)
    assert rich.permits(SECOND) == 3
    stopped = RateLimiter(100, now_us=0)
    stopped.change_rate(0, SECOND)
    stopped.change_rate(100, SECOND)
    assert stopped.permits(SECOND) == 1


@pytest.mark.parametrize("rate", [1, 3, 7, 999, 1_000_000])
def test_what_is_owed_is_paid_off_at_the_rate(rate: int) -> None:
    """Not a microsecond later than it could be."""
    limiter = RateLimiter(rate, now_us=123)
    limiter.take(limiter.permits(123) + 2 * rate)
    paid_us = 123 + 2 * SECOND + -(-SECOND // rate)
    assert limiter.permits(paid_us - 1) == 0
    assert limiter.permits(paid_us) >= 1


def test_a_clock_that_goes_back_stands_still() -> None:
    """What was gained is gained once."""
    limiter = RateLimiter(10, now_us=SECOND)
    limiter.take(1)
    assert limiter.permits(0) == 0
    assert limiter.permits(SECOND + 99_999) == 0
    assert limiter.permits(SECOND + 100_000) == 1

"""Backoffs: growth, maximum and reset."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.runtime.retry import Backoff


def test_pauses_double_up_to_the_maximum() -> None:
    """The number of pauses is unlimited, and no number grows without bound."""
    backoff = Backoff(ManualClock(), initial_ms=100, max_ms=1_000)
    assert [backoff.next_pause_ms() for _ in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
    backoff.reset()
    assert backoff.next_pause_ms() == 100


def test_backoff_is_only_reset_after_a_long_success() -> None:
    """The pause itself does not count."""
    clock = ManualClock()
    backoff = Backoff(clock, initial_ms=100, max_ms=90_000, reset_after_ms=60_000)
    pauses = []
    for ran_ms in (0, 59_999, 59_999, 60_000, 0):
        clock.advance(ran_ms)
        pauses.append(backoff.next_pause_ms())
        clock.advance(pauses[-1])
    assert pauses == [100, 200, 400, 100, 200]

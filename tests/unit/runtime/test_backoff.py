"""Pauses that grow, stay at the longest, and begin anew."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.runtime.backoff import Backoff


def test_pauses_double_up_to_the_longest() -> None:
    """Nothing gives up, and no number grows without end."""
    backoff = Backoff(ManualClock(), first_ms=100, most_ms=1_000)
    assert [backoff.next_pause_ms() for _ in range(6)] == [100, 200, 400, 800, 1_000, 1_000]
    backoff.reset()
    assert backoff.next_pause_ms() == 100


def test_only_going_well_for_long_enough_begins_anew() -> None:
    """The pause itself does not count as going well."""
    clock = ManualClock()
    backoff = Backoff(clock, first_ms=100, most_ms=90_000, calm_ms=60_000)
    pauses = []
    for ran_ms in (0, 59_999, 59_999, 60_000, 0):
        clock.advance(ran_ms)
        pauses.append(backoff.next_pause_ms())
        clock.advance(pauses[-1])
    assert pauses == [100, 200, 400, 100, 200]

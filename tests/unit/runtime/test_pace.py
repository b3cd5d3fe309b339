"""Goal: batches are small while somebody asks, and only then."""

from __future__ import annotations

from typing import Any

from millstream.runtime.queries.pace import Pace


class HandClock:
    """Stands still until it is set."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


def test_batches_fit_the_time_while_questions_come() -> None:
    """What took long becomes shorter, what is quick grows again, up to the most there is."""
    clock: Any = HandClock()
    pace = Pace(4_000, clock)
    pace.took(4_000, 40)
    assert pace.limit == 4_000
    pace.asked()
    pace.took(4_000, 40)
    assert pace.limit == 500
    pace.took(500, 1)
    assert pace.limit == 1_000
    # Too few records say nothing.
    pace.took(10, 1)
    assert pace.limit == 1_000
    pace.took(20, 2_000)
    assert pace.limit == 100


def test_nobody_asks_any_more() -> None:
    """A second after the last question batches are what they were."""
    clock: Any = HandClock()
    pace = Pace(4_000, clock)
    pace.asked()
    pace.took(4_000, 40)
    clock.ms = 1_000
    assert pace.limit == 500
    clock.ms = 1_001
    assert pace.limit == 4_000

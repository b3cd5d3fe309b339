"""Batches are small while queries arrive, and only then."""

from __future__ import annotations

from typing import Any

from millstream.runtime.queries.pending_queries import BatchLimiter


class SettableClock:
    """A clock that only the test sets."""

    ms = 0

    def monotonic_ms(self) -> int:
        return self.ms


def test_batches_fit_the_time_while_queries_arrive() -> None:
    """Slow batches become smaller, fast batches grow again up to the maximum."""
    clock: Any = SettableClock()
    pace = BatchLimiter(4_000, clock)
    pace.record_batch(4_000, 40)
    assert pace.limit == 4_000
    pace.on_query()
    pace.record_batch(4_000, 40)
    assert pace.limit == 500
    pace.record_batch(500, 1)
    assert pace.limit == 1_000
    # Batches with too few records do not count.
    pace.record_batch(10, 1)
    assert pace.limit == 1_000
    pace.record_batch(20, 2_000)
    assert pace.limit == 100


def test_batches_grow_again_without_queries() -> None:
    """A second after the last query, batches have their previous size."""
    clock: Any = SettableClock()
    pace = BatchLimiter(4_000, clock)
    pace.on_query()
    pace.record_batch(4_000, 40)
    clock.ms = 1_000
    assert pace.limit == 500
    clock.ms = 1_001
    assert pace.limit == 4_000

"""A short run of `parallel_storm`, with a thousand calls in flight."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.parallel_storm import parallel_storm


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coroutines", "mapped"])
def test_nothing_is_lost_with_a_thousand_calls_in_flight(tmp_path: Path, kind: str) -> None:
    """Goal: each call is completed in spite of faults; the output of `map_async` under exactly-once
    equals that of sequential calls."""
    kinds = ("instance killed", "connections cut", "instance closed")
    report = parallel_storm(tmp_path, kind, seed=1, seconds=0, kinds=kinds)
    assert report.in_flight >= 1_000, report
    assert (report.lost, report.wrong) == (0, 0), report

"""A breeze of the storm over processes with a thousand calls in flight."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.parallel_storm import parallel_storm


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["coroutines", "mapped"])
def test_nothing_is_lost_with_a_thousand_calls_in_flight(tmp_path: Path, kind: str) -> None:
    """Goal: whatever fails, each call comes to its end; what `map_async` writes under
    exactly-once is what one call after the other would have written."""
    kinds = ("instance killed", "connections cut", "instance closes")
    report = parallel_storm(tmp_path, kind, seed=1, seconds=0, kinds=kinds)
    assert report.in_flight >= 1_000, report
    assert (report.lost, report.wrong) == (0, 0), report

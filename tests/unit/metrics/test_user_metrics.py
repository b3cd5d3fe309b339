"""The metrics that a processor sees, and adds to."""

from __future__ import annotations

from collections import Counter
from functools import partial

from millstream.clock import ManualClock
from millstream.metrics.registry import Scope
from millstream.metrics.user import ContextMetrics


def test_all_of_them_are_read_once() -> None:
    """Each read is of everything: one for each metric would take the square of their number."""
    reads = Counter[str]()

    def read(name: str) -> float:
        reads[name] += 1
        return 1.0

    scope = Scope(ManualClock())
    for number in range(50):
        scope.add("stream-own-metrics", f"own-{number}", partial(read, f"own-{number}"))
    metrics = ContextMetrics(scope)
    assert len(metrics.items()) == 50
    assert set(reads.values()) == {1}
    assert sum(metrics.values()) == 50
    assert set(reads.values()) == {2}

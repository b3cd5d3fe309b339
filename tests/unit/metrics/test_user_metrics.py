"""Metrics available to processors."""

from __future__ import annotations

from collections import Counter
from functools import partial

from millstream.clock import ManualClock
from millstream.metrics.registry import MetricsScope
from millstream.metrics.user import ContextMetrics


def test_a_snapshot_reads_each_metric_once() -> None:
    """A read returns all metrics; one read per metric would have quadratic cost."""
    reads = Counter[str]()

    def read(name: str) -> float:
        reads[name] += 1
        return 1.0

    scope = MetricsScope(ManualClock())
    for number in range(50):
        scope.add("stream-own-metrics", f"own-{number}", partial(read, f"own-{number}"))
    metrics = ContextMetrics(scope)
    assert len(metrics.items()) == 50
    assert set(reads.values()) == {1}
    assert sum(metrics.values()) == 50
    assert set(reads.values()) == {2}

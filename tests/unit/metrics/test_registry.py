"""Ownership of metrics."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.metrics.registry import MetricKey, MetricsScope, RecordingLevel, RecordingSettings


def test_metrics_are_removed_with_their_owner() -> None:
    """Removed metrics are no longer reported, and the version of the names changes."""
    scope = MetricsScope(ManualClock(), labels=(("thread-id", "t"),))
    one, other = scope.child(task_id="0_0"), scope.child(task_id="0_1")
    one.rate_and_total("g", "process").record_many(3, 3, 1, 1)
    key = MetricKey("process-total", "g", (("thread-id", "t"), ("task-id", "0_0")))
    assert scope.read()[key] == 3
    version = scope.version
    scope.retain([one, other])
    assert scope.version == version, "nothing has changed"
    scope.retain([other])
    assert scope.read() == {}
    assert scope.version != version


def test_metrics_above_the_level_are_neither_recorded_nor_reported() -> None:
    for level, there in ((RecordingLevel.INFO, False), (RecordingLevel.DEBUG, True)):
        scope = MetricsScope(ManualClock(), RecordingSettings(level))
        sensor = scope.average_minimum_maximum("g", "latency", RecordingLevel.DEBUG)
        sensor.record(7)
        names = ["latency-avg", "latency-max", "latency-min"]
        assert [key.name for key in scope.all_keys()] == names * there
        assert sensor.count == there

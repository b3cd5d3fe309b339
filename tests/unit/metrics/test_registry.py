"""Who owns which metrics."""

from __future__ import annotations

from millstream.clock import ManualClock
from millstream.metrics.registry import MetricKey, Recording, RecordingLevel, Scope


def test_metrics_go_with_their_owner() -> None:
    """What is given up is not told for ever, and whoever has the names hears of it."""
    scope = Scope(ManualClock(), labels=(("thread-id", "t"),))
    one, other = scope.part(task_id="0_0"), scope.part(task_id="0_1")
    one.rate_and_total("g", "process").record_many(3, 3, 1, 1)
    key = MetricKey("process-total", "g", (("thread-id", "t"), ("task-id", "0_0")))
    assert scope.read()[key] == 3
    version = scope.version
    scope.retain([one, other])
    assert scope.version == version, "nothing has changed"
    scope.retain([other])
    assert scope.read() == {}
    assert scope.version != version


def test_a_level_that_is_not_wanted_is_neither_recorded_nor_told() -> None:
    for level, there in ((RecordingLevel.INFO, False), (RecordingLevel.DEBUG, True)):
        scope = Scope(ManualClock(), Recording(level))
        sensor = scope.average_lowest_highest("g", "latency", RecordingLevel.DEBUG)
        sensor.record(7)
        names = ["latency-avg", "latency-max", "latency-min"]
        assert [key.name for key in scope.all_keys()] == names * there
        assert sensor.count == there

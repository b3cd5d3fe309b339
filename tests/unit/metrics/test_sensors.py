"""Rates, averages and extremes over a window, as in Kafka's `SampledStat` and `Rate`."""

from __future__ import annotations

import math

import pytest

from millstream.clock import ManualClock
from millstream.metrics.sensors import SampleWindows, Sensor


def make() -> tuple[ManualClock, Sensor]:
    clock = ManualClock()
    return clock, Sensor(clock, SampleWindows(num_samples=2, sample_ms=30_000))


def test_a_rate_is_over_at_least_the_full_samples() -> None:
    """As in Kafka's `Rate`, a burst in the first second is not extrapolated."""
    clock, sensor = make()
    sensor.record_many(300, 600, 2, 2)
    clock.advance(10_000)
    assert sensor.count_rate() == pytest.approx(300 / 40)
    assert sensor.rate() == pytest.approx(600 / 40)
    clock.advance(30_000)
    sensor.record_many(100, 100, 1, 1)
    assert sensor.count_rate() == pytest.approx(400 / 40)


def test_expired_samples_only_count_in_the_total() -> None:
    clock, sensor = make()
    sensor.record_many(10, 100, 1, 50)
    clock.advance(35_000)
    sensor.record_many(10, 20, 2, 2)
    assert (sensor.average(), sensor.maximum(), sensor.minimum()) == (6, 50, 1)
    clock.advance(59_999)
    assert (sensor.average(), sensor.maximum(), sensor.minimum()) == (2, 2, 2)
    assert sensor.window_total() == 20
    clock.advance(1)
    assert math.isnan(sensor.average())
    assert math.isnan(sensor.maximum())
    assert math.isnan(sensor.minimum())
    assert (sensor.count_rate(), sensor.count, sensor.total) == (0, 20, 120)


def test_a_rate_after_a_pause_does_not_include_the_pause() -> None:
    clock, sensor = make()
    sensor.record()
    clock.advance(3_600_000)
    sensor.record_many(30, 30, 1, 1)
    clock.advance(1_000)
    assert sensor.count_rate() == pytest.approx(30 / 31)

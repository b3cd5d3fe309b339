"""Sensors: what is told of things that happen, over a window of time and since the beginning."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from millstream.clock import Clock

_NOT_MEASURED: Final = float("nan")
_NOTHING_LEAST: Final = float("inf")
_NOTHING_MOST: Final = float("-inf")


class Windows(NamedTuple):
    """What rates, averages and extremes are of.

    Args:
        num_samples: how many samples are kept (`metrics.num.samples`).
        sample_ms: how long each of them is (`metrics.sample.window.ms`).
    """

    num_samples: int = 2
    sample_ms: int = 30_000


class _Sample:
    """What was told within one part of the window."""

    __slots__ = ("count", "last_ms", "least", "most", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = self.last_ms = start_ms
        self.count = 0
        self.total = 0.0
        self.least = _NOTHING_LEAST
        self.most = _NOTHING_MOST


class Sensor:
    """Counts and measures one kind of things that happen.

    Told once of as many as happened together: 0.5 us. Rates are by time that has passed, as in
    Kafka's `Rate`: what happened in the samples that are kept, by the time since the oldest of them
    began, but by no less than all full samples.

    Args:
        clock: time.
        windows: of rates, averages and extremes.

    Attributes:
        total: the sum of all values since the beginning.
        count: how many there were.
    """

    __slots__ = ("_clock", "_now", "_old", "_windows", "count", "total")

    def __init__(self, clock: Clock, windows: Windows) -> None:
        self._clock = clock
        self._windows = windows
        self.total = 0.0
        self.count = 0
        self._now = _Sample(clock.monotonic_ms())
        self._old: deque[_Sample] = deque(maxlen=windows.num_samples)

    def record(self, value: float = 1.0) -> None:
        """It happened once.

        Args:
            value: what was measured of it.
        """
        self.record_many(1, value, value, value)

    def record_many(self, count: int, total: float, least: float, most: float) -> None:
        """It happened, perhaps more than once.

        Args:
            count: how often.
            total: the sum of what was measured.
            least: the lowest.
            most: the highest.
        """
        self.record_at(self._clock.monotonic_ms(), count, total, least, most)

    def record_at(self, now_ms: int, count: int, total: float, least: float, most: float) -> None:
        """The same, by who has looked at the clock already.

        Args:
            now_ms: when it happened, by the clock that never goes back.
            count: how often.
            total: the sum of what was measured.
            least: the lowest.
            most: the highest.
        """
        sample = self._now
        if now_ms - sample.start_ms >= self._windows.sample_ms:
            self._old.append(sample)
            sample = self._now = _Sample(now_ms)
        self.count += count
        self.total += total
        sample.last_ms = now_ms
        sample.count += count
        sample.total += total
        if least < sample.least:
            sample.least = least
        if most > sample.most:
            sample.most = most

    def record_shared(self, now_ms: int, count: int, total: float) -> None:
        """It happened so often, and this was measured of all together: each has its part.

        Args:
            now_ms: when it happened, by the clock that never goes back.
            count: how often; 0 if only the total grows.
            total: the sum of what was measured.
        """
        if count:
            each = total / count
            self.record_at(now_ms, count, total, each, each)
        else:
            self.record_at(now_ms, 0, total, _NOTHING_LEAST, _NOTHING_MOST)

    def rate(self) -> float:
        """The sum of the values, per second."""
        return self._per_second(sum(sample.total for sample in self._kept()))

    def count_rate(self) -> float:
        """How often it happens, per second."""
        return self._per_second(sum(sample.count for sample in self._kept()))

    def average(self) -> float:
        """The average of the values in the window; `nan` without any."""
        kept = self._kept()
        count = sum(sample.count for sample in kept)
        return sum(sample.total for sample in kept) / count if count else _NOT_MEASURED

    def highest(self) -> float:
        """The highest value in the window; `nan` without any."""
        most = max((sample.most for sample in self._kept()), default=_NOTHING_MOST)
        return most if most > _NOTHING_MOST else _NOT_MEASURED

    def lowest(self) -> float:
        """The lowest value in the window; `nan` without any."""
        least = min((sample.least for sample in self._kept()), default=_NOTHING_LEAST)
        return least if least < _NOTHING_LEAST else _NOT_MEASURED

    def window_total(self) -> float:
        """The sum of the values in the window."""
        return sum(sample.total for sample in self._kept())

    def _kept(self) -> list[_Sample]:
        """The samples of which something lies in the window, though they began before it."""
        windows, now_ms = self._windows, self._clock.monotonic_ms()
        since_ms = now_ms - windows.num_samples * windows.sample_ms
        return [sample for sample in (*self._old, self._now) if sample.last_ms > since_ms]

    def _per_second(self, amount: float) -> float:
        kept = self._kept()
        if not kept:
            return 0.0
        windows = self._windows
        passed_ms = self._clock.monotonic_ms() - kept[0].start_ms
        missing = windows.num_samples - 1 - passed_ms // windows.sample_ms
        passed_ms += max(0, missing) * windows.sample_ms
        return amount * 1_000 / max(1, passed_ms)


def part_of(sensor: Sensor, whole: Sensor) -> float:
    """Which part of something it was over the window, of 0 to 1: of time, for example."""
    total = whole.window_total()
    return min(1.0, sensor.window_total() / total) if total else 0.0


class SilentSensor(Sensor):
    """Stands where nothing is recorded: its level is not wanted."""

    __slots__ = ()

    def record(self, value: float = 1.0) -> None:
        """Nothing is kept."""

    def record_many(self, count: int, total: float, least: float, most: float) -> None:
        """Nothing is kept."""

    def record_at(self, now_ms: int, count: int, total: float, least: float, most: float) -> None:
        """Nothing is kept."""

"""Who owns which metrics, and what they are just now."""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from millstream.clock import Clock, SystemClock
from millstream.metrics.sensors import Sensor, SilentSensor, Windows

Labels = tuple[tuple[str, str], ...]
Read = Callable[[], float | str]


class RecordingLevel(enum.IntEnum):
    """How much is recorded (`metrics.recording.level`).

    Example:
        >>> RecordingLevel.INFO < RecordingLevel.DEBUG
        True
    """

    INFO = 0
    DEBUG = 1
    TRACE = 2


class Recording(NamedTuple):
    """How metrics are recorded.

    Args:
        level: metrics of a higher level are not there; below INFO there are none.
        windows: of rates, averages and extremes.
    """

    level: int = RecordingLevel.INFO
    windows: Windows = Windows()


class MetricKey(NamedTuple):
    """Which metric it is."""

    name: str
    group: str
    labels: Labels


class Scope:
    """The metrics of one owner, with those of whatever it owns.

    A tree: a thread has tasks, these have nodes and stores. What is given up takes its metrics with
    it. Not thread-safe, but for sensors, which may lose one of two calls at the same time.

    Args:
        clock: time.
        recording: how metrics are recorded.
        labels: of all metrics in it.

    Attributes:
        recording: how metrics are recorded.
        labels: of all metrics in it.
        version: another number whenever there are other metrics than before, here or below.
    """

    def __init__(
        self, clock: Clock, recording: Recording | None = None, labels: Labels = ()
    ) -> None:
        self.clock = clock
        self.recording = recording or Recording()
        self.labels = labels
        self.version = 0
        self._own: dict[MetricKey, Read] = {}
        self._parts: list[Scope] = []
        self._parent: Scope | None = None
        self._silent = SilentSensor(clock, self.recording.windows)

    def records(self, level: RecordingLevel) -> bool:
        """Whether metrics of a level are wanted."""
        return level <= self.recording.level

    def part(self, **labels: str) -> Scope:
        """Metrics of something that belongs to the owner.

        Args:
            labels: what they have besides, with `_` for `-`.
        """
        more = tuple((name.replace("_", "-"), value) for name, value in labels.items())
        return self.adopt(Scope(self.clock, self.recording, (*self.labels, *more)))

    def adopt(self, part: Scope) -> Scope:
        """Let metrics be seen here that were made apart."""
        part._parent = self
        self._parts.append(part)
        self._changed()
        return part

    def retain(self, parts: Collection[Scope]) -> None:
        """Let only these parts be seen, in this order."""
        if len(parts) == len(self._parts) and all(map(_is, parts, self._parts)):
            return
        self._parts = list(parts)
        for part in parts:
            part._parent = self
        self._changed()

    def remove(self, part: Scope) -> None:
        """A part is given up."""
        self._parts = [one for one in self._parts if one is not part]
        self._changed()

    def sensor(self, level: RecordingLevel = RecordingLevel.INFO) -> Sensor:
        """A sensor that records, if its level is wanted."""
        return Sensor(self.clock, self.recording.windows) if self.records(level) else self._silent

    def add(self, group: str, name: str, read: Read, labels: Labels = ()) -> None:
        """A metric.

        Args:
            group: Kafka Streams', such as `stream-task-metrics`.
            name: of the metric.
            read: what it is just now; on the thread of `values`.
            labels: what it has besides the owner's.
        """
        self._own[MetricKey(name, group, (*self.labels, *labels))] = read
        self._changed()

    def drop(self, group: str, name: str, labels: Labels = ()) -> None:
        """A metric is given up; nothing if there is none of the name."""
        if self._own.pop(MetricKey(name, group, (*self.labels, *labels)), None) is not None:
            self._changed()

    def has(self, group: str, name: str, labels: Labels = ()) -> bool:
        """Whether there is a metric of that name."""
        return MetricKey(name, group, (*self.labels, *labels)) in self._own

    def all_keys(self) -> Iterator[MetricKey]:
        """Which metrics there are, here and below."""
        yield from self._own
        for part in self._parts:
            yield from part.all_keys()

    def values(self) -> list[float | str]:
        """What they are just now, in the order of `all_keys`."""
        found = [read() for read in self._own.values()]
        for part in self._parts:
            found += part.values()
        return found

    def read(self) -> dict[MetricKey, float | str]:
        """Both."""
        return dict(zip(self.all_keys(), self.values(), strict=True))

    # --- kinds of metrics --------------------------------------------------------------------

    def rate_and_total(
        self, group: str, name: str, level: RecordingLevel = RecordingLevel.INFO
    ) -> Sensor:
        """`<name>-rate` and `<name>-total`: how often something happens."""
        sensor = self.sensor(level)
        if self.records(level):
            self.add(group, f"{name}-rate", sensor.rate)
            self.add(group, f"{name}-total", lambda: sensor.total)
        return sensor

    def average_and_highest(
        self, group: str, name: str, level: RecordingLevel = RecordingLevel.INFO
    ) -> Sensor:
        """`<name>-avg` and `<name>-max`: of something that is measured."""
        sensor = self.sensor(level)
        if self.records(level):
            self.add(group, f"{name}-avg", sensor.average)
            self.add(group, f"{name}-max", sensor.highest)
        return sensor

    def average_lowest_highest(
        self, group: str, name: str, level: RecordingLevel = RecordingLevel.INFO
    ) -> Sensor:
        """The same, with `<name>-min`."""
        sensor = self.average_and_highest(group, name, level)
        if self.records(level):
            self.add(group, f"{name}-min", sensor.lowest)
        return sensor

    def gauge(
        self, group: str, name: str, read: Read, level: RecordingLevel = RecordingLevel.INFO
    ) -> None:
        """What something is just now."""
        if self.records(level):
            self.add(group, name, read)

    def _changed(self) -> None:
        scope: Scope | None = self
        while scope is not None:
            scope.version += 1
            scope = scope._parent


def _is(one: Scope, other: Scope) -> bool:
    return one is other


def unseen() -> Scope:
    """Metrics that nobody reads."""
    return Scope(SystemClock())

"""The registry of metrics and their current values, organized by owner."""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from millstream.clock import Clock, SystemClock
from millstream.metrics.sensors import SampleWindows, Sensor, SilentSensor

Labels = tuple[tuple[str, str], ...]
ReadValue = Callable[[], float | str]


class RecordingLevel(enum.IntEnum):
    """The recording level (`metrics.recording.level`).

    Example:
        >>> RecordingLevel.INFO < RecordingLevel.DEBUG
        True
    """

    INFO = 0
    DEBUG = 1
    TRACE = 2


class RecordingSettings(NamedTuple):
    """The recording level, and the windows of sensors.

    Metrics above the level do not exist. With a level below INFO, there are no metrics.
    """

    level: int = RecordingLevel.INFO
    windows: SampleWindows = SampleWindows()


class MetricKey(NamedTuple):
    name: str
    group: str
    labels: Labels


class MetricsScope:
    """The metrics of an owner and its children.

    Scopes form a tree: a thread has tasks, which have nodes and stores. Removing a scope removes
    its metrics. Not thread-safe, except for sensors, which may lose one of two concurrent calls.
    `version` changes whenever metrics are added or removed, here or in a child.
    """

    def __init__(
        self, clock: Clock, recording: RecordingSettings | None = None, labels: Labels = ()
    ) -> None:
        self.clock = clock
        self.recording = recording or RecordingSettings()
        self.labels = labels
        self.version = 0
        self._own: dict[MetricKey, ReadValue] = {}
        self._children: list[MetricsScope] = []
        self._parent: MetricsScope | None = None
        self._silent = SilentSensor(clock, self.recording.windows)

    def records(self, level: RecordingLevel) -> bool:
        return level <= self.recording.level

    def child(self, **labels: str) -> MetricsScope:
        """Add a child scope with additional labels; `_` in their names stands for `-`."""
        more = tuple((name.replace("_", "-"), value) for name, value in labels.items())
        return self.adopt(MetricsScope(self.clock, self.recording, (*self.labels, *more)))

    def adopt(self, child: MetricsScope) -> MetricsScope:
        child._parent = self
        self._children.append(child)
        self._changed()
        return child

    def retain(self, children: Collection[MetricsScope]) -> None:
        """Keep only these children, in this order."""
        if len(children) == len(self._children) and all(
            map(operator.is_, children, self._children)
        ):
            return
        self._children = list(children)
        for child in children:
            child._parent = self
        self._changed()

    def remove(self, child: MetricsScope) -> None:
        self._children = [one for one in self._children if one is not child]
        self._changed()

    def sensor(self, level: RecordingLevel = RecordingLevel.INFO) -> Sensor:
        """Create a sensor, which records only if its level is enabled."""
        return Sensor(self.clock, self.recording.windows) if self.records(level) else self._silent

    def add(self, group: str, name: str, read: ReadValue, labels: Labels = ()) -> None:
        """Add a metric. `read` is called on the thread that calls `values`."""
        self._own[MetricKey(name, group, (*self.labels, *labels))] = read
        self._changed()

    def drop(self, group: str, name: str, labels: Labels = ()) -> None:
        if self._own.pop(MetricKey(name, group, (*self.labels, *labels)), None) is not None:
            self._changed()

    def has(self, group: str, name: str, labels: Labels = ()) -> bool:
        return MetricKey(name, group, (*self.labels, *labels)) in self._own

    def all_keys(self) -> Iterator[MetricKey]:
        """Return the keys of all metrics, including those of children."""
        yield from self._own
        for child in self._children:
            yield from child.all_keys()

    def values(self) -> list[float | str]:
        """Return the current values in the order of `all_keys`."""
        found = [read() for read in self._own.values()]
        for child in self._children:
            found += child.values()
        return found

    def read(self) -> dict[MetricKey, float | str]:
        return dict(zip(self.all_keys(), self.values(), strict=True))

    # --- kinds of metrics --------------------------------------------------------------------

    def rate_and_total(
        self, group: str, name: str, level: RecordingLevel = RecordingLevel.INFO
    ) -> Sensor:
        """Add `<name>-rate` and `<name>-total` for an event."""
        sensor = self.sensor(level)
        if self.records(level):
            self.add(group, f"{name}-rate", sensor.rate)
            self.add(group, f"{name}-total", lambda: sensor.total)
        return sensor

    def average_and_maximum(
        self, group: str, name: str, level: RecordingLevel = RecordingLevel.INFO
    ) -> Sensor:
        """Add `<name>-avg` and `<name>-max` for a measurement."""
        sensor = self.sensor(level)
        if self.records(level):
            self.add(group, f"{name}-avg", sensor.average)
            self.add(group, f"{name}-max", sensor.maximum)
        return sensor

    def average_minimum_maximum(
        self, group: str, name: str, level: RecordingLevel = RecordingLevel.INFO
    ) -> Sensor:
        """Add `<name>-avg`, `<name>-min` and `<name>-max` for a measurement."""
        sensor = self.average_and_maximum(group, name, level)
        if self.records(level):
            self.add(group, f"{name}-min", sensor.minimum)
        return sensor

    def gauge(
        self, group: str, name: str, read: ReadValue, level: RecordingLevel = RecordingLevel.INFO
    ) -> None:
        if self.records(level):
            self.add(group, name, read)

    def _changed(self) -> None:
        scope: MetricsScope | None = self
        while scope is not None:
            scope.version += 1
            scope = scope._parent


def detached_scope() -> MetricsScope:
    return MetricsScope(SystemClock())

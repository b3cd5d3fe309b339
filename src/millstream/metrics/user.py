"""Metrics of user code: `context.metrics`."""

from __future__ import annotations

import enum
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Final

from millstream.metrics.registry import Labels, MetricsScope, RecordingLevel
from millstream.metrics.sensors import Sensor
from millstream.metrics.values import MetricName

#: The default group of metrics added to a sensor.
USER_GROUP: Final = "stream-user-metrics"


class Stat(enum.Enum):
    """A statistic of the values that a sensor records.

    `TOTAL` and `COUNT` cover all values. The others cover a window of, by default, one minute
    (`metrics.num.samples` and `metrics.sample.window.ms`).

    Example:
        >>> Stat.MAX.value
        'max'
    """

    AVG = "avg"
    MAX = "max"
    MIN = "min"
    #: The sum of values per second.
    RATE = "rate"
    #: The number of values per second.
    COUNT_RATE = "count-rate"
    TOTAL = "total"
    COUNT = "count"


_READERS: Final[Mapping[Stat, Callable[[Sensor], float]]] = {
    Stat.AVG: Sensor.average,
    Stat.MAX: Sensor.maximum,
    Stat.MIN: Sensor.minimum,
    Stat.RATE: Sensor.rate,
    Stat.COUNT_RATE: Sensor.count_rate,
    Stat.TOTAL: lambda sensor: sensor.total,
    Stat.COUNT: lambda sensor: sensor.count,
}


class UserSensor:
    """Records measurements of user code.

    Created by `context.metrics`, and removed with the task.

    Example:
        >>> class Sizes(Processor[str, str, str, str]):
        ...     def init(self, context: ProcessorContext[str, str]) -> None:
        ...         super().init(context)
        ...         self.sizes = context.metrics.add_sensor("sizes")
        ...         self.sizes.add("size-max", Stat.MAX)
        ...     def process(self, record: Record[str, str]) -> None:
        ...         self.sizes.record(len(record.value))
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in", key=STRING, value=STRING).process(Sizes)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("four")
        ...     {name.name: v for name, v in driver.metrics().items() if name.name == "size-max"}
        {'size-max': 4.0}
    """

    def __init__(self, name: str, scope: MetricsScope, level: RecordingLevel) -> None:
        self.name = name
        self._scope = scope
        self._level = level
        self._sensor = scope.sensor(level)
        self._metrics: list[tuple[str, str, Labels]] = []

    @property
    def should_record(self) -> bool:
        """Whether the sensor records, which depends on `metrics_recording_level`."""
        return self._scope.records(self._level)

    def record(self, value: float = 1.0) -> None:
        """Record a value.

        Example:
            >>> sensor = MockProcessorContext().metrics.add_sensor("sizes")
            >>> sensor.record(4.0)
        """
        self._sensor.record(value)

    def add(self, name: str, stat: Stat, group: str = USER_GROUP, **labels: str) -> None:
        """Add a metric of the recorded values. Replaces a metric with the same name.

        Args:
            labels: labels in addition to `thread-id` and `task-id`; `_` stands for `-`.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.add_sensor("sizes").add("size-max", Stat.MAX, unit="bytes")
            >>> [name.name for name in metrics if name.name == "size-max"]
            ['size-max']
        """
        more = tuple((label.replace("_", "-"), value) for label, value in labels.items())
        self._metrics.append((group, name, more))
        if self.should_record:
            read, sensor = _READERS[stat], self._sensor
            self._scope.add(group, name, lambda: read(sensor), more)

    def _remove(self) -> None:
        for group, name, labels in self._metrics:
            self._scope.drop(group, name, labels)


class ContextMetrics(Mapping[MetricName, float]):
    """The metrics of a task, and methods to add more (KIP-324, KIP-444).

    A mapping of all current metrics. Adding a sensor with an existing name returns the existing
    sensor, so a restarted task continues its counts.

    Example:
        >>> metrics = MockProcessorContext().metrics
        >>> _ = metrics.add_rate_total_sensor("check", "orders", "odd")
        >>> [(name.group, name.tags) for name in metrics if name.name == "odd-total"]
        [('stream-check-metrics', (('check-id', 'orders'),))]
    """

    def __init__(self, scope: MetricsScope) -> None:
        self._scope = scope
        self._sensors: dict[str, UserSensor] = {}

    def __getitem__(self, name: MetricName) -> float:
        return self._all()[name]

    def __iter__(self) -> Iterator[MetricName]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def items(self) -> ItemsView[MetricName, float]:
        """Return all metrics. All values are read at the same time.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.add_rate_total_sensor("check", "orders", "odd").record()
            >>> {name.name: value for name, value in metrics.items()}["odd-total"]
            1.0
        """
        return self._all().items()

    def values(self) -> ValuesView[float]:
        """Return all values, read at the same time.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.add_rate_total_sensor("check", "orders", "odd").record()
            >>> 1.0 in metrics.values()
            True
        """
        return self._all().values()

    def __repr__(self) -> str:
        return f"<ContextMetrics: {len(self)} values>"

    def add_sensor(self, name: str, level: RecordingLevel = RecordingLevel.INFO) -> UserSensor:
        """Add a sensor without metrics; `UserSensor.add` adds metrics to it.

        Example:
            >>> sensor = MockProcessorContext().metrics.add_sensor("sizes", RecordingLevel.DEBUG)
            >>> sensor.should_record
            False
        """
        sensor = self._sensors.get(name)
        if sensor is None:
            sensor = self._sensors[name] = UserSensor(name, self._scope, level)
        return sensor

    def add_rate_total_sensor(
        self,
        scope: str,
        entity: str,
        operation: str,
        level: RecordingLevel = RecordingLevel.INFO,
        **labels: str,
    ) -> UserSensor:
        """Add a sensor with `<operation>-rate` and `<operation>-total`.

        They count the calls of `record`; the rate is per second. Both are in the group
        `stream-<scope>-metrics` with the label `<scope>-id`.

        Args:
            scope: the kind of the entity, such as `processor`.
            labels: additional labels; `_` stands for `-`.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.add_rate_total_sensor("check", "orders", "odd").record()
            >>> [value for name, value in metrics.items() if name.name == "odd-total"]
            [1.0]
        """
        group, labels = f"stream-{scope}-metrics", {f"{scope}-id": entity, **labels}
        key = f"{group}/{entity}/{operation}"
        is_new = key not in self._sensors
        sensor = self.add_sensor(key, level)
        if is_new:
            sensor.add(f"{operation}-rate", Stat.COUNT_RATE, group, **labels)
            sensor.add(f"{operation}-total", Stat.COUNT, group, **labels)
        return sensor

    def add_latency_rate_total_sensor(
        self,
        scope: str,
        entity: str,
        operation: str,
        level: RecordingLevel = RecordingLevel.INFO,
        **labels: str,
    ) -> UserSensor:
        """Add a sensor with a rate, a total, and the average and maximum latency.

        The metrics are `<operation>-rate`, `-total`, `-latency-avg` and `-latency-max`. Like
        `add_rate_total_sensor`, but recorded values are latencies.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.add_latency_rate_total_sensor("http", "prices", "get").record(12.5)
            >>> [value for name, value in metrics.items() if name.name == "get-latency-max"]
            [12.5]
        """
        key = f"stream-{scope}-metrics/{entity}/{operation}"
        is_new = key not in self._sensors
        sensor = self.add_rate_total_sensor(scope, entity, operation, level, **labels)
        if is_new:
            group, labels = f"stream-{scope}-metrics", {f"{scope}-id": entity, **labels}
            sensor.add(f"{operation}-latency-avg", Stat.AVG, group, **labels)
            sensor.add(f"{operation}-latency-max", Stat.MAX, group, **labels)
        return sensor

    def remove_sensor(self, sensor: UserSensor) -> None:
        """Remove a sensor and its metrics, if they exist.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.remove_sensor(metrics.add_rate_total_sensor("check", "orders", "odd"))
            >>> len(metrics)
            0
        """
        if self._sensors.get(sensor.name) is sensor:
            del self._sensors[sensor.name]
            sensor._remove()

    def _all(self) -> dict[MetricName, float]:
        return {
            MetricName(*key): float(value)
            for key, value in self._scope.read().items()
            if not isinstance(value, str)
        }

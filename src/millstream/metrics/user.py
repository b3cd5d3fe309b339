"""Metrics of user code: `context.metrics`."""

from __future__ import annotations

import enum
from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from typing import Final

from millstream.metrics.names import MetricName
from millstream.metrics.registry import Labels, MetricKey, RecordingLevel, Scope
from millstream.metrics.sensors import Sensor

#: The group of metrics that are added to a sensor without one.
USER_GROUP: Final = "stream-user-metrics"


class Stat(enum.Enum):
    """What is told of the values that a sensor records: over a window of time (a minute, by
    `metrics.num.samples` and `metrics.sample.window.ms`) or, for `TOTAL` and `COUNT`, since the
    beginning.

    Example:
        >>> Stat.MAX.value
        'max'
    """

    AVG = "avg"
    MAX = "max"
    MIN = "min"
    #: The sum of the values per second.
    RATE = "rate"
    #: How many values per second.
    COUNT_RATE = "count-rate"
    TOTAL = "total"
    COUNT = "count"


_READ: Final[Mapping[Stat, Callable[[Sensor], float]]] = {
    Stat.AVG: Sensor.average,
    Stat.MAX: Sensor.highest,
    Stat.MIN: Sensor.lowest,
    Stat.RATE: Sensor.rate,
    Stat.COUNT_RATE: Sensor.count_rate,
    Stat.TOTAL: lambda sensor: sensor.total,
    Stat.COUNT: lambda sensor: sensor.count,
}


class UserSensor:
    """Records what user code measures. Made by `context.metrics`; given up with its task.

    Args:
        name: of the sensor.
        scope: where its metrics are.
        level: at which it records.

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

    def __init__(self, name: str, scope: Scope, level: RecordingLevel) -> None:
        self.name = name
        self._scope = scope
        self._level = level
        self._sensor = scope.sensor(level)
        self._added: list[tuple[str, str, Labels]] = []

    @property
    def should_record(self) -> bool:
        """Whether it records at all: `metrics_recording_level` may be lower than its own."""
        return self._scope.records(self._level)

    def record(self, value: float = 1.0) -> None:
        """It happened, and this was measured.

        Args:
            value: what was measured.

        Example:
            >>> sensor = MockProcessorContext().metrics.add_sensor("sizes")
            >>> sensor.record(4.0)
        """
        self._sensor.record(value)

    def add(self, name: str, stat: Stat, group: str = USER_GROUP, **labels: str) -> None:
        """A metric of what it records; one that is there is replaced.

        Args:
            name: of the metric.
            stat: what it tells.
            group: of the metric.
            labels: what it has besides `thread-id` and `task-id`; `_` stands for `-`.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.add_sensor("sizes").add("size-max", Stat.MAX, unit="bytes")
            >>> [name.name for name in metrics if name.name == "size-max"]
            ['size-max']
        """
        more = tuple((label.replace("_", "-"), value) for label, value in labels.items())
        self._added.append((group, name, more))
        if self.should_record:
            read, sensor = _READ[stat], self._sensor
            self._scope.add(group, name, lambda: read(sensor), more)

    def _remove(self) -> None:
        for group, name, labels in self._added:
            self._scope.drop(group, name, labels)


class ContextMetrics(Mapping[MetricName, float]):
    """The metrics of a task, and a way to add to them (KIP-324, KIP-444).

    A mapping of all that is there now. What is added under a name that is there already is the
    same sensor: a task that stops and starts again goes on counting.

    Args:
        scope: the metrics of the task.

    Example:
        >>> class Check(Processor[str, str, str, str]):
        ...     def init(self, context: ProcessorContext[str, str]) -> None:
        ...         super().init(context)
        ...         self.odd = context.metrics.add_rate_total_sensor("check", "orders", "odd")
        ...     def process(self, record: Record[str, str]) -> None:
        ...         if not record.value.isdigit():
        ...             self.odd.record()
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("in", key=STRING, value=STRING).process(Check)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("x7")
        ...     [(n.group, n.tags) for n in driver.metrics() if n.name == "odd-total"]
        [('stream-check-metrics', (('task-id', '0_0'), ('check-id', 'orders')))]
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._sensors: dict[str, UserSensor] = {}

    def __getitem__(self, name: MetricName) -> float:
        return self._all()[name]

    def __iter__(self) -> Iterator[MetricName]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def items(self) -> ItemsView[MetricName, float]:
        """All of one moment. They are read once, and not anew for each.

        Example:
            >>> metrics = MockProcessorContext().metrics
            >>> metrics.add_rate_total_sensor("check", "orders", "odd").record()
            >>> {name.name: value for name, value in metrics.items()}["odd-total"]
            1.0
        """
        return self._all().items()

    def values(self) -> ValuesView[float]:
        """The same without names.

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
        """A sensor without metrics; `UserSensor.add` gives it some.

        Args:
            name: of the sensor; one that is there is given back.
            level: at which it records.

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
        """A sensor with `<operation>-rate`, records per second, and `<operation>-total`, in the
        group `stream-<scope>-metrics` with the label `<scope>-id`.

        Args:
            scope: what kind of thing it is about, such as `processor`.
            entity: which one.
            operation: what happens.
            level: at which it records.
            labels: what the metrics have besides; `_` stands for `-`.

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
        """The same, with `<operation>-latency-avg` and `<operation>-latency-max` of what is
        recorded.

        Args:
            scope: what kind of thing it is about, such as `processor`.
            entity: which one.
            operation: what takes its time.
            level: at which it records.
            labels: what the metrics have besides; `_` stands for `-`.

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
        """Give up a sensor and its metrics; nothing if it is given up.

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
            _name(key): float(value)
            for key, value in self._scope.read().items()
            if not isinstance(value, str)
        }


def _name(key: MetricKey) -> MetricName:
    return MetricName(key.name, key.group, key.labels)

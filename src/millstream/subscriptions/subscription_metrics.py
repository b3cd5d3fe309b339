"""Metrics of a subscription, under Decaton's names."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.record import TopicPartition

#: The name of a metric and its labels.
LabeledName = tuple[str, tuple[tuple[str, str], ...]]
LabeledValue = tuple[str, tuple[tuple[str, str], ...], float]

#: Gauges of the current state of a partition; all other metrics are counters.
SUBSCRIPTION_GAUGES: Final = frozenset(
    {"tasks.pending", "tasks.pending.age.max", "partition.paused", "offset.latest.consumed"}
)


class PartitionMetrics:
    """The metrics of one partition. Thread-safe.

    An update takes 0.5 us, so callers update for many tasks at once where possible.
    """

    def __init__(self) -> None:
        # Reentrant: a completion may be garbage-collected during an update.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._maximums: dict[str, float] = {}

    def count(self, name: str, by: int = 1) -> None:
        if by:
            with self._lock:
                self._counts[name] += by

    def measure(self, name: str, count: int, total: float, maximum: float) -> None:
        """Add the values of `count` tasks to a timer or another distribution."""
        if not count:
            return
        with self._lock:
            self._counts[f"{name}.count"] += count
            self._counts[f"{name}.sum"] += total  # type: ignore[assignment]
            self._maximums[name] = max(maximum, self._maximums.get(name, 0))

    def measure_all(self, name: str, values: Sequence[float]) -> None:
        self.measure(name, len(values), sum(values), max(values, default=0))

    def all(self) -> dict[str, float]:
        with self._lock:
            maximum = {f"{name}.max": value for name, value in self._maximums.items()}
            return {**self._counts, **maximum}


class SubscriptionMetrics:
    """The metrics of all partitions of one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        self._gauges: dict[TopicPartition, Callable[[], Mapping[str, float]]] = {}

    def for_partition(self, partition: TopicPartition) -> PartitionMetrics:
        """Return the metrics of a partition.

        They continue if the partition is assigned again.
        """
        with self._lock:
            return self._partitions.setdefault(partition, PartitionMetrics())

    def add_gauges(
        self, partition: TopicPartition, gauges: Callable[[], Mapping[str, float]]
    ) -> None:
        """Register the gauges of an assigned partition.

        They run on the thread that calls `all`.
        """
        self._gauges[partition] = gauges

    def remove_gauges(self, partition: TopicPartition) -> None:
        self._gauges.pop(partition, None)

    def all(self) -> Mapping[LabeledName, float]:
        with self._lock:
            partitions = dict(self._partitions)
        found: dict[LabeledName, float] = {}
        for partition, metrics in partitions.items():
            gauges = self._gauges.get(partition)
            values = {**metrics.all(), **(gauges() if gauges is not None else {})}
            for name, value in values.items():
                found[name, labels_of(partition)] = value
        return found


def labels_of(partition: TopicPartition) -> tuple[tuple[str, str], ...]:
    return (("topic", partition.topic), ("partition", str(partition.partition)))

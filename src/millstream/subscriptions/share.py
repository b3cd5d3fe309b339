"""What the partitions of one thread of a subscription have in common."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from millstream.record import TopicPartition
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.processors import Instances
from millstream.subscriptions.properties.properties import Properties

#: The name of a metric and its labels.
Labelled = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """What is counted, by name and labels. Usable from several threads."""

    def __init__(self) -> None:
        # Entered again by a completion that is thrown away while something is counted.
        self._lock = threading.RLock()
        self._counts: Counter[Labelled] = Counter()
        self._gauges: dict[Labelled, float] = {}

    def count(self, name: str, place: TopicPartition, by: float = 1) -> None:
        """Add to a counter of a partition."""
        with self._lock:
            self._counts[name, _labels(place)] += by  # type: ignore[assignment]

    def show(self, name: str, place: TopicPartition, value: float) -> None:
        """Set a gauge of a partition."""
        with self._lock:
            self._gauges[name, _labels(place)] = value

    def forget(self, place: TopicPartition) -> None:
        """The gauges of a partition that is given up say nothing any more."""
        labels = _labels(place)
        with self._lock:
            for key in [key for key in self._gauges if key[1] == labels]:
                del self._gauges[key]

    def all(self) -> Mapping[Labelled, float]:
        """All of them."""
        with self._lock:
            return {**self._counts, **self._gauges}


class SubscriptionShare:
    """The properties of now, the processors that live, and what is counted.

    Attributes:
        properties: those of now; None until they are changed for the first time.
        version: grows with each change of them.
        metrics: what is counted.
    """

    def __init__(self) -> None:
        self.properties: Properties | None = None
        self.version = 0
        self.metrics = Metrics()
        self._instances: Instances | None = None

    def change(self, properties: Properties) -> None:
        """From now on these hold."""
        self.properties = properties
        self.version += 1

    def instances(self, plan: SubscriptionPlan) -> Instances:
        """The processors that live."""
        if self._instances is None:
            self._instances = Instances(plan.chain)
        return self._instances

    def all_metrics(self) -> tuple[tuple[str, tuple[tuple[str, str], ...], float], ...]:
        """What was counted: name, labels and value of each."""
        return tuple((name, labels, value) for (name, labels), value in self.metrics.all().items())

    def close(self) -> None:
        """Close the processors that are left."""
        if self._instances is not None:
            self._instances.close()


def _labels(place: TopicPartition) -> tuple[tuple[str, str], ...]:
    return (("topic", place.topic), ("partition", str(place.partition)))

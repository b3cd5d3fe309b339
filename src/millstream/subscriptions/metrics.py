"""What a subscription counts, by Decaton's names."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from millstream.record import TopicPartition

#: The name of a metric and its labels.
Labelled = tuple[str, tuple[tuple[str, str], ...]]
LabelledValue = tuple[str, tuple[tuple[str, str], ...], float]

#: What tells how a partition is just now; all others only grow.
PRESENT: Final = frozenset(
    {"tasks.pending", "tasks.pending.age.max", "partition.paused", "offset.latest.consumed"}
)


class PartitionMetrics:
    """What is counted of one partition. Usable from several threads.

    Told of many tasks at once where that is possible: 0.5 us each time.
    """

    def __init__(self) -> None:
        # Entered again by a completion that is thrown away while something is counted.
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._most: dict[str, float] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        if by:
            with self._lock:
                self._counts[name] += by

    def measure(self, name: str, count: int, total: float, most: float) -> None:
        """Add to a timer, or to whatever else is measured of each of some tasks.

        Args:
            name: its name.
            count: how many were measured.
            total: the sum.
            most: the highest.
        """
        if not count:
            return
        with self._lock:
            self._counts[f"{name}.count"] += count
            self._counts[f"{name}.sum"] += total  # type: ignore[assignment]
            self._most[name] = max(most, self._most.get(name, 0))

    def measure_all(self, name: str, values: Sequence[float]) -> None:
        """Add what was measured of each of some tasks."""
        self.measure(name, len(values), sum(values), max(values, default=0))

    def all(self) -> dict[str, float]:
        """All of them."""
        with self._lock:
            most = {f"{name}.max": value for name, value in self._most.items()}
            return {**self._counts, **most}


class Metrics:
    """What is counted of all partitions of one thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partitions: dict[TopicPartition, PartitionMetrics] = {}
        self._gauges: dict[TopicPartition, Callable[[], Mapping[str, float]]] = {}

    def of(self, place: TopicPartition) -> PartitionMetrics:
        """Those of a partition, which go on where they were if it comes back."""
        with self._lock:
            return self._partitions.setdefault(place, PartitionMetrics())

    def show(self, place: TopicPartition, gauges: Callable[[], Mapping[str, float]]) -> None:
        """From now on a partition is here, and this tells how it is; on the thread of `all`."""
        self._gauges[place] = gauges

    def forget(self, place: TopicPartition) -> None:
        """A partition is given up: how it is nobody knows any more."""
        self._gauges.pop(place, None)

    def all(self) -> Mapping[Labelled, float]:
        """All of them."""
        with self._lock:
            partitions = dict(self._partitions)
        found: dict[Labelled, float] = {}
        for place, metrics in partitions.items():
            shown = self._gauges.get(place)
            values = {**metrics.all(), **(shown() if shown is not None else {})}
            for name, value in values.items():
                found[name, labels_of(place)] = value
        return found


def labels_of(place: TopicPartition) -> tuple[tuple[str, str], ...]:
    """The labels of what is counted of a partition."""
    return (("topic", place.topic), ("partition", str(place.partition)))

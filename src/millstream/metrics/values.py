"""User-visible metric values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, overload

from millstream.html_tables import html_table, mime_bundle

#: Kafka Streams' group of node metrics.
NODE_GROUP: Final = "stream-processor-node-metrics"
#: Thread metrics that Kafka Streams does not have.
OWN_GROUP: Final = "millstream-thread-metrics"


class MetricName(NamedTuple):
    """The name of a metric in Kafka Streams.

    Args:
        group: the group, for example `stream-task-metrics`.
        tags: pairs of a name and a value, such as the task ID.

    Example:
        >>> MetricName("dropped-records-total", "stream-task-metrics", (("task-id", "0_0"),)).name
        'dropped-records-total'
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()


class Metric(NamedTuple):
    """The value of a metric.

    Args:
        name: Kafka Streams' name, such as `process-rate`; for a subscription, Decaton's name
            without `decaton.`. Timers have the suffixes `.count`, `.sum` and `.max`, the last two
            in milliseconds.
        labels: `thread-id`, `task-id`, `processor-node-id`, …; for a subscription `subscription`,
            `topic` and `partition`.
        value: a string where Kafka Streams has a string, such as the state. `nan` if nothing was
            measured, for example for the average of no values.
        group: Kafka Streams' group, such as `stream-thread-metrics`.

    Example:
        >>> Metric("tasks.pending", {"topic": "emails", "partition": "0"}, 12.0).value
        12.0
    """

    name: str
    labels: Mapping[str, str]
    value: float | str
    group: str = ""


class Metrics(Sequence[Metric]):
    """Metric values at one point in time, ordered by group, name and labels.

    Example:
        >>> metrics = Metrics([
        ...     Metric("tasks.processed", {"topic": "emails", "partition": "0"}, 3.0),
        ...     Metric("tasks.processed", {"topic": "emails", "partition": "1"}, 4.0),
        ... ])
        >>> metrics.total("tasks.processed"), metrics.total("tasks.processed", partition="1")
        (7.0, 4.0)
    """

    def __init__(self, found: Iterable[Metric]) -> None:
        self._all = sorted(found, key=lambda one: (one.group, one.name, sorted(one.labels.items())))

    @overload
    def __getitem__(self, index: int) -> Metric: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Metric]: ...

    def __getitem__(self, index: int | slice) -> Metric | Sequence[Metric]:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._all)

    def __repr__(self) -> str:
        return f"<Metrics: {len(self._all)} values>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return a table of the metrics, for notebooks."""
        rows = (
            (each.name, ", ".join(f"{k}={v}" for k, v in each.labels.items()), str(each.value))
            for each in self
        )
        title = f"{len(self)} metrics"
        return mime_bundle(repr(self), html_table(title, ["Metric", "Labels", "Value"], rows))

    def named(self, name: str, group: str | None = None, **labels: str) -> Metrics:
        """Return the metrics with a name and labels.

        Args:
            group: only metrics of this group; None for all.
            labels: labels to match; `_` stands for `-`, so `thread_id` is the label `thread-id`.

        Example:
            >>> task = {"task-id": "0_1"}
            >>> metrics = Metrics([Metric("process-total", task, 3.0, "stream-task-metrics")])
            >>> [one.value for one in metrics.named("process-total", task_id="0_1")]
            [3.0]
        """
        wanted = {label.replace("_", "-"): value for label, value in labels.items()}
        return Metrics(
            one
            for one in self._all
            if one.name == name
            and (group is None or one.group == group)
            and wanted.items() <= one.labels.items()
        )

    def total(self, name: str, group: str | None = None, **labels: str) -> float:
        """Return the sum of the values with a name and labels; for `.max`, the maximum.

        Strings and `nan` are ignored.

        Args:
            group: only metrics of this group: `process-total` exists for threads, tasks and nodes.
            labels: labels to match; `_` stands for `-`.

        Example:
            >>> Metrics([]).total("tasks.error")
            0.0
        """
        found = (one.value for one in self.named(name, group, **labels))
        values = [value for value in found if not isinstance(value, str) and value == value]
        return float(max(values, default=0) if name.endswith(".max") else sum(values))


#: Metrics that may decrease, although Kafka Streams names them like counters.
_NOT_COUNTERS: Final = frozenset({"restore-remaining-records-total", "cache-size-bytes-total"})


def is_counter(name: str) -> bool:
    """Whether a metric only increases during the lifetime of its owner."""
    return name.endswith("-total") and name not in _NOT_COUNTERS

"""Metrics as their users see them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, overload


class Metric(NamedTuple):
    """One value.

    Args:
        name: Kafka Streams', such as `process-rate`; of a subscription Decaton's without
            `decaton.`, of a timer with `.count`, `.sum` or `.max` behind it, the last two in
            milliseconds.
        labels: what it is about: `thread-id`, `task-id`, `processor-node-id`, …; of a subscription
            `subscription`, `topic` and `partition`.
        value: what it is; a text where Kafka Streams has one, such as the state. `nan` where
            nothing was measured, for example the average of nothing.
        group: Kafka Streams', such as `stream-thread-metrics`.

    Example:
        >>> Metric("tasks.pending", {"topic": "emails", "partition": "0"}, 12.0).value
        12.0
    """

    name: str
    labels: Mapping[str, str]
    value: float | str
    group: str = ""


class Metrics(Sequence[Metric]):
    """Values of one moment, in the order of their groups, names and labels.

    Args:
        found: the values, each once.

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

    def named(self, name: str, group: str | None = None, **labels: str) -> Metrics:
        """Those of a name that have these labels.

        Args:
            name: of the metric.
            group: only of this one; else of any.
            labels: which ones, with `_` for `-`: `thread_id` is the label `thread-id`.

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
        """The sum of the values of a name, of all that have these labels; of a `.max` the highest.

        Texts, and what was not measured, do not count.

        Args:
            name: of the metric.
            group: only of this one: `process-total` is one of threads, tasks and nodes.
            labels: which ones, with `_` for `-`.

        Example:
            >>> Metrics([]).total("tasks.error")
            0.0
        """
        found = (one.value for one in self.named(name, group, **labels))
        values = [value for value in found if not isinstance(value, str) and value == value]
        return float(max(values, default=0) if name.endswith(".max") else sum(values))

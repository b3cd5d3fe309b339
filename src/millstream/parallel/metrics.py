"""The metrics of a subscription, as its user sees them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload


class Metric(NamedTuple):
    """One value.

    Args:
        name: Decaton's, without `decaton.`; of a timer with `.count`, `.sum` or `.max` behind it,
            the last two in milliseconds.
        labels: `subscription`, `topic` and `partition`.
        value: what it is.

    Example:
        >>> Metric("tasks.pending", {"topic": "emails", "partition": "0"}, 12.0).value
        12.0
    """

    name: str
    labels: Mapping[str, str]
    value: float


class SubscriptionMetrics(Sequence[Metric]):
    """All values of a subscription, of all its threads together, by name and labels.

    Args:
        found: the values, each once.

    Example:
        >>> metrics = SubscriptionMetrics([
        ...     Metric("tasks.processed", {"topic": "emails", "partition": "0"}, 3.0),
        ...     Metric("tasks.processed", {"topic": "emails", "partition": "1"}, 4.0),
        ... ])
        >>> metrics.total("tasks.processed"), metrics.total("tasks.processed", partition="1")
        (7.0, 4.0)
    """

    def __init__(self, found: Iterable[Metric]) -> None:
        self._all = sorted(found, key=lambda one: (one.name, sorted(one.labels.items())))

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
        return f"<SubscriptionMetrics: {len(self._all)} values>"

    def total(self, name: str, **labels: str) -> float:
        """The sum of the values of a name, of all that have these labels; of a `.max` the highest.

        Args:
            name: of the metric.
            labels: which ones.

        Example:
            >>> SubscriptionMetrics([]).total("tasks.error")
            0.0
        """
        values = [
            one.value
            for one in self._all
            if one.name == name and labels.items() <= one.labels.items()
        ]
        return float(max(values, default=0) if name.endswith(".max") else sum(values))


def gathered(subscription: str, threads: Iterable[Mapping[str, Any]]) -> SubscriptionMetrics:
    """What the threads of a subscription report, as one.

    Args:
        subscription: its name.
        threads: of each its metrics.
    """
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for thread in threads:
        for name, labels, value in thread["subscription"]:
            before = found.get((name, labels))
            if before is None:
                found[name, labels] = value
            elif name.endswith((".max", "offset.last.committed", "offset.latest.consumed")):
                found[name, labels] = max(before, value)
            else:
                found[name, labels] = before + value
    return SubscriptionMetrics(
        Metric(name, {"subscription": subscription, **dict(labels)}, float(value))
        for (name, labels), value in found.items()
    )

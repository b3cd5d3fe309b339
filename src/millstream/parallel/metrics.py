"""The metrics of a subscription, as its user sees them."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.metrics.values import Metric, Metrics
from millstream.runtime.loop.thread_meters import SUBSCRIPTION_GROUP


def gathered(subscription: str, told: Iterable[Metric]) -> Metrics:
    """What the threads of a subscription have told, as one.

    Args:
        subscription: its name.
        told: by all threads; what is not of subscriptions is left out.
    """
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for one in told:
        if one.group != SUBSCRIPTION_GROUP or isinstance(one.value, str):
            continue
        name, value = one.name, one.value
        labels = tuple((label, of) for label, of in one.labels.items() if label != "thread-id")
        before = found.get((name, labels))
        if before is None:
            found[name, labels] = value
        elif name.endswith((".max", "offset.last.committed", "offset.latest.consumed")):
            found[name, labels] = max(before, value)
        else:
            found[name, labels] = before + value
    return Metrics(
        Metric(name, {"subscription": subscription, **dict(labels)}, value, SUBSCRIPTION_GROUP)
        for (name, labels), value in found.items()
    )

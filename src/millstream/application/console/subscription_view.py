"""The data that the console shows about a subscription."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from millstream.metrics.values import Metrics
from millstream.subscriptions.properties.subscription_properties import Applied, Properties


class MonitoredSubscription(Protocol):
    """The part of `ProcessorSubscription` that the console needs."""

    @property
    def properties(self) -> Properties: ...

    def metrics(self) -> Metrics: ...

    def update_properties(self, **values: Any) -> Properties: ...

    _name: str
    _topic: str


@dataclass(frozen=True, slots=True)
class PropertyView:
    """A property and its limits. `fixed` properties only change at a restart."""

    name: str
    value: Any
    default: Any
    kind: str
    least: float | None
    most: float | None
    doc: str
    applied: str
    fixed: bool


@dataclass(frozen=True, slots=True)
class SubscriptionPartitionView:
    """A partition of a subscription.

    It is paused at `max_pending_records`, while its rate is 0, and while a change of its
    concurrency waits for the tasks in flight.
    """

    topic: str
    partition: int
    pending: float
    oldest_ms: float
    paused: bool
    processed_total: float


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """The current state of a subscription.

    Args:
        failed_total: tasks whose processor raised.
        dead_total: tasks that went to the dead-letter topic.
        rate_per_partition: how many tasks of a partition may start per second; -1 means no limit.
    """

    name: str
    topic: str
    pending: float
    processed_total: float
    failed_total: float
    dead_total: float
    records_per_s: float | None
    concurrency: int
    rate_per_partition: int
    properties: tuple[PropertyView, ...] = field(default=())
    partitions: tuple[SubscriptionPartitionView, ...] = field(default=())


#: The properties that users change most often. The console lists them first.
_FIRST: Final[Sequence[str]] = (
    "partition_concurrency",
    "processing_rate_per_partition",
    "max_pending_records",
    "per_key_quota_processing_rate",
)


def properties_of(properties: Properties) -> tuple[PropertyView, ...]:
    """Return all properties with their values, starting with those in `_FIRST`."""
    table = sorted(
        Properties.table(),
        key=lambda one: _FIRST.index(one.name) if one.name in _FIRST else len(_FIRST),
    )
    return tuple(
        PropertyView(
            name=one.name,
            value=_plain(getattr(properties, one.name)),
            default=_plain(one.fresh_default()),
            kind=str(one.kind),
            least=one.minimum,
            most=one.maximum,
            doc=one.doc,
            applied=one.applied.value,
            fixed=one.applied is Applied.AT_START,
        )
        for one in table
    )


def partitions_of(metrics: Metrics) -> tuple[SubscriptionPartitionView, ...]:
    # One pass over the metrics: a subscription may have hundreds of partitions.
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for one in metrics:
        if "topic" in one.labels and "partition" in one.labels and not isinstance(one.value, str):
            found[one.labels["topic"], int(one.labels["partition"])][one.name] = one.value
    return tuple(
        SubscriptionPartitionView(
            topic=topic,
            partition=partition,
            pending=values.get("tasks.pending", 0.0),
            oldest_ms=values.get("tasks.pending.age.max", 0.0),
            paused=values.get("partition.paused", 0.0) > 0,
            processed_total=values.get("tasks.processed", 0.0),
        )
        for (topic, partition), values in sorted(found.items())
    )


def subscription_of(
    subscription: MonitoredSubscription, metrics: Metrics, records_per_s: float | None
) -> SubscriptionView:
    properties = subscription.properties
    return SubscriptionView(
        name=subscription._name,
        topic=subscription._topic,
        pending=metrics.total("tasks.pending"),
        processed_total=metrics.total("tasks.processed"),
        failed_total=metrics.total("tasks.error"),
        dead_total=metrics.total("tasks.dead"),
        records_per_s=records_per_s,
        concurrency=properties.partition_concurrency,
        rate_per_partition=properties.processing_rate_per_partition,
        properties=properties_of(properties),
        partitions=partitions_of(metrics),
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value

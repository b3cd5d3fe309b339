"""A subscription, for whoever looks at it or changes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from millstream.metrics.values import Metrics
from millstream.subscriptions.properties.declared import Applied
from millstream.subscriptions.properties.properties import Properties


class WatchedSubscription(Protocol):
    """`ProcessorSubscription`, as far as it is looked at and changed from below."""

    @property
    def properties(self) -> Properties:
        """Those of now."""

    def metrics(self) -> Metrics:
        """What its threads reported last."""

    def update_properties(self, **values: Any) -> Properties:
        """Change what was given in code."""

    _name: str
    _topic: str


@dataclass(frozen=True, slots=True)
class PropertyView:
    """A property and what it may be.

    Args:
        name: ours.
        value: of now.
        default: what it is if nobody says anything.
        kind: `int`, `bool`, `list`, …, as in docs/build/subscriptions-properties.md.
        least: the smallest value, None without.
        most: the largest value, None without.
        doc: what it means.
        applied: when a change is felt, in words.
        fixed: whether it cannot change while the subscription runs.
    """

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
class SharePartView:
    """A partition of a subscription.

    Args:
        topic: which topic.
        partition: which partition.
        pending: tasks that are taken and not finished.
        oldest_ms: for how long the oldest of them has been.
        paused: whether nothing more is taken, since too much is pending.
        processed_total: tasks processed.
    """

    topic: str
    partition: int
    pending: float
    oldest_ms: float
    paused: bool
    processed_total: float


@dataclass(frozen=True, slots=True)
class SubscriptionView:
    """A subscription as it is now.

    Args:
        name: the subscription's.
        topic: what it reads.
        pending: tasks that are taken and not finished, of all partitions.
        processed_total: tasks processed.
        failed_total: tasks whose processor raised.
        dead_total: tasks that went to the dead-letter topic.
        records_per_s: tasks a second; None until it has been looked at twice.
        concurrency: how many tasks of a partition are processed at a time.
        rate_per_partition: how many tasks of a partition may start in a second; -1 is no limit.
        properties: all of them.
        partitions: by topic and number.
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
    partitions: tuple[SharePartView, ...] = field(default=())


#: First those that people change.
_FIRST: Final[Sequence[str]] = (
    "partition_concurrency",
    "processing_rate_per_partition",
    "max_pending_records",
    "per_key_quota_processing_rate",
)


def properties_of(properties: Properties) -> tuple[PropertyView, ...]:
    """All properties with their values, those first that people change."""
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
            least=one.least,
            most=one.most,
            doc=one.doc,
            applied=one.applied.value,
            fixed=one.applied is Applied.AT_START,
        )
        for one in table
    )


def partitions_of(metrics: Metrics) -> tuple[SharePartView, ...]:
    """The partitions that threads have told of."""
    # Each value is looked at once: a subscription may have hundreds of partitions.
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for one in metrics:
        if "topic" in one.labels and "partition" in one.labels and not isinstance(one.value, str):
            found[one.labels["topic"], int(one.labels["partition"])][one.name] = one.value
    return tuple(
        SharePartView(
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
    subscription: WatchedSubscription, metrics: Metrics, records_per_s: float | None
) -> SubscriptionView:
    """What there is to see of a subscription.

    Args:
        subscription: which one.
        metrics: what its threads have told.
        records_per_s: how fast it is.
    """
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

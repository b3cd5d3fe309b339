"""A subscription in the console."""

from __future__ import annotations

from typing import Any

from millstream.application.console.subscription_view import (
    SubscriptionPartitionView,
    subscription_of,
)
from millstream.metrics.values import Metric, Metrics
from millstream.subscriptions.properties.subscription_properties import Properties


class Mailer:
    """A subscription that is not running."""

    _name, _topic = "mailer", "emails"
    properties = Properties(partition_concurrency=3)

    def metrics(self) -> Metrics:
        raise AssertionError("the test provides the metrics")

    def update_properties(self, **values: Any) -> Properties:
        raise AssertionError("properties are not changed")


def subscription_metric(name: str, value: float, topic: str, partition: int) -> Metric:
    return Metric(name, {"topic": topic, "partition": str(partition)}, value)


def test_partitions_are_listed_one_by_one() -> None:
    """In the order of the partition numbers, with retries beside the input, and with all
    reported metrics."""
    metrics = Metrics(
        [
            subscription_metric("tasks.processed", 5.0, "emails", 10),
            subscription_metric("tasks.pending", 2.0, "emails", 9),
            subscription_metric("tasks.pending.age.max", 300.0, "emails", 9),
            subscription_metric("partition.paused", 1.0, "emails", 9),
            subscription_metric("tasks.processed", 3.0, "emails", 9),
            subscription_metric("tasks.error", 1.0, "emails-retry", 0),
            Metric("tasks.dead", {}, 4.0),
        ]
    )
    shown = subscription_of(Mailer(), metrics, 1.5)
    assert (shown.name, shown.topic, shown.concurrency) == ("mailer", "emails", 3)
    totals = (shown.pending, shown.processed_total, shown.failed_total, shown.dead_total)
    assert totals == (2.0, 8.0, 1.0, 4.0)
    assert shown.records_per_s == 1.5
    assert shown.partitions == (
        SubscriptionPartitionView("emails", 9, 2.0, 300.0, True, 3.0),
        SubscriptionPartitionView("emails", 10, 0.0, 0.0, False, 5.0),
        SubscriptionPartitionView("emails-retry", 0, 0.0, 0.0, False, 0.0),
    )

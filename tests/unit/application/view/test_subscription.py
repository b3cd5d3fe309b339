"""A subscription as the console shows it."""

from __future__ import annotations

from typing import Any

from millstream.application.view.subscription import SharePartView, subscription_of
from millstream.metrics.values import Metric, Metrics
from millstream.subscriptions.properties.properties import Properties


class Mailer:
    """A subscription that nobody runs."""

    _name, _topic = "mailer", "emails"
    properties = Properties(partition_concurrency=3)

    def metrics(self) -> Metrics:
        raise AssertionError("they are given")

    def update_properties(self, **values: Any) -> Properties:
        raise AssertionError("nobody changes them")


def told(name: str, value: float, topic: str, partition: int) -> Metric:
    return Metric(name, {"topic": topic, "partition": str(partition)}, value)


def test_partitions_are_told_one_by_one() -> None:
    """In the order of their numbers, retries beside what is read, with what each has told."""
    metrics = Metrics(
        [
            told("tasks.processed", 5.0, "emails", 10),
            told("tasks.pending", 2.0, "emails", 9),
            told("tasks.pending.age.max", 300.0, "emails", 9),
            told("partition.paused", 1.0, "emails", 9),
            told("tasks.processed", 3.0, "emails", 9),
            told("tasks.error", 1.0, "emails-retry", 0),
            Metric("tasks.dead", {}, 4.0),
        ]
    )
    shown = subscription_of(Mailer(), metrics, 1.5)
    assert (shown.name, shown.topic, shown.concurrency) == ("mailer", "emails", 3)
    totals = (shown.pending, shown.processed_total, shown.failed_total, shown.dead_total)
    assert totals == (2.0, 8.0, 1.0, 4.0)
    assert shown.records_per_s == 1.5
    assert shown.partitions == (
        SharePartView("emails", 9, 2.0, 300.0, True, 3.0),
        SharePartView("emails", 10, 0.0, 0.0, False, 5.0),
        SharePartView("emails-retry", 0, 0.0, 0.0, False, 0.0),
    )

"""State that the partitions of one thread of a subscription share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from millstream.record import TopicPartition
from millstream.subscriptions.properties.subscription_properties import Properties
from millstream.subscriptions.subscription_metrics import (
    LabeledValue,
    SubscriptionMetrics,
    labels_of,
)
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorInstances

#: The partitions and offsets of tasks whose retry or dead letter was rejected, for one stream task.
#: Used on one thread.
RejectedTasks = set[tuple[TopicPartition, int]]


class SubscriptionThreadState:
    """The current properties, the open processors, and the metrics of a thread."""

    def __init__(self, properties: Properties | None = None) -> None:
        #: The current properties; None without a subscription.
        self.properties = properties
        #: Incremented on each change of the properties.
        self.version = 0
        self.metrics = SubscriptionMetrics()
        self._instances: ProcessorInstances | None = None

    def change(self, properties: Properties) -> None:
        self.properties = properties
        self.version += 1

    def update(self, given: Mapping[str, Any]) -> Properties:
        """Set the properties that the driver has sent.

        The driver does not send defaults. Returns all properties.
        """
        properties = Properties(**given)
        self.change(properties)
        return properties

    def instances(self, plan: SubscriptionPlan) -> ProcessorInstances:
        if self._instances is None:
            self._instances = ProcessorInstances(plan.chain)
        return self._instances

    def all_metrics(
        self, committed: Iterable[Mapping[TopicPartition, int]] = ()
    ) -> tuple[LabeledValue, ...]:
        """Return the name, labels and value of each metric.

        `committed` contains the committed offsets of each task.
        """
        if self.properties is None:
            return ()
        counted = self.metrics.all().items()
        offsets = (
            (labels_of(partition), end - 1) for each in committed for partition, end in each.items()
        )
        return (
            *((name, labels, value) for (name, labels), value in counted),
            # As in Decaton, this is the last completed offset, not the next one.
            *(("offset.last.committed", labels, float(offset)) for labels, offset in offsets),
        )

    def close(self) -> None:
        if self._instances is not None:
            self._instances.close()

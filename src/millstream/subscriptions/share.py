"""What the partitions of one thread of a subscription have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.record import TopicPartition
from millstream.subscriptions.metrics import LabelledValue, Metrics, labels_of
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.processors import Instances
from millstream.subscriptions.properties.properties import Properties


class SubscriptionShare:
    """The properties of now, the processors that live, and what is counted.

    Args:
        properties: those at the start; None where there is no subscription.

    Attributes:
        properties: those of now.
        version: grows with each change of them.
        metrics: what is counted.
    """

    def __init__(self, properties: Properties | None = None) -> None:
        self.properties = properties
        self.version = 0
        self.metrics = Metrics()
        self._instances: Instances | None = None

    def change(self, properties: Properties) -> None:
        """From now on these hold."""
        self.properties = properties
        self.version += 1

    def instances(self, plan: SubscriptionPlan) -> Instances:
        """The processors that live."""
        if self._instances is None:
            self._instances = Instances(plan.chain)
        return self._instances

    def all_metrics(
        self, committed: Iterable[Mapping[TopicPartition, int]] = ()
    ) -> tuple[LabelledValue, ...]:
        """What was counted: name, labels and value of each.

        Args:
            committed: of each task up to where its partitions are committed.
        """
        if self.properties is None:
            return ()
        counted = self.metrics.all().items()
        offsets = ((labels_of(place), end - 1) for each in committed for place, end in each.items())
        return (
            *((name, labels, value) for (name, labels), value in counted),
            # Follows Decaton: the last offset that is done.
            *(("offset.last.committed", labels, float(offset)) for labels, offset in offsets),
        )

    def close(self) -> None:
        """Close the processors that are left."""
        if self._instances is not None:
            self._instances.close()

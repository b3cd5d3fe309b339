"""What the partitions of one thread of a subscription have in common."""

from __future__ import annotations

from millstream.subscriptions.metrics import Metrics
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

    def all_metrics(self) -> tuple[tuple[str, tuple[tuple[str, str], ...], float], ...]:
        """What was counted: name, labels and value of each."""
        return tuple((name, labels, value) for (name, labels), value in self.metrics.all().items())

    def close(self) -> None:
        """Close the processors that are left."""
        if self._instances is not None:
            self._instances.close()

"""What a subscription does with the records of a topic."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.subscriptions.plan import SubscriptionPart
from millstream.topology.operations.operation import ApartOperation


@dataclass(frozen=True)
class Subscribe(ApartOperation):
    """Processes tasks.

    Args:
        part: of which subscription, and which of its topics.
    """

    part: SubscriptionPart

"""What a subscription does with the records of a topic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millstream.subscriptions.plan import SubscriptionPlan
from millstream.topology.operations.operation import ApartOperation


@dataclass(frozen=True)
class Subscribe(ApartOperation):
    """Processes tasks.

    Args:
        plan: the subscription.
        role: which of its topics it reads.
        retries: the node that writes to the retry topic; None without one.
        dead_letters: the node that writes to the dead-letter topic; None without one.
        shaping: the node that writes to the shaping topic; None without one.
    """

    plan: SubscriptionPlan
    role: Literal["origin", "retry", "shaping"]
    retries: str | None = None
    dead_letters: str | None = None
    shaping: str | None = None

"""The definition of a subscription and of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from millstream.serdes import Serde
from millstream.subscriptions.properties.subscription_properties import Properties
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.task_retry import Retry
from millstream.subscriptions.tasks.task_extraction import TaskReader
from millstream.subscriptions.tracing import Tracing

#: The role of a topic in a subscription.
Role = Literal["origin", "retry", "shaping"]
#: The handling of a failed task or an unreadable record.
OnError = Literal["fail", "skip", "retry"]


@dataclass(frozen=True)
class SubscriptionPlan:
    """The definition of a subscription, as data that is shipped to its threads."""

    name: str
    chain: ProcessorChain
    reader: TaskReader
    properties: Properties
    retry: Retry | None
    on_error: OnError
    tracing: Tracing | None = None
    #: Whether to cancel coroutines that are still running when their partition is released, after
    #: all timeouts; otherwise they finish, but their results are ignored.
    cancel_running: bool = True
    #: Deserializes keys for processors; None for bytes.
    key: Serde[Any] | None = None


@dataclass(frozen=True)
class SubscriptionPart:
    """One topic of a subscription, its role and its sinks.

    A sink is None if the subscription has no topic for it.
    """

    plan: SubscriptionPlan
    topic: str
    role: Role
    retries: str | None = None
    dead_letters: str | None = None
    shaping: str | None = None

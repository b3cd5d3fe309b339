"""All that a subscription is, as data that is shipped to its threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from millstream.serdes import Serde
from millstream.subscriptions.processors import Chain
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.retry import Retry
from millstream.subscriptions.tasks.extraction import TaskReader
from millstream.subscriptions.tracing import Tracing

#: Which of a subscription's topics a partition is of.
Role = Literal["origin", "retry", "shaping"]
#: What becomes of a task whose processor raises, or that cannot be read.
OnError = Literal["fail", "skip", "retry"]


@dataclass(frozen=True)
class SubscriptionPlan:
    """All that a subscription is, as data that is shipped to its threads.

    Args:
        name: of the subscription.
        chain: its processors.
        reader: makes tasks of records.
        properties: when it starts.
        retry: the policy for tasks that are to be retried; None without one.
        on_error: what becomes of a task whose processor raises.
        tracing: is told of records and processors; None if nobody is.
        cancel_running: whether coroutines are cancelled that run when their partition is given up
            and all waiting is over; else they finish, but their results are ignored.
        key: decodes keys for processors; None leaves them bytes.
    """

    name: str
    chain: Chain
    reader: TaskReader
    properties: Properties
    retry: Retry | None
    on_error: OnError
    tracing: Tracing | None = None
    cancel_running: bool = True
    key: Serde[Any] | None = None


@dataclass(frozen=True)
class SubscriptionPart:
    """What a subscription does with one of its topics.

    Args:
        plan: the subscription.
        topic: the topic.
        role: which of the subscription's it is.
        retries: the node that writes to the retry topic; None without one.
        dead_letters: the node that writes to the dead-letter topic; None without one.
        shaping: the node that writes to the shaping topic; None without one.
    """

    plan: SubscriptionPlan
    topic: str
    role: Role
    retries: str | None = None
    dead_letters: str | None = None
    shaping: str | None = None

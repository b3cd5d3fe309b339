"""The second simulated application: a subscription with a retry topic.

    in ──► attempt (requests a retry, or fails) ──► retry topic ──► last attempt ──► out

Topics and sub-topologies have the same names and numbers as in the application with stores, so that
the same checks apply: an offset is committed after the results of its task are written, no task is
lost, and the tasks of a key keep their order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from millstream import Topology
from millstream.parallel import ProcessingContext, Properties, Retry
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.subscription_plan import SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.tasks.task_extraction import TaskReader
from simulation.application import INPUT, OUTPUT, REPARTITION, Shape, key_of

#: The topics that must contain an id before the offset of its record is committed.
CAUSED: Final = {INPUT: (REPARTITION,), REPARTITION: (OUTPUT,)}


async def work(context: ProcessingContext, task: bytes) -> None:
    """Process a task on the event loop."""
    try_once(context, task)


def try_once(context: ProcessingContext, task: bytes) -> None:
    """Request a retry for every task: by an exception, a deferred completion, or directly."""
    kind = int(task) % 3
    if kind == 0:
        raise ValueError(task)
    if kind == 1:
        context.defer_completion().retry()
    else:
        context.retry()


def chosen_properties(rng: random.Random) -> Properties:
    """Choose properties at random."""
    return Properties(
        partition_concurrency=rng.choice((1, 2, 10)),
        max_pending_records=rng.choice((1, 5, 100, 10_000)),
        processing_rate_per_partition=rng.choice((-1, -1, 50)),
        commit_interval_ms=rng.choice((100, 500, 2_000)),
    )


@dataclass(frozen=True)
class SubscribedShape(Shape):
    """The topology and settings of a history with a subscription.

    Args:
        asynchronous: whether the processor is a coroutine function.
        properties: the initial properties.
    """

    asynchronous: bool = True
    properties: Properties = field(default_factory=Properties)

    @classmethod
    def of(cls, shape: Shape, rng: random.Random) -> SubscribedShape:
        """Choose a subscription with the settings of a shape."""
        properties = chosen_properties(rng)
        return cls(
            shape.partitions,
            shape.on_disk,
            shape.caching,
            shape.standbys,
            shape.static,
            # Like `ProcessorSubscription`.
            properties.commit_interval_ms,
            shape.max_poll_records,
            asynchronous=rng.random() < 0.5,
            properties=properties,
        )

    @staticmethod
    def order_key(record_id: int) -> Any:
        """The key within which records keep their order."""
        return key_of(record_id)

    def topology(self) -> Topology:
        """Build the topology."""
        plan = SubscriptionPlan(
            name="sub",
            chain=ProcessorChain.of(work if self.asynchronous else try_once),
            reader=TaskReader(None, None, legacy_parse_fallback=False),
            properties=self.properties,
            retry=Retry(
                backoff=timedelta(milliseconds=50),
                topic=REPARTITION,
                max_attempts=2,
                dead_letter_topic=OUTPUT,
            ),
            on_error="retry",
        )
        return subscription_topology(plan, INPUT, None)

"""The other application that is simulated: a subscription, whose tasks go through its topics.

    in ──► try (asks for a retry, or fails) ──► retry topic ──► try for the last time ──► out

The topics have the names, and the two parts the numbers, that they have in the application with
stores, so that the same checks can look at them: an offset is committed after what its task caused
is written, no task is lost, and those of a key keep their order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from millstream import Topology
from millstream.parallel import ProcessingContext, Properties, Retry
from millstream.parallel.subscription_topology import subscription_topology
from millstream.subscriptions.plan import SubscriptionPlan
from millstream.subscriptions.processors import Chain
from millstream.subscriptions.tasks.extraction import TaskReader
from simulation.application import INPUT, OUTPUT, REPARTITION, Shape, key_of

#: What must hold an id before the offset of the record that brought it is committed.
CAUSED: Final = {INPUT: (REPARTITION,), REPARTITION: (OUTPUT,)}


async def work(context: ProcessingContext, task: bytes) -> None:
    """A task on the event loop."""
    try_once(context, task)


def try_once(context: ProcessingContext, task: bytes) -> None:
    """Never enough; every third time with an error, or deferred."""
    kind = int(task) % 3
    if kind == 0:
        raise ValueError(task)
    if kind == 1:
        context.defer_completion().retry()
    else:
        context.retry()


def chosen_properties(chance: random.Random) -> Properties:
    """With which it works for a while."""
    return Properties(
        partition_concurrency=chance.choice((1, 2, 10)),
        max_pending_records=chance.choice((1, 5, 100, 10_000)),
        processing_rate_per_partition=chance.choice((-1, -1, 50)),
        commit_interval_ms=chance.choice((100, 500, 2_000)),
    )


@dataclass(frozen=True)
class SubscribedShape(Shape):
    """How the subscription of one history is made.

    Args:
        asynchronous: whether its processor is.
        properties: when it starts.
    """

    asynchronous: bool = True
    properties: Properties = field(default_factory=Properties)

    @classmethod
    def of(cls, shape: Shape, chance: random.Random) -> SubscribedShape:
        """One on this cluster."""
        properties = chosen_properties(chance)
        return cls(
            shape.partitions,
            shape.on_disk,
            shape.caching,
            shape.standbys,
            shape.static,
            # As `ProcessorSubscription` does.
            properties.commit_interval_ms,
            shape.max_poll_records,
            asynchronous=chance.random() < 0.5,
            properties=properties,
        )

    @staticmethod
    def line_of(record_id: int) -> Any:
        """What keeps its order within a partition."""
        return key_of(record_id)

    def topology(self) -> Topology:
        """What is computed."""
        plan = SubscriptionPlan(
            name="sub",
            chain=Chain.of(work if self.asynchronous else try_once),
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

"""How much waits for the tasks of a thread, partition by partition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from millstream.record import TaskId, TopicPartition
from millstream.runtime.work import Work


class Ends(Protocol):
    """What a consumer knows of the partitions that it reads, without asking anybody."""

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset to be handed over."""

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """Where the partition ended when it was last fetched from."""


def input_lags(consumer: Ends, tasks: Iterable[Work]) -> list[tuple[TaskId, TopicPartition, int]]:
    """The records of each partition that its task has not taken, those that wait here included.

    What is not known is left out: a partition that nothing was fetched from yet. Offsets of
    compacted records and of transactions' markers count as records, as in Kafka's own lag.

    Args:
        consumer: reads the partitions.
        tasks: those that process.
    """
    lags = []
    for task in tasks:
        for place in sorted(task.partitions):
            at, end = consumer.position(place), consumer.high_watermark(place)
            # Positions are negative where a consumer begins without a number.
            if at is not None and at >= 0 and end is not None:
                lags.append((task.task_id, place, max(0, end - at) + task.waiting_in(place)))
    return lags

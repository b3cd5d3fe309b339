"""The topics that a subscription writes retries and dead letters to: what if they take none."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from millstream.clock import Clock
from millstream.errors import ProductionError, SerializationError, StreamsError
from millstream.operators.batch import Batch
from millstream.processor.handlers import SinkRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.sinks import Outgoing
from millstream.subscriptions.complaints import Complaints
from millstream.subscriptions.metrics import Metrics
from millstream.subscriptions.refused import Refused
from millstream.subscriptions.retry import Retry
from millstream.topology.operations.subscriptions import Subscribe
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode

logger = logging.getLogger(__name__)


def policy_of(node: SinkNode, nodes: Sequence[Node]) -> Retry | None:
    """The policy for what a sink writes; None for one that writes no retries or dead letters.

    Args:
        node: the sink.
        nodes: all of its sub-topology.
    """
    for other in nodes:
        if isinstance(other, ProcessorNode) and isinstance(other.operation, Subscribe):
            part = other.operation.part
            if node.name in (part.retries, part.dead_letters):
                return part.plan.retry
    return None


class TaskProduction:
    """Decides about tasks that such a topic does not take, as `Retry.on_send_failure` says. It is
    `Production`.

    Args:
        policy: the user's.
        sink: the name of the sink node.
        task_id: the task.
        refused: told of those that are kept.
        metrics: counts them.
        clock: for what is told in the log.
    """

    def __init__(
        self,
        policy: Retry,
        sink: str,
        task_id: TaskId,
        refused: Refused,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._answer = policy.on_send_failure
        self._sink = sink
        self._task_id = task_id
        self._refused = refused
        self._metrics = metrics
        self._complaints = Complaints(logger, clock)

    def goes_on_without(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> bool:
        """Nothing is serialized here."""
        return False

    def watch(self, batch: Batch, outgoing: Outgoing) -> _Watch:
        """Who decides about the records of a batch that Kafka does not take."""
        return _Watch(self, batch, outgoing.topic)

    def not_taken(
        self,
        batch: Batch,
        index: int,
        topic: str,
        error: ProductionError,
        *,
        transaction_lost: bool,
    ) -> StreamsError | None:
        """What to raise for a task that a topic did not take; None to go on."""
        metadata = batch.metadata_of(index)
        assert metadata.topic is not None
        place = TopicPartition(metadata.topic, metadata.partition)
        what = f"The task of {place}, offset {metadata.offset}, was not taken by topic '{topic}'"
        self._metrics.of(place).count("retry.queueing.failed")
        if self._answer == "fail" or transaction_lost:
            failure = ProductionError(
                f"{what}. {error.message} It is done again after a restart.",
                task_id=self._task_id,
                node=self._sink,
                topic=metadata.topic,
                partition=metadata.partition,
                offset=metadata.offset,
            )
            failure.__cause__ = error
            return failure
        if self._answer == "keep":
            self._complaints.tell(f"{what}, and is processed again after a pause", error)
            self._refused.add(place, metadata.offset, error)
        else:
            self._complaints.tell(f"{what}, and is dropped (on_send_failure='drop')", error)
        return None


class _Watch:
    """Decides about the records of one batch."""

    __slots__ = ("_batch", "_production", "_topic")

    def __init__(self, production: TaskProduction, batch: Batch, topic: str) -> None:
        self._production = production
        self._batch = batch
        self._topic = topic

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        """What to raise for a record."""
        return self._production.not_taken(
            self._batch, index, self._topic, error, transaction_lost=transaction_lost
        )

"""Handles rejected records of a subscription's retry and dead-letter topics."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from millstream.clock import Clock
from millstream.errors import ProductionError, SerializationError, StreamsError
from millstream.operators.record_batch import Batch
from millstream.processor.handlers import SinkRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.sinks import SinkBatch
from millstream.subscriptions.rate_limited_log import RateLimitedLog
from millstream.subscriptions.subscription_metrics import SubscriptionMetrics
from millstream.subscriptions.task_retry import Retry
from millstream.subscriptions.thread_state import RejectedTasks
from millstream.topology.operations.streams import Subscribe
from millstream.topology.physical.nodes import Node, ProcessorNode, SinkNode

logger = logging.getLogger(__name__)


def policy_of(node: SinkNode, nodes: Sequence[Node]) -> Retry | None:
    """Return the retry policy of a sink.

    Returns None if the sink writes neither retries nor dead letters.
    """
    for other in nodes:
        if isinstance(other, ProcessorNode) and isinstance(other.operation, Subscribe):
            part = other.operation.part
            if node.name in (part.retries, part.dead_letters):
                return part.plan.retry
    return None


class SubscriptionProductionErrors:
    """Applies `Retry.on_send_failure` to rejected records.

    Implements `ProductionErrors`.
    """

    def __init__(
        self,
        policy: Retry,
        sink: str,
        task_id: TaskId,
        rejected_tasks: RejectedTasks,
        metrics: SubscriptionMetrics,
        clock: Clock,
    ) -> None:
        self._on_send_failure = policy.on_send_failure
        self._sink = sink
        self._task_id = task_id
        self._rejected_tasks = rejected_tasks
        self._metrics = metrics
        self._log = RateLimitedLog(logger, clock)

    def skip_unserializable(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> bool:
        """Return False: the records for these topics are already serialized."""
        return False

    def rejection_handler(self, batch: Batch, outgoing: SinkBatch) -> _SubscriptionRejectionHandler:
        return _SubscriptionRejectionHandler(self, batch, outgoing.topic)

    def on_rejected(
        self,
        batch: Batch,
        index: int,
        topic: str,
        error: ProductionError,
        *,
        transaction_lost: bool,
    ) -> StreamsError | None:
        """Return the error to raise for a rejected task; None to continue."""
        metadata = batch.metadata_of(index)
        assert metadata.topic is not None
        partition = TopicPartition(metadata.topic, metadata.partition)
        what = f"The task of {partition}, offset {metadata.offset}, was rejected by topic '{topic}'"
        self._metrics.for_partition(partition).count("retry.queueing.failed")
        if self._on_send_failure == "fail" or transaction_lost:
            failure = ProductionError(
                f"{what}. {error.message} The task is processed again after a restart.",
                task_id=self._task_id,
                node=self._sink,
                topic=metadata.topic,
                partition=metadata.partition,
                offset=metadata.offset,
            )
            failure.__cause__ = error
            return failure
        if self._on_send_failure == "keep":
            self._log.warning(f"{what}, and is processed again after a backoff", error)
            self._rejected_tasks.add((partition, metadata.offset))
        else:
            self._log.warning(f"{what}, and is dropped (on_send_failure='drop')", error)
        return None


@dataclass(frozen=True, slots=True)
class _SubscriptionRejectionHandler:
    """Handles rejected records of one batch."""

    production: SubscriptionProductionErrors
    batch: Batch
    topic: str

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        return self.production.on_rejected(
            self.batch, index, self.topic, error, transaction_lost=transaction_lost
        )

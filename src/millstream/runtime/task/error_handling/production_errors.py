"""Calls the production exception handler for records that sinks could not write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    ProductionError,
    SerializationError,
    StreamsError,
    TaskMigratedError,
    text_of,
)
from millstream.kafka.clients.delivery import RejectionHandler
from millstream.operators.record_batch import Batch
from millstream.processor.handlers import (
    CONTINUE,
    RETRY,
    DefaultProductionExceptionHandler,
    ErrorContext,
    ProductionHandler,
    SinkRecord,
)
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.error_handling.dead_letters import DeadLetters
from millstream.runtime.task.error_handling.handler_results import (
    decision_of,
    handler_notes,
    should_continue,
)
from millstream.runtime.task.node_context import DroppedRecords, failed_record
from millstream.runtime.task.queues.raw_records import RawPair
from millstream.runtime.task.sinks import SinkBatch

#: Returns the serialized key and value of an input record, if they are available.
RawOf = Callable[[TopicPartition, int], RawPair | None]


def custom_handler(config: StreamsConfig) -> ProductionHandler | None:
    """Return the user's production exception handler; None for the built-in one."""
    handler: ProductionHandler | None = config.production_exception_handler
    return None if isinstance(handler, DefaultProductionExceptionHandler) else handler


class SinkProductionErrors:
    """Handles write failures of a task's sink, like Java's `RecordCollectorImpl`.

    Args:
        handler: the user's handler; None for the built-in one.
        raw_in_flight: returns a function that looks up the serialized records currently in flight.
        is_last: whether no other handler is called for records that cannot be serialized.
    """

    def __init__(
        self,
        handler: ProductionHandler | None,
        letters: DeadLetters,
        drops: DroppedRecords,
        sink: str,
        task_id: TaskId,
        raw_in_flight: Callable[[], RawOf],
        *,
        is_last: bool,
    ) -> None:
        effective = handler or DefaultProductionExceptionHandler()
        self._handler = letters.wrap(effective, "production")
        self._handler_without_letters = letters.wrap(effective, "production", may_send=False)
        # The built-in handler would return FAIL and send a dead letter, and the next handler would
        # send another one.
        self._handles_unserializable = handler is not None or is_last
        self._drops = drops
        self._sink = sink
        self._task_id = task_id
        self._raw_in_flight = raw_in_flight

    def skip_unserializable(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> bool:
        if not self._handles_unserializable:
            return False
        context, _ = failed_record(batch, index, self._sink, self._task_id)
        if not should_continue(self._handler, context, record, error):
            return False
        self._drops.add(1, f"serialization failed: {text_of(error)}", self._sink)
        return True

    def rejection_handler(self, batch: Batch, outgoing: SinkBatch) -> RejectionHandler:
        return _SinkRejectionHandler(self, batch, outgoing, self._raw_in_flight())

    def on_rejected(
        self,
        context: ErrorContext,
        record: SinkRecord,
        error: ProductionError,
        *,
        transaction_lost: bool,
    ) -> StreamsError | None:
        """Return the error to raise for a rejected record; None to continue without it."""
        handler = self._handler_without_letters if transaction_lost else self._handler
        answer = decision_of(handler, context, record, error).response
        if answer is RETRY and error.retriable:
            return TaskMigratedError(
                f"The work since the last commit is repeated, because the production exception "
                f"handler returned RETRY: {error.message}",
                **self._where(context),
            )
        if answer is CONTINUE and not transaction_lost:
            self._drops.add(1, f"not written to {error.topic}: {error.message}", self._sink)
            return None
        why = ""
        if answer is CONTINUE:
            why = (
                " The handler returned CONTINUE, but a transaction with a rejected record cannot "
                "be committed without it. Write less per transaction, or use at_least_once."
            )
        elif answer is RETRY:
            why = " The handler returned RETRY, which counts as FAIL: a retry cannot succeed."
        message = f"{error.message}{why}{handler_notes(error)}"
        failure = ProductionError(
            f"A record for topic '{record.topic}'{_partition(error)} with timestamp "
            f"{record.timestamp} was rejected. {message}",
            **self._where(context),
        )
        failure.__cause__ = error
        return failure

    def _where(self, context: ErrorContext) -> dict[str, Any]:
        return {
            "task_id": self._task_id,
            "node": self._sink,
            "topic": context.topic,
            "partition": context.partition,
            "offset": context.offset,
        }

    def context_of(self, batch: Batch, index: int, raw_of: RawOf) -> ErrorContext:
        context, _ = failed_record(batch, index, self._sink, self._task_id)
        raw = None
        if context.topic is not None:
            raw = raw_of(TopicPartition(context.topic, context.partition), context.offset)
        return context if raw is None else replace(context, source_key=raw[0], source_value=raw[1])


@dataclass(frozen=True, slots=True)
class _SinkRejectionHandler:
    """Handles rejected records of a batch; keeps the batch until all are delivered."""

    production: SinkProductionErrors
    batch: Batch
    outgoing: SinkBatch
    raw_of: RawOf

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        sent = self.outgoing
        partition = error.partition
        if (partition is None or partition < 0) and sent.partitions is not None:
            partition = sent.partitions[index]
        record = SinkRecord(
            sent.topic,
            partition,
            sent.timestamps[index],
            () if sent.headers is None else sent.headers[index],
            sent.keys[index],
            sent.values[index],
        )
        context = self.production.context_of(self.batch, index, self.raw_of)
        return self.production.on_rejected(
            context, record, error, transaction_lost=transaction_lost
        )


def _partition(error: ProductionError) -> str:
    known = error.partition is not None and error.partition >= 0
    return f", partition {error.partition}," if known else ""

"""Asking the production exception handler about the records of sinks that are not written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from millstream.config import StreamsConfig
from millstream.errors import (
    ProductionError,
    SerializationError,
    StreamsError,
    TaskMigratedError,
    text_of,
)
from millstream.kafka.data.watch import Watch
from millstream.operators.batch import Batch
from millstream.processor.handlers import (
    CONTINUE,
    RETRY,
    DefaultProductionExceptionHandler,
    ErrorContext,
    ProductionHandler,
    SinkRecord,
)
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.answers import decision_of, goes_on, handlers_failure
from millstream.runtime.task.dead_letters import DeadLetters
from millstream.runtime.task.node_context import Dropped, failed_record
from millstream.runtime.task.queues.raw_records import RawPair
from millstream.runtime.task.sinks import Outgoing

#: Gives key and value of an input record as they were read, if they are at hand.
RawOf = Callable[[TopicPartition, int], RawPair | None]


def own_handler(config: StreamsConfig) -> ProductionHandler | None:
    """The user's production exception handler; None for the ready-made one."""
    handler: ProductionHandler | None = config.production_exception_handler
    return None if isinstance(handler, DefaultProductionExceptionHandler) else handler


class SinkProduction:
    """Answers for the records of one sink of one task. Semantics: RecordCollectorImpl.

    Args:
        handler: the user's own; None for the ready-made one.
        letters: stands before it.
        drops: counts records that are left out.
        sink: the name of the sink node.
        task_id: the task.
        raw_in_flight: gives who knows key and value of the records in flight as they were read.
        is_last: whether nobody else is asked about records that cannot be serialized.
    """

    def __init__(
        self,
        handler: ProductionHandler | None,
        letters: DeadLetters,
        drops: Dropped,
        sink: str,
        task_id: TaskId,
        raw_in_flight: Callable[[], RawOf],
        *,
        is_last: bool,
    ) -> None:
        asked = handler or DefaultProductionExceptionHandler()
        self._asking = letters.asking(asked)
        self._asking_in_vain = letters.asking(asked, may_send=False)
        # The ready-made one fails, so that the next one is asked: whose letter is enough.
        self._asks_for_objects = handler is not None or is_last
        self._drops = drops
        self._sink = sink
        self._task_id = task_id
        self._raw_in_flight = raw_in_flight

    def goes_on_without(
        self, batch: Batch, index: int, record: SinkRecord, error: SerializationError
    ) -> bool:
        """Whether to leave out a record that cannot be serialized."""
        if not self._asks_for_objects:
            return False
        context, _ = failed_record(batch, index, self._sink, self._task_id)
        if not goes_on(self._asking, context, record, error):
            return False
        self._drops.add(1, f"not writable: {text_of(error)}", self._sink)
        return True

    def watch(self, batch: Batch, outgoing: Outgoing) -> Watch:
        """Who decides about the records of a batch that Kafka does not take."""
        return _BatchWatch(self, batch, outgoing, self._raw_in_flight())

    def not_taken(
        self,
        context: ErrorContext,
        record: SinkRecord,
        error: ProductionError,
        *,
        transaction_lost: bool,
    ) -> StreamsError | None:
        """What to raise for a record that Kafka did not take; None to go on without it."""
        asking = self._asking_in_vain if transaction_lost else self._asking
        answer = decision_of(asking, context, record, error).response
        if answer is RETRY and error.retriable:
            return TaskMigratedError(
                f"What was done since the last commit is done again, as the production exception "
                f"handler wants it: {error.message}",
                **self._where(context),
            )
        if answer is CONTINUE and not transaction_lost:
            self._drops.add(1, f"not written to {error.topic}: {error.message}", self._sink)
            return None
        why = ""
        if answer is CONTINUE:
            why = (
                " The handler answered CONTINUE, but a transaction of which a record was refused "
                "cannot be committed without it. Write less to it, or use at_least_once."
            )
        elif answer is RETRY:
            why = " The handler answered RETRY, but trying again would not help: taken as FAIL."
        told = f"{error.message}{why}{handlers_failure(error)}"
        failure = ProductionError(
            f"A record for topic '{record.topic}'{_partition(error)} with timestamp "
            f"{record.timestamp} was not taken. {told}",
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
        """Where the record of a batch came from."""
        context, _ = failed_record(batch, index, self._sink, self._task_id)
        raw = None
        if context.topic is not None:
            raw = raw_of(TopicPartition(context.topic, context.partition), context.offset)
        return context if raw is None else replace(context, source_key=raw[0], source_value=raw[1])


class _BatchWatch:
    """Decides about the records of one batch of a sink; keeps them until all are delivered."""

    __slots__ = ("_batch", "_outgoing", "_production", "_raw_of")

    def __init__(
        self, production: SinkProduction, batch: Batch, outgoing: Outgoing, raw_of: RawOf
    ) -> None:
        self._production = production
        self._batch = batch
        self._outgoing = outgoing
        self._raw_of = raw_of

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        sent = self._outgoing
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
        context = self._production.context_of(self._batch, index, self._raw_of)
        return self._production.not_taken(context, record, error, transaction_lost=transaction_lost)


def _partition(error: ProductionError) -> str:
    known = error.partition is not None and error.partition >= 0
    return f", partition {error.partition}," if known else ""

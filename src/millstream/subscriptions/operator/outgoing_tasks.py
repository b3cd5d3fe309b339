"""Records written for tasks: retries, dead letters, and shaping-topic records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock
from millstream.operators.operator import Output
from millstream.operators.record_batch import Batch, Origin
from millstream.processor.handlers import DeadLetter, ErrorContext
from millstream.record import Headers, TaskId, TopicPartition
from millstream.subscriptions.processing_context import ProcessingContext
from millstream.subscriptions.subscription_plan import SubscriptionPart
from millstream.subscriptions.tasks.decaton_metadata import (
    METADATA_HEADER,
    DecatonMetadata,
    find_metadata,
    request_bytes,
    with_metadata,
    without_metadata,
)
from millstream.subscriptions.tracing import TaskTraces

logger = logging.getLogger(__name__)

#: The outcome of a record that could not be read as a task.
UNREADABLE: Final = "unread"


@dataclass(frozen=True, eq=False)
class OutgoingTasks:
    """Writes tasks to the sinks for the retry, dead-letter and shaping topics.

    A written record is part of the same commit as the offset of its task: neither exists without
    the other, except for duplicates under at-least-once.
    """

    part: SubscriptionPart
    task_id: TaskId
    clock: Clock
    #: Returns whether retries are written in the format of Decaton before version 9.
    legacy: Callable[[], bool]
    traces: TaskTraces | None

    def retry(self, contexts: Sequence[ProcessingContext], output: Output) -> list[int]:
        """Write tasks to the retry topic, to be retried after their backoff.

        Returns the indices of tasks without attempts left, which are not written.
        """
        policy, node = self.part.plan.retry, self.part.retries
        assert policy is not None
        assert node is not None
        now_ms, legacy = self.clock.now_ms(), self.legacy()
        keys: list[bytes | None] = []
        values: list[bytes] = []
        headers: list[Headers] = []
        last: list[int] = []
        offsets: list[int] = []
        for index, context in enumerate(contexts):
            metadata = context.metadata
            delay_ms = policy.next_delay_ms(metadata.retry_count)
            if delay_ms is None:
                last.append(index)
                continue
            metadata = metadata._replace(
                retry_count=metadata.retry_count + 1, scheduled_time_ms=now_ms + delay_ms
            )
            offsets.append(context.offset)
            keys.append(context.raw_key)
            own = self._headers(context)
            if legacy:
                values.append(request_bytes(metadata, context.payload))
                headers.append(tuple(without_metadata(own)))
            else:
                values.append(context.payload)
                headers.append(tuple(with_metadata(own, metadata)))
        if keys:
            times = [now_ms] * len(keys)
            output.emit_to(node, _batch(contexts[0].place, offsets, keys, values, times, headers))
        return last

    def _headers(self, context: ProcessingContext) -> Headers:
        """Return the headers of a task and those of its trace.

        Headers of the trace replace headers of the same names.
        """
        if self.traces is None:
            return context.headers
        traced = self.traces.retry_headers(context)
        names = {name for name, _ in traced}
        return (*(each for each in context.headers if each[0] not in names), *traced)

    def write_dead_letter(
        self, context: ProcessingContext, error: BaseException, output: Output
    ) -> None:
        """Write a task to the dead-letter topic.

        The headers contain its metadata and the error, in the format of Kafka Streams' dead
        letters.
        """
        policy, node = self.part.plan.retry, self.part.dead_letters
        assert policy is not None
        assert policy.dead_letter_topic is not None
        assert node is not None
        place, cause = context.place, error if isinstance(error, Exception) else RuntimeError(error)
        error_context = ErrorContext(
            place.topic,
            place.partition,
            context.offset,
            context.timestamp_ms,
            context.headers,
            self.part.plan.name,
            self.task_id,
            context.raw_key,
            context.payload,
        )
        letter = DeadLetter.of(error_context, cause, policy.dead_letter_topic)
        headers = letter.headers
        if context.outcome != UNREADABLE and find_metadata(headers) is None:
            # The metadata was part of the record's value; only the task itself is written.
            headers = tuple(with_metadata(headers, context.metadata))
        keys, values, times = [letter.key], [letter.value], [letter.timestamp]
        dead_letter = _batch(place, [context.offset], keys, values, times, [headers])
        output.emit_to(node, dead_letter)

    def shape(self, batch: Batch, indices: Iterable[int], output: Output, *, legacy: bool) -> None:
        """Write records to the shaping topic.

        Their record timestamp is the current time, because retention could delete records with an
        older timestamp before they are read. The creation time stays in the metadata. With
        `legacy`, records without a metadata header have the metadata in their value.
        """
        node = self.part.shaping
        assert node is not None
        shaped = batch.take(list(indices))
        headers = list(shaped.all_headers() or [()] * len(shaped))
        if not legacy:
            headers = list(map(_with_creation_time, headers, shaped.timestamps))
        offsets = [shaped.origin.offsets[row] for row in shaped.rows]
        place, times = shaped.origin.place(shaped.rows[0]), [self.clock.now_ms()] * len(shaped)
        assert place is not None
        output.emit_to(node, _batch(place, offsets, shaped.keys, shaped.values, times, headers))


def _with_creation_time(headers: Headers, timestamp_ms: int) -> Headers:
    """Return headers with metadata. Added metadata contains the record's timestamp."""
    if any(name == METADATA_HEADER for name, _ in headers):
        return headers
    return tuple(with_metadata(headers, DecatonMetadata(timestamp_ms=timestamp_ms)))


def _batch(
    place: TopicPartition,
    offsets: list[int],
    keys: list[bytes | None],
    values: list[bytes | None] | list[bytes],
    times: list[int],
    headers: list[Headers],
) -> Batch:
    origin = Origin(place, offsets)
    return Batch(list(keys), list(values), times, range(len(keys)), origin, None, headers)

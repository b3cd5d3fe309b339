"""What is written of tasks that do not simply end: retries, dead letters, tasks to be shaped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from millstream.clock import Clock
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import Output
from millstream.processor.handlers import DeadLetter, ErrorContext
from millstream.record import Headers, TaskId, TopicPartition
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.plan import SubscriptionPart
from millstream.subscriptions.tasks.metadata import (
    METADATA_HEADER,
    DecatonMetadata,
    find_metadata,
    request_bytes,
    with_metadata,
    without_metadata,
)
from millstream.subscriptions.tracing import Traces

logger = logging.getLogger(__name__)

#: What becomes of a record that holds no task.
UNREAD: Final = "unread"


class Outgoing:
    """Writes tasks to the topics beside the one of the subscription, by way of its sinks.

    What is handed over here is part of the next commit, as the offset of the task is: none of the
    two is there without the other, unless a record comes twice under at-least-once.

    Args:
        part: what the subscription does with the topic.
        task_id: of the task at work.
        clock: dates what is written.
        legacy: whether retries are written in the format before Decaton 9.
        traces: of the tasks, which go on in their retries.
    """

    def __init__(
        self,
        part: SubscriptionPart,
        task_id: TaskId,
        clock: Clock,
        legacy: Callable[[], bool],
        traces: Traces | None,
    ) -> None:
        self._part = part
        self._task_id = task_id
        self._clock = clock
        self._legacy = legacy
        self._traces = traces

    def retry(self, contexts: Sequence[ProcessingContext], output: Output) -> list[int]:
        """Write tasks to the retry topic, to be tried again after their pauses.

        Returns:
            The indices of those that were tried for the last time, and are not written.
        """
        policy, node = self._part.plan.retry, self._part.retries
        assert policy is not None
        assert node is not None
        now_ms, legacy = self._clock.now_ms(), self._legacy()
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
        """Those of a task, and in place of some those that its trace goes on with."""
        if self._traces is None:
            return context.headers
        traced = self._traces.retry_headers(context)
        names = {name for name, _ in traced}
        return (*(each for each in context.headers if each[0] not in names), *traced)

    def bury(self, context: ProcessingContext, error: BaseException, output: Output) -> None:
        """Write a task to the dead-letter topic, with its metadata and the headers of Kafka
        Streams' dead letters that say why."""
        policy, node = self._part.plan.retry, self._part.dead_letters
        assert policy is not None
        assert policy.dead_letter_topic is not None
        assert node is not None
        place, cause = context.place, error if isinstance(error, Exception) else RuntimeError(error)
        told = ErrorContext(
            place.topic,
            place.partition,
            context.offset,
            context.timestamp_ms,
            context.headers,
            self._part.plan.name,
            self._task_id,
            context.raw_key,
            context.payload,
        )
        letter = DeadLetter.of(told, cause, policy.dead_letter_topic)
        headers = letter.headers
        if context.outcome != UNREAD and find_metadata(headers) is None:
            # They stood in the value, of which only the task is written.
            headers = tuple(with_metadata(headers, context.metadata))
        keys, values, times = [letter.key], [letter.value], [letter.timestamp]
        buried = _batch(place, [context.offset], keys, values, times, [headers])
        output.emit_to(node, buried)

    def shape(self, batch: Batch, indices: Iterable[int], output: Output, *, legacy: bool) -> None:
        """Write records to the shaping topic: as they are, but of now, or what waits there for long
        could be deleted before it was read. When their tasks were made stays in their metadata.

        Args:
            batch: all records.
            indices: of those to write.
            output: where they are written.
            legacy: whether a record without metadata in its headers has them in its value.
        """
        node = self._part.shaping
        assert node is not None
        shaped = batch.take(list(indices))
        headers = list(shaped.all_headers() or [()] * len(shaped))
        if not legacy:
            headers = list(map(_dated, headers, shaped.timestamps))
        offsets = [shaped.origin.offsets[row] for row in shaped.rows]
        place, times = shaped.origin.place(shaped.rows[0]), [self._clock.now_ms()] * len(shaped)
        assert place is not None
        output.emit_to(node, _batch(place, offsets, shaped.keys, shaped.values, times, headers))


def _dated(headers: Headers, timestamp_ms: int) -> Headers:
    """Headers with metadata that have the record's time, unless there are some."""
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

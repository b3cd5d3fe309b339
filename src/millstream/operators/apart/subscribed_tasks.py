"""What is written of tasks that do not simply end: retries, dead letters, tasks to be shaped."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from millstream.clock import Clock
from millstream.operators.batch import Batch, Origin
from millstream.operators.operator import Output
from millstream.processor.handlers import DeadLetter, ErrorContext
from millstream.record import Header, Headers, TaskId
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.plan import SubscriptionPart
from millstream.subscriptions.tasks.metadata import (
    request_bytes,
    with_metadata,
    without_metadata,
)

logger = logging.getLogger(__name__)


class Outgoing:
    """Writes tasks to the topics beside the one of the subscription, by way of its sinks.

    What is handed over here is part of the next commit, as the offset of the task is: none of the
    two is there without the other, unless a record comes twice under at-least-once.

    Args:
        part: what the subscription does with the topic.
        task_id: of the task at work.
        clock: dates what is written.
        legacy: whether retries are written in the format before Decaton 9.
    """

    def __init__(
        self, part: SubscriptionPart, task_id: TaskId, clock: Clock, legacy: Callable[[], bool]
    ) -> None:
        self._part = part
        self._task_id = task_id
        self._clock = clock
        self._legacy = legacy

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
        for index, context in enumerate(contexts):
            metadata = context.metadata
            delay_ms = policy.next_delay_ms(metadata.retry_count)
            if delay_ms is None:
                last.append(index)
                continue
            metadata = metadata._replace(
                retry_count=metadata.retry_count + 1, scheduled_time_ms=now_ms + delay_ms
            )
            keys.append(context.key)
            if legacy:
                values.append(request_bytes(metadata, context.payload))
                headers.append(tuple(without_metadata(context.headers)))
            else:
                values.append(context.payload)
                headers.append(tuple(with_metadata(context.headers, metadata)))
        if keys:
            times = [now_ms] * len(keys)
            output.emit_to(node, _batch(contexts[0], keys, values, times, headers))
        return last

    def bury(self, context: ProcessingContext, error: BaseException, output: Output) -> None:
        """Write a task to the dead-letter topic, with the headers of Kafka Streams' dead letters
        that say why."""
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
            context.key,
            context.payload,
        )
        letter = DeadLetter.of(told, cause, policy.dead_letter_topic)
        headers: tuple[Header, ...] = (*context.headers, *letter.headers)
        output.emit_to(
            node, _batch(context, [letter.key], [letter.value], [letter.timestamp], [headers])
        )

    def shape(self, batch: Batch, indices: Iterable[int], output: Output) -> None:
        """Write records as they are to the shaping topic."""
        node = self._part.shaping
        assert node is not None
        output.emit_to(node, batch.take(list(indices)))


def _batch(
    context: ProcessingContext,
    keys: list[bytes | None],
    values: list[bytes | None] | list[bytes],
    times: list[int],
    headers: list[Headers],
) -> Batch:
    origin = Origin(context.place, [context.offset] * len(keys))
    return Batch(list(keys), list(values), times, range(len(keys)), origin, None, headers)

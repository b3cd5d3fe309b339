"""The input partitions of running tasks: fetching, buffering and pausing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.errors import BrokerUnavailableError, UnknownTopicError
from millstream.kafka.protocols import Consumer
from millstream.record import TopicPartition
from millstream.runtime.retry import RetrySchedule
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task_management.start_offsets import CommittedOffsets

#: How long one request may block the loop.
_REQUEST_TIMEOUT_MS = 3_000


class TaskInputs:
    """Connects the main consumer with the tasks that read from it.

    Partitions with more than `max_buffered` records are paused until at most half of that number
    remain.
    Only partitions that wait for another partition reach this limit.
    """

    def __init__(
        self,
        consumer: Consumer,
        offsets: CommittedOffsets,
        reset_retry: RetrySchedule,
        *,
        max_buffered: int,
    ) -> None:
        self._consumer = consumer
        self._offsets = offsets
        self._reset_retry = reset_retry
        #: The out-of-range offsets of partitions that are yet to be reset.
        self._out_of_range: dict[TopicPartition, int] = {}
        self._max_buffered = max_buffered
        self._readers: dict[TopicPartition, StreamTask] = {}
        self._paused: set[TopicPartition] = set()
        # Tasks with records: tracking them avoids checking hundreds of idle tasks for each batch.
        # The tasks are ordered by the arrival of their records, so that simulations are
        # deterministic.
        self._with_records: dict[StreamTask, None] = {}

    def fetch(
        self,
        tasks: Iterable[StreamTask],
        starts: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int],
    ) -> None:
        """Start fetching records.

        Raises BrokerUnavailableError if the brokers do not respond in time.
        """
        self._consumer.assign(starts, _REQUEST_TIMEOUT_MS, leader_epochs)
        self._readers.update((partition, task) for task in tasks for partition in task.partitions)

    def stop(self, task: StreamTask) -> None:
        fetched = [p for p in task.partitions if self._readers.pop(p, None) is not None]
        for partition in fetched:
            self._out_of_range.pop(partition, None)
        self._paused.difference_update(fetched)
        self._with_records.pop(task, None)
        self._consumer.unassign(fetched)

    def refetch(self) -> None:
        """Invalidate the known ends of partitions.

        Records that were fetched but not polled yet are fetched again.
        """
        reading = self._readers.keys() - self._paused
        self._consumer.pause(reading)
        self._consumer.resume(reading)

    def add_records(self, records: Mapping[TopicPartition, RawRecords]) -> None:
        """Pass fetched records to their tasks, then retry a reset that is due.

        The consumer never returns these records again, so no error may be raised before all of them
        have been passed on. A retry raises the same errors as `reset_position`.
        """
        for partition, columns in records.items():
            task = self._readers.get(partition)
            # The partition may have been released between the fetch and the poll.
            if task is not None:
                task.add_records(partition, columns)
                self._with_records[task] = None
                if (
                    task.buffered_in(partition) > self._max_buffered
                    and partition not in self._paused
                ):
                    self._paused.add(partition)
                    self._consumer.pause([partition])
        if self._out_of_range and self._reset_retry.is_due:
            self._reset_positions()

    def on_punctuated(self, task: StreamTask) -> None:
        """Include the task if its punctuators have started work that is in flight."""
        if task.in_flight:
            self._with_records[task] = None

    @property
    def remaining_capacity(self) -> int:
        """How many more records the emptiest partition can buffer before it is paused."""
        reading = [p for p in self._readers if p not in self._paused]
        fewest = min((self._readers[p].buffered_in(p) for p in reading), default=0)
        return max(0, self._max_buffered - fewest)

    def on_records_taken(self, task: StreamTask) -> None:
        """Update the task's partitions after it has taken records."""
        # A task that awaits deliveries may still have work, because rejected records are retried.
        if not (task.buffered or task.in_flight or task.awaits_delivery):
            self._with_records.pop(task, None)
        for partition in task.partitions & self._paused:
            if task.buffered_in(partition) <= self._max_buffered // 2:
                self._paused.discard(partition)
                self._consumer.resume([partition])

    def skip_to_ends(self) -> None:
        """Advance tasks past gaps in partitions without buffered records.

        This takes 1 us per partition.
        """
        for partition, task in self._readers.items():
            if not task.buffered_in(partition):
                position = self._consumer.position(partition)
                if position is not None:
                    task.skip_to(partition, position)

    def processable(self, max_idle_ms: int) -> list[StreamTask]:
        """Return the tasks that can process records now, ordered by id."""
        at_end = self._consumer.at_end
        ready = [task for task in self._with_records if task.is_processable(at_end, max_idle_ms)]
        return sorted(ready, key=lambda task: task.task_id)

    def reset_position(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Reset partitions with out-of-range offsets as soon as the brokers respond.

        Partitions that are no longer read are ignored.

        Raises:
            OffsetOutOfRangeError: some partitions have no explicit reset policy.
            BrokerUnavailableError: the brokers did not respond for the whole timeout.
        """
        self._out_of_range.update({p: offsets[p] for p in offsets if p in self._readers})
        if self._out_of_range:
            self._reset_positions()

    def _reset_positions(self) -> None:
        try:
            starts = self._offsets.out_of_range(self._out_of_range)
            self._consumer.unassign(starts)
            self._consumer.assign(starts, _REQUEST_TIMEOUT_MS)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            self._reset_retry.failed(error)
            return
        self._reset_retry.succeeded()
        self._paused.difference_update(starts)
        self._out_of_range.clear()

"""Restores stores from their changelogs before their tasks run.

Restoration takes place between the batches of running tasks: the loop calls `step` in each round,
and only the restoring tasks wait. A changelog is read from the store's position to the end offset
that the changelog had when the restoration started. The changelogs of standby tasks have no such
limit: they are read for the lifetime of the task, but only while no active task is restoring (Kafka
Streams' `DefaultStateUpdater`).
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import (
    BrokerUnavailableError,
    OffsetOutOfRangeError,
    StreamsError,
    TaskCorruptedError,
    UnknownTopicError,
)
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING
from millstream.kafka.protocols import Consumer
from millstream.record import TaskId, TopicPartition
from millstream.runtime.retry import RetrySchedule
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.thread_control import RestoreEvent, RestoreStep
from millstream.state.changelogs.restore import StoreRestorer

logger = logging.getLogger(__name__)

_Step = RestoreStep

#: The maximum number of records per poll. Restoring takes 0.6 us per record (13 + 8 bytes, in
#: ascending order), of which reading and RocksDB take 0.2 us each. With Python messages, batches of
#: 20,000 or 5,000 records took a seventh longer.
_BATCH_RECORDS = 10_000
#: The interval of progress messages in the log.
_PROGRESS_LOG_INTERVAL_MS = 10_000
#: How long a request for end offsets may block the loop.
_REQUEST_TIMEOUT_MS = 3_000
#: The interval at which a standby checks its limit in a topic that its active task also reads.
_LIMIT_INTERVAL_MS = 5_000


class EndOffsets(Protocol):
    """Fetches end offsets from the cluster."""

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> Mapping[TopicPartition, int]: ...


class _ChangelogReader:
    """The reader of a changelog partition. A standby reads beyond the end offset.

    If the task also reads the topic as input, the limit is the task's next offset: a store must not
    contain records that its task has not read.
    """

    def __init__(
        self,
        task_id: TaskId,
        restorer: StoreRestorer,
        end_offset: int,
        now_ms: int,
        *,
        standby: bool,
        limit: int | None = None,
    ) -> None:
        self.task_id = task_id
        self.store = restorer.store_name
        self.restorer = restorer
        self.start = _start_of(restorer)
        self.end_offset = end_offset if limit is None else min(end_offset, limit)
        #: The value of `end_offset` at the start.
        self.first_end = self.end_offset
        self.has_limit = limit is not None
        #: When a standby that has reached its limit continues; None for other readers.
        self.paused_until_ms: int | None = None
        self.standby = standby
        self.started_ms = self.logged_ms = now_ms
        self.restored = 0

    @property
    def is_up_to_date(self) -> bool:
        return not self.standby and max(self.start, 0) >= self.end_offset


@dataclass(frozen=True, slots=True)
class _PendingRestore:
    """A task whose restoration has not started yet."""

    changelogs: Mapping[TopicPartition, StoreRestorer]
    retry: RetrySchedule
    standby: bool


class StateRestorer:
    """Restores the stores of a thread's tasks from their changelogs.

    Args:
        timeout_ms: how long requests may fail before the thread fails.
        limits: returns the tasks' next offsets in partitions that are input topics rather than
            changelogs (Kafka Streams' `reuse.ktable.source.topics`).
    """

    def __init__(
        self,
        consumer: Consumer,
        cluster: EndOffsets,
        clock: Clock,
        timeout_ms: int,
        listener: Callable[[RestoreEvent], None],
        limits: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]] | None = None,
        is_interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._listener = listener
        self._limits = limits or (lambda partitions: {})
        self._is_interrupted = is_interrupted
        self._pending: dict[TaskId, _PendingRestore] = {}
        self._reading: dict[TopicPartition, _ChangelogReader] = {}
        self._paused: set[TopicPartition] = set()

    @property
    def is_reading(self) -> bool:
        """Whether changelogs of an active task are being read."""
        return any(not reader.standby for reader in self._reading.values())

    def add(
        self,
        task_id: TaskId,
        changelogs: Mapping[TopicPartition, StoreRestorer],
        *,
        standby: bool = False,
    ) -> None:
        """Restore a task's stores, each from its changelog partition.

        The restoration of a standby task has no end. A task that was added before continues from
        its position, for example when a standby becomes active.
        """
        self._drop(task_id, _Step.STANDBY_MIGRATED if standby else _Step.STANDBY_PROMOTED)
        if changelogs:
            what = f"starting to restore task {task_id}"
            retry = RetrySchedule(what, self._clock, self._timeout_ms)
            self._pending[task_id] = _PendingRestore(changelogs, retry, standby)
        if standby:
            for restorer in changelogs.values():
                restorer.end()

    def remove(self, task_id: TaskId) -> None:
        self._drop(task_id, _Step.STANDBY_MIGRATED)

    def _drop(self, task_id: TaskId, standby_step: RestoreStep) -> None:
        self._pending.pop(task_id, None)
        reading = [
            partition for partition, reader in self._reading.items() if reader.task_id == task_id
        ]
        dropped = {partition: self._reading.pop(partition) for partition in reading}
        self._paused.difference_update(reading)
        try:
            self._consumer.unassign(reading)
        finally:
            for partition, reader in dropped.items():
                step = standby_step if reader.standby else _Step.SUSPENDED
                self._notify(step, partition, reader, reader.restored)

    def has_unfinished(self, task_id: TaskId) -> bool:
        if task_id in self._pending:
            return True
        return any(reader.task_id == task_id for reader in self._reading.values())

    def has_caught_up(self, task_id: TaskId) -> bool:
        """Return whether a standby has reached the initial end offsets of its changelogs."""
        if task_id in self._pending:
            return False
        position = self._consumer.position
        return all(
            reader.paused_until_ms is not None or (position(partition) or 0) >= reader.first_end
            for partition, reader in self._reading.items()
            if reader.task_id == task_id
        )

    def step(self, timeout_ms: int, work_ms: int = 0) -> None:
        """Start pending restorations and apply the next records.

        Waits for the first record, then continues to restore active tasks for `work_ms`. Standbys
        are paused while an active task is restoring.

        Raises:
            TaskCorruptedError: the positions of stores are not in their changelogs.
            BrokerUnavailableError: the cluster did not respond for the whole timeout.
        """
        for task_id, waiting in list(self._pending.items()):
            if waiting.retry.is_due:
                self._begin(task_id, waiting)
        if not self._reading:
            return
        until_ms = self._clock.monotonic_ms() + work_ms
        fetched = self._poll_once(timeout_ms)
        while fetched and self.is_reading and self._clock.monotonic_ms() < until_ms:
            if self._is_interrupted():
                return
            fetched = self._poll_once(0)

    def _poll_once(self, timeout_ms: int) -> bool:
        """Apply the records of one poll; return whether there were any."""
        self._pause_standbys(self.is_reading)
        if not self._paused:
            self._refresh_limits()
        try:
            fetched = self._consumer.poll_columns(_BATCH_RECORDS, timeout_ms)
        except OffsetOutOfRangeError as error:
            raise self._out_of_range(error) from error
        self._apply_all(fetched)
        for partition, reader in list(self._reading.items()):
            if reader.paused_until_ms is not None or (reader.standby and not reader.has_limit):
                continue
            # The position skips transaction markers and compacted gaps, which contain no records.
            position = self._consumer.position(partition)
            if position is None or position < reader.end_offset:
                continue
            self._consumer.unassign([partition])
            if reader.standby:
                reader.paused_until_ms = self._clock.monotonic_ms() + _LIMIT_INTERVAL_MS
            else:
                del self._reading[partition]
                self._finish(partition, reader)
        return bool(fetched)

    def _refresh_limits(self) -> None:
        """Resume standbys whose active tasks have advanced."""
        now_ms = self._clock.monotonic_ms()
        paused = {
            partition: reader
            for partition, reader in self._reading.items()
            if reader.paused_until_ms is not None and reader.paused_until_ms <= now_ms
        }
        if not paused:
            return
        try:
            limits = self._limits(paused)
            advanced = {
                partition: reader
                for partition, reader in paused.items()
                if limits[partition] > reader.end_offset
            }
            starts = {
                partition: _start_of(reader.restorer) for partition, reader in advanced.items()
            }
            self._consumer.assign(starts, _REQUEST_TIMEOUT_MS)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            logger.debug("cannot refresh the limits of standbys: %s", error)
            advanced = {}
        for partition, reader in paused.items():
            reader.paused_until_ms = None if partition in advanced else now_ms + _LIMIT_INTERVAL_MS
            if partition in advanced:
                reader.end_offset = limits[partition]

    def _pause_standbys(self, hold: bool) -> None:
        """Pause standbys while active tasks use the consumer, or resume them."""
        if hold:
            more = {p for p, reader in self._reading.items() if reader.standby} - self._paused
            if more:
                self._consumer.pause(sorted(more))
                self._paused |= more
        elif self._paused:
            self._consumer.resume(sorted(self._paused))
            self._paused.clear()

    def _begin(self, task_id: TaskId, waiting: _PendingRestore) -> None:
        try:
            ends = self._cluster.end_offsets(waiting.changelogs, _REQUEST_TIMEOUT_MS)
            limits = self._limits(waiting.changelogs)
            now_ms = self._clock.monotonic_ms()
            readers = {
                partition: _ChangelogReader(
                    task_id,
                    restorer,
                    ends[partition],
                    now_ms,
                    standby=waiting.standby,
                    limit=limits.get(partition),
                )
                for partition, restorer in waiting.changelogs.items()
            }
            for partition, reader in readers.items():
                if reader.start > reader.end_offset:
                    raise TaskCorruptedError(
                        f"Rebuilding task {task_id}: the position of store '{reader.store}' is "
                        f"offset {reader.start} of {partition}, which ends at {reader.end_offset}: "
                        "the topic was probably deleted and recreated.",
                        task_ids=[task_id],
                    )
            behind = {
                partition: reader.start
                for partition, reader in readers.items()
                if not reader.is_up_to_date
            }
            self._consumer.assign(behind, _REQUEST_TIMEOUT_MS)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            # A new changelog is not immediately visible on every broker.
            waiting.retry.failed(error)
            return
        del self._pending[task_id]
        for partition, reader in readers.items():
            step = _Step.STANDBY_START if reader.standby else _Step.START
            self._notify(step, partition, reader, 0, offset=max(reader.start, 0))
            if partition in behind:
                self._reading[partition] = reader
                if not reader.standby:
                    reader.restorer.begin(max(reader.start, 0), reader.end_offset)
            else:
                self._finish(partition, reader)

    def _apply_all(self, fetched: Mapping[TopicPartition, RawRecords]) -> None:
        """Apply the records of all stores, then raise the first error.

        The consumer never returns these records again, so the other stores must still receive their
        records after an error.
        """
        failed: StreamsError | None = None
        corrupted: set[TaskId] = set()
        for partition, records in fetched.items():
            reader = self._reading.get(partition)
            if reader is None:
                continue
            try:
                self._apply(partition, reader, records)
            except TaskCorruptedError as error:
                corrupted |= error.task_ids
                failed = failed or error
            except StreamsError as error:
                # This error ends the thread, so the other stores need no rebuilding.
                corrupted.clear()
                failed = error
                break
        if corrupted and failed is not None:
            raise TaskCorruptedError(failed.message, task_ids=corrupted) from failed
        if failed is not None:
            raise failed

    def _apply(
        self, partition: TopicPartition, reader: _ChangelogReader, records: RawRecords
    ) -> None:
        columns = (records.keys, records.values, records.timestamps, records.offsets)
        if reader.has_limit and records.offsets[-1] >= reader.end_offset:
            size = bisect_left(records.offsets, reader.end_offset)
            if not size:
                return
            columns = (
                records.keys[:size],
                records.values[:size],
                records.timestamps[:size],
                records.offsets[:size],
            )
        count = reader.restorer.restore_batch(*columns)
        reader.restored += count
        last = columns[3][-1]
        if reader.standby and not reader.has_limit:
            reader.end_offset = max(reader.end_offset, last + 1)
        step = _Step.STANDBY_BATCH if reader.standby else _Step.BATCH
        self._notify(step, partition, reader, count, offset=last)
        now_ms = self._clock.monotonic_ms()
        if not reader.standby and now_ms - reader.logged_ms >= _PROGRESS_LOG_INTERVAL_MS:
            reader.logged_ms = now_ms
            _log_progress(partition, reader, last, now_ms)

    def _finish(self, partition: TopicPartition, reader: _ChangelogReader) -> None:
        reader.restorer.end()
        took_ms = self._clock.monotonic_ms() - reader.started_ms
        logger.info(
            "task %s: store %s restored %d records from %s up to offset %d in %d ms",
            reader.task_id,
            reader.store,
            reader.restored,
            partition,
            reader.end_offset,
            took_ms,
        )
        self._notify(_Step.END, partition, reader, reader.restored, offset=reader.end_offset)

    def _notify(
        self,
        step: RestoreStep,
        partition: TopicPartition,
        reader: _ChangelogReader,
        records: int,
        *,
        offset: int | None = None,
    ) -> None:
        reached = reader.restorer.reached if offset is None else offset
        self._listener(
            RestoreEvent(
                step,
                partition,
                reader.store,
                reached or 0,
                reader.end_offset,
                records,
                reader.task_id,
            )
        )

    def _out_of_range(self, error: OffsetOutOfRangeError) -> TaskCorruptedError:
        task_ids = {
            self._reading[partition].task_id
            for partition in error.offsets
            if partition in self._reading
        }
        shown = ", ".join(f"{offset} of {partition}" for partition, offset in error.offsets.items())
        return TaskCorruptedError(
            f"The positions of stores are no longer in their changelogs ({shown}). The stores are "
            "rebuilt from the remaining records.",
            task_ids=task_ids,
        )


def _start_of(restorer: StoreRestorer) -> int:
    stored = restorer.start_offset()
    return OFFSET_BEGINNING if stored is None else stored


def _log_progress(
    partition: TopicPartition, reader: _ChangelogReader, last: int, now_ms: int
) -> None:
    start = max(reader.start, 0)
    left = reader.end_offset - last - 1
    speed = max(1, reader.restored * 1_000 // max(1, now_ms - reader.started_ms))
    logger.info(
        "task %s: store %s is at offset %d of %s, %d %% of the way to %d; about %d s to go",
        reader.task_id,
        reader.store,
        last,
        partition,
        100 * (last + 1 - start) // max(1, reader.end_offset - start),
        reader.end_offset,
        left // speed,
    )

"""Bringing stores up to date from their changelogs before their task runs.

Restoration goes on between the batches of the tasks that run already: the loop calls `step` each
round, and only the tasks that still restore wait for it. A changelog is read from where the store
stands to the end that the topic had when the restoration began. The changelogs of standby tasks
have no end: they are followed for as long as the task is kept, but only while no active task
restores (Kafka Streams' `DefaultStateUpdater`).
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
from millstream.kafka.data.consumer import OFFSET_BEGINNING
from millstream.kafka.protocols import Consumer
from millstream.record import TaskId, TopicPartition
from millstream.runtime.control import RestoreEvent, RestoreStep
from millstream.runtime.retry import Retry
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.state.changelogs.restore import StoreRestorer

logger = logging.getLogger(__name__)

_Step = RestoreStep

#: 0.6 us a record of 13 + 8 bytes in ascending order, consuming included, of which 0.2 are reading
#: and 0.2 RocksDB's. With messages of Python's, batches of 20,000 or 5,000 took a seventh longer.
_BATCH_RECORDS = 10_000
#: How often the log tells how far a long restoration is.
_PROGRESS_MS = 10_000
#: How long the loop may stand still for asking where changelogs end.
_REQUEST_TIMEOUT_MS = 3_000
#: How often a standby asks how far it may read a topic that its active task reads, too.
_LIMIT_MS = 5_000


class EndOffsets(Protocol):
    """Asks the cluster where partitions end."""

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> Mapping[TopicPartition, int]:
        """The offset after the last record of each partition."""
        ...


class _Changelog:
    """One changelog partition that is being read.

    Args:
        task_id: the task.
        restorer: applies records to the store.
        end_offset: where the changelog ends just now.
        now_ms: the time.
        standby: whether the changelog is to be followed beyond that end.
        limit: for a topic that the task also reads: where it goes on to do so, if it is there yet.
            A store must not know what its task has not seen.
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
        stored = restorer.start_offset()
        self.task_id = task_id
        self.store = restorer.store_name
        self.restorer = restorer
        self.start = OFFSET_BEGINNING if stored is None else stored
        self.end_offset = end_offset if limit is None else min(end_offset, limit)
        #: Where the changelog ended, or the limit was, when this began.
        self.first_end = self.end_offset
        self.limited = limit is not None
        #: Until when a standby does not read, because it has reached the limit; else None.
        self.rests_until_ms: int | None = None
        self.standby = standby
        self.started_ms = self.said_ms = now_ms
        self.restored = 0

    @property
    def is_up_to_date(self) -> bool:
        return not self.standby and max(self.start, 0) >= self.end_offset

    def corruption(self, place: TopicPartition) -> str | None:
        """Why the store cannot be brought up to date from where it stands, if so."""
        if self.start <= self.end_offset:
            return None
        return (
            f"store '{self.store}' stands at offset {self.start} of {place}, but that ends at "
            f"{self.end_offset}: it was probably deleted and created anew"
        )


@dataclass(frozen=True, slots=True)
class _NotBegun:
    """A task whose restoration could not begin yet."""

    changelogs: Mapping[TopicPartition, StoreRestorer]
    retry: Retry
    standby: bool


class Restoration:
    """The changelogs of a thread's tasks that are being restored.

    Args:
        consumer: reads changelogs; nobody else uses it.
        cluster: tells where changelogs end.
        clock: for retries.
        timeout_ms: how long the cluster may not answer before the thread gives up.
        listener: told of each restoration's start, batches and end.
        is_called: whether the thread is to look around before its time is up.
        limits: where the tasks go on reading those of the partitions that are no changelogs, but
            topics which they read (Kafka Streams' `reuse.ktable.source.topics`).
    """

    def __init__(
        self,
        consumer: Consumer,
        cluster: EndOffsets,
        clock: Clock,
        timeout_ms: int,
        listener: Callable[[RestoreEvent], None],
        limits: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]] | None = None,
        is_called: Callable[[], bool] = lambda: False,
    ) -> None:
        self._consumer = consumer
        self._cluster = cluster
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._listener = listener
        self._limits = limits or (lambda partitions: {})
        self._is_called = is_called
        self._waiting: dict[TaskId, _NotBegun] = {}
        self._reading: dict[TopicPartition, _Changelog] = {}
        self._held: set[TopicPartition] = set()

    @property
    def is_reading(self) -> bool:
        """Whether records are to be expected for an active task."""
        return any(not log.standby for log in self._reading.values())

    def add(
        self,
        task_id: TaskId,
        changelogs: Mapping[TopicPartition, StoreRestorer],
        *,
        standby: bool = False,
    ) -> None:
        """Restore a task's stores, each from its changelog partition.

        A task that is known already goes on from where it stands: as active, if it was a standby.

        Args:
            task_id: the task.
            changelogs: what applies the records of each changelog partition.
            standby: follow the changelogs without an end.
        """
        self._drop(task_id, _Step.STANDBY_MIGRATED if standby else _Step.STANDBY_PROMOTED)
        if changelogs:
            what = f"beginning to restore task {task_id}"
            retry = Retry(what, self._clock, self._timeout_ms)
            self._waiting[task_id] = _NotBegun(changelogs, retry, standby)
        if standby:
            for restorer in changelogs.values():
                restorer.end()

    def remove(self, task_id: TaskId) -> None:
        """Stop restoring a task that is given up."""
        self._drop(task_id, _Step.STANDBY_MIGRATED)

    def _drop(self, task_id: TaskId, standby_step: RestoreStep) -> None:
        self._waiting.pop(task_id, None)
        reading = [place for place, log in self._reading.items() if log.task_id == task_id]
        dropped = {place: self._reading.pop(place) for place in reading}
        self._held.difference_update(reading)
        try:
            self._consumer.unassign(reading)
        finally:
            for place, log in dropped.items():
                step = standby_step if log.standby else _Step.SUSPENDED
                self._tell(step, place, log, log.restored)

    def unfinished(self, task_id: TaskId) -> bool:
        """Whether a task still has a changelog to read."""
        if task_id in self._waiting:
            return True
        return any(log.task_id == task_id for log in self._reading.values())

    def has_caught_up(self, task_id: TaskId) -> bool:
        """Whether a standby has read all that its changelogs held when it began."""
        if task_id in self._waiting:
            return False
        position = self._consumer.position
        return all(
            log.rests_until_ms is not None or (position(place) or 0) >= log.first_end
            for place, log in self._reading.items()
            if log.task_id == task_id
        )

    def step(self, timeout_ms: int, work_ms: int = 0) -> None:
        """Start what waits, and apply the next records.

        While an active task restores, standbys wait.

        Args:
            timeout_ms: how long to wait for a first record.
            work_ms: for how long more records are taken for active tasks, as long as there are any.

        Raises:
            TaskCorruptedError: stores stand at offsets which their changelogs do not have.
            BrokerUnavailableError: the cluster did not answer for the whole timeout.
        """
        for task_id, waiting in list(self._waiting.items()):
            if waiting.retry.is_due:
                self._begin(task_id, waiting)
        if not self._reading:
            return
        until_ms = self._clock.monotonic_ms() + work_ms
        came = self._read_on(timeout_ms)
        while came and self.is_reading and self._clock.monotonic_ms() < until_ms:
            if self._is_called():
                return
            came = self._read_on(0)

    def _read_on(self, timeout_ms: int) -> bool:
        """Apply the records of one poll; whether there were any."""
        self._hold_standbys(self.is_reading)
        if not self._held:
            self._look_for_new_limits()
        try:
            fetched = self._consumer.poll_columns(_BATCH_RECORDS, timeout_ms)
        except OffsetOutOfRangeError as error:
            raise self._out_of_range(error) from error
        self._apply_all(fetched)
        for place, log in list(self._reading.items()):
            if log.rests_until_ms is not None or (log.standby and not log.limited):
                continue
            # The position passes over transaction markers and compacted gaps, where no record is.
            position = self._consumer.position(place)
            if position is None or position < log.end_offset:
                continue
            self._consumer.unassign([place])
            if log.standby:
                log.rests_until_ms = self._clock.monotonic_ms() + _LIMIT_MS
            else:
                del self._reading[place]
                self._finish(place, log)
        return bool(fetched)

    def _look_for_new_limits(self) -> None:
        """Let standbys go on that wait for their active task, where it has."""
        now_ms = self._clock.monotonic_ms()
        resting = {
            place: log
            for place, log in self._reading.items()
            if log.rests_until_ms is not None and log.rests_until_ms <= now_ms
        }
        if not resting:
            return
        try:
            limits = self._limits(resting)
            further = {
                place: log for place, log in resting.items() if limits[place] > log.end_offset
            }
            starts = {place: log.restorer.start_offset() for place, log in further.items()}
            self._consumer.assign(
                {place: OFFSET_BEGINNING if s is None else s for place, s in starts.items()},
                _REQUEST_TIMEOUT_MS,
            )
        except (BrokerUnavailableError, UnknownTopicError) as error:
            logger.debug("standbys wait: %s", error)
            further = {}
        for place, log in resting.items():
            log.rests_until_ms = None if place in further else now_ms + _LIMIT_MS
            if place in further:
                log.end_offset = limits[place]

    def _hold_standbys(self, hold: bool) -> None:
        """Let active tasks have the consumer to themselves, or give it back."""
        if hold:
            more = {p for p, log in self._reading.items() if log.standby} - self._held
            if more:
                self._consumer.pause(sorted(more))
                self._held |= more
        elif self._held:
            self._consumer.resume(sorted(self._held))
            self._held.clear()

    def _begin(self, task_id: TaskId, waiting: _NotBegun) -> None:
        try:
            ends = self._cluster.end_offsets(waiting.changelogs, _REQUEST_TIMEOUT_MS)
            limits = self._limits(waiting.changelogs)
            now_ms = self._clock.monotonic_ms()
            logs = {
                place: _Changelog(
                    task_id,
                    restorer,
                    ends[place],
                    now_ms,
                    standby=waiting.standby,
                    limit=limits.get(place),
                )
                for place, restorer in waiting.changelogs.items()
            }
            corruptions = filter(None, (log.corruption(place) for place, log in logs.items()))
            for corruption in corruptions:
                raise TaskCorruptedError(
                    f"Task {task_id} is rebuilt: {corruption}.", task_ids=[task_id]
                )
            behind = {place: log for place, log in logs.items() if not log.is_up_to_date}
            self._consumer.assign(
                {place: log.start for place, log in behind.items()}, _REQUEST_TIMEOUT_MS
            )
        except (BrokerUnavailableError, UnknownTopicError) as error:
            # A changelog that was created just now is not known to every broker yet.
            waiting.retry.failed(error)
            return
        del self._waiting[task_id]
        for place, log in logs.items():
            step = _Step.STANDBY_START if log.standby else _Step.START
            self._tell(step, place, log, 0, offset=max(log.start, 0))
            if place in behind:
                self._reading[place] = log
                if not log.standby:
                    log.restorer.begin(max(log.start, 0), log.end_offset)
            else:
                self._finish(place, log)

    def _apply_all(self, fetched: Mapping[TopicPartition, RawRecords]) -> None:
        """Apply the records of all stores, then raise the error of the first one that failed.

        The consumer never returns these records again: the other stores would miss them.
        """
        failed: StreamsError | None = None
        corrupted: set[TaskId] = set()
        for place, records in fetched.items():
            log = self._reading.get(place)
            if log is None:
                continue
            try:
                self._apply(place, log, records)
            except TaskCorruptedError as error:
                corrupted |= error.task_ids
                failed = failed or error
            except StreamsError as error:
                # It ends the thread, which rebuilding the other stores would not prevent.
                corrupted.clear()
                failed = error
                break
        if corrupted and failed is not None:
            raise TaskCorruptedError(failed.message, task_ids=corrupted) from failed
        if failed is not None:
            raise failed

    def _apply(self, place: TopicPartition, log: _Changelog, records: RawRecords) -> None:
        columns = (records.keys, records.values, records.timestamps, records.offsets)
        if log.limited and records.offsets[-1] >= log.end_offset:
            size = bisect_left(records.offsets, log.end_offset)
            if not size:
                return
            columns = (
                records.keys[:size],
                records.values[:size],
                records.timestamps[:size],
                records.offsets[:size],
            )
        count = log.restorer.restore_batch(*columns)
        log.restored += count
        last = columns[3][-1]
        if log.standby and not log.limited:
            log.end_offset = max(log.end_offset, last + 1)
        step = _Step.STANDBY_BATCH if log.standby else _Step.BATCH
        self._tell(step, place, log, count, offset=last)
        now_ms = self._clock.monotonic_ms()
        if not log.standby and now_ms - log.said_ms >= _PROGRESS_MS:
            log.said_ms = now_ms
            _log_progress(place, log, last, now_ms)

    def _finish(self, place: TopicPartition, log: _Changelog) -> None:
        log.restorer.end()
        took_ms = self._clock.monotonic_ms() - log.started_ms
        logger.info(
            "task %s: store %s restored %d records from %s up to offset %d in %d ms",
            log.task_id,
            log.store,
            log.restored,
            place,
            log.end_offset,
            took_ms,
        )
        self._tell(_Step.END, place, log, log.restored, offset=log.end_offset)

    def _tell(
        self,
        step: RestoreStep,
        place: TopicPartition,
        log: _Changelog,
        records: int,
        *,
        offset: int | None = None,
    ) -> None:
        reached = log.restorer.reached if offset is None else offset
        self._listener(
            RestoreEvent(
                step,
                place,
                log.store,
                reached or 0,
                log.end_offset,
                records,
                log.task_id,
            )
        )

    def _out_of_range(self, error: OffsetOutOfRangeError) -> TaskCorruptedError:
        task_ids = {
            self._reading[place].task_id for place in error.offsets if place in self._reading
        }
        shown = ", ".join(f"{offset} of {place}" for place, offset in error.offsets.items())
        return TaskCorruptedError(
            f"Stores stand at offsets which their changelogs no longer have ({shown}). "
            "They are rebuilt from what there is.",
            task_ids=task_ids,
        )


def _log_progress(place: TopicPartition, log: _Changelog, last: int, now_ms: int) -> None:
    start = max(log.start, 0)
    left = log.end_offset - last - 1
    speed = max(1, log.restored * 1_000 // max(1, now_ms - log.started_ms))
    logger.info(
        "task %s: store %s is at offset %d of %s, %d %% of the way to %d; about %d s to go",
        log.task_id,
        log.store,
        last,
        place,
        100 * (last + 1 - start) // max(1, log.end_offset - start),
        log.end_offset,
        left // speed,
    )

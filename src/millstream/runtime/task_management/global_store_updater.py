"""Keeps the global stores of a thread up to date with their topics.

Each stream thread has a consumer for all partitions of all global topics. When the thread starts,
the consumer first reads these partitions from the position of the thread's copy to their current
ends; only then do the tasks start to process. After that, updates are applied between the batches
of the tasks. In Kafka Streams, the threads of an instance share one copy, which a separate thread
updates (`GlobalStreamThread`).
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import (
    BrokerUnavailableError,
    LockError,
    MissingSourceTopicError,
    OffsetOutOfRangeError,
    StreamsError,
    TaskCorruptedError,
    UnknownTopicError,
)
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING
from millstream.kafka.protocols import Consumer
from millstream.record import TopicPartition
from millstream.runtime.retry import LockRetry, RetrySchedule
from millstream.runtime.task_management.global_stores import GLOBAL_TASK, GlobalStores
from millstream.runtime.thread_control import RestoreEvent, RestoreStep
from millstream.state.directories.disk import disk_errors
from millstream.state.directories.locked_directory import LockedDirectory
from millstream.state.opening.open_store import OpenStore

logger = logging.getLogger(__name__)

#: How long one request may block the loop.
_REQUEST_TIMEOUT_MS = 3_000
#: The wait for a missing topic, because a new topic is not immediately visible on every broker.
_MISSING_TOPIC_TIMEOUT_MS = 5_000
#: The target duration of a batch; with slow user code, batches are reduced to about this.
_TARGET_BATCH_MS = 200
_FIRST_BATCH_RECORDS = 100
#: The interval of progress messages in the log.
_PROGRESS_LOG_INTERVAL_MS = 10_000
#: How often in a row the stores are rebuilt before another cause is assumed.
_MAX_REBUILDS = 3


class PartitionCounts(Protocol):
    """Fetches partition counts from the cluster."""

    def partition_counts(
        self, topics: Collection[str], timeout_ms: int, /
    ) -> Mapping[str, int]: ...


class _Phase(enum.Enum):
    CLOSED = "closed"
    OPEN = "open"
    CATCHING_UP = "catching up"
    FOLLOWING = "following"


@dataclass(slots=True)
class _CatchUpProgress:
    """The progress of a partition toward its end offset at the start."""

    start: int
    end_offset: int
    started_ms: int
    logged_ms: int
    records: int = 0


class GlobalStoreUpdater:
    """Reads the global topics into the stores of one thread.

    Args:
        directory: the directory of persistent stores; None if all are in memory.
        listener: receives the catch-up events of each partition, like those of a changelog.
        timeout_ms: how long requests may fail before the thread fails.
        metadata_max_age_ms: the interval of checks for new partitions.
    """

    def __init__(
        self,
        stores: GlobalStores,
        consumer: Consumer,
        cluster: PartitionCounts,
        directory: LockedDirectory | None,
        clock: Clock,
        listener: Callable[[RestoreEvent], None],
        *,
        timeout_ms: int,
        max_records: int,
        metadata_max_age_ms: int,
    ) -> None:
        self.stores = stores
        self._consumer = consumer
        self._cluster = cluster
        self._directory = directory
        self._clock = clock
        self._listener = listener
        self._timeout_ms = timeout_ms
        self._max_records = max_records
        self._metadata_max_age_ms = metadata_max_age_ms
        self._next_check_ms = 0
        self._phase = _Phase.CLOSED
        self._catching_up: dict[TopicPartition, _CatchUpProgress] = {}
        self._assigned: set[TopicPartition] = set()
        self._limit = min(_FIRST_BATCH_RECORDS, max_records)
        self._rebuild_count = 0
        self._open_retry = LockRetry("opening the global stores", clock, timeout_ms)
        self._begin_retry = RetrySchedule("starting to read global topics", clock, timeout_ms)
        self._topic_retry = RetrySchedule(
            "looking for global topics", clock, _MISSING_TOPIC_TIMEOUT_MS
        )

    @property
    def caught_up(self) -> bool:
        return self._phase is _Phase.FOLLOWING

    @property
    def is_reading(self) -> bool:
        """Whether the stores are still catching up, so that tasks may not read them yet."""
        return self._phase is _Phase.CATCHING_UP

    def find(self, name: str) -> OpenStore | None:
        """Return a store for queries; None if it does not exist or has not caught up.

        A partially read store would report existing keys as missing. In Kafka Streams, queries are
        only possible after the global thread has caught up.
        """
        return self.stores.find(name) if self.caught_up else None

    def step(self, timeout_ms: int) -> None:
        """Advance toward the ends of the topics, or apply new records.

        Waits for records, up to the timeout, only while catching up.

        Raises:
            TaskCorruptedError: the stores are corrupted; `rebuild` them.
            MissingSourceTopicError: a topic does not exist.
            BrokerUnavailableError: the cluster did not respond for the whole timeout.
            LockError: another process has kept the stores open for the whole timeout.
            StreamsError: a record could not be read, or the user's processor failed.
        """
        if self._phase is _Phase.CLOSED and self._open_retry.is_due:
            self._open()
        if self._phase is _Phase.OPEN and self._begin_retry.is_due and self._topic_retry.is_due:
            self._begin()
        if self._phase is _Phase.CATCHING_UP:
            self._apply(timeout_ms)
            self._finish_at_ends()
        elif self._phase is _Phase.FOLLOWING:
            self._apply(0)
            if self._clock.monotonic_ms() >= self._next_check_ms:
                self._check_partitions()

    def rebuild(self, why: TaskCorruptedError) -> None:
        """Delete the stores and read the topics again. No task may be using the stores.

        Raises StreamsError if the stores were already rebuilt several times in a row.
        """
        self._rebuild_count += 1
        if self._rebuild_count > _MAX_REBUILDS:
            raise StreamsError(
                f"The global stores were rebuilt {_MAX_REBUILDS} times and are corrupted again: "
                f"{why.message} Check the disk of state_dir."
            ) from why
        try:
            self._stop()
        except Exception as error:
            # Closing corrupted files may fail.
            logger.warning("the global stores did not close: %s", error)
        if self._directory is not None and self._directory.is_locked:
            with disk_errors("delete the state of the global stores"):
                self._directory.wipe()

    def close(self) -> None:
        try:
            self._stop()
        finally:
            if self._directory is not None:
                self._directory.unlock()

    def _stop(self) -> None:
        unfinished = [
            (partition, known, self._position(partition))
            for partition, known in self._catching_up.items()
        ]
        read = list(self._assigned)
        self._assigned.clear()
        self._catching_up.clear()
        self._phase = _Phase.CLOSED
        with ExitStack() as stopping:
            # The callbacks run in reverse order, all of them even if one fails.
            stopping.callback(self.stores.close)
            stopping.callback(self._consumer.unassign, read)
            for partition, progress, offset in unfinished:
                stopping.callback(
                    self._notify,
                    RestoreStep.SUSPENDED,
                    partition,
                    progress,
                    offset,
                    progress.records,
                )

    def _open(self) -> None:
        try:
            if self._directory is not None:
                with disk_errors("open the state of the global stores"):
                    self._directory.lock()
                    self._directory.prepare()
            self.stores.open()
        except LockError as error:
            self._open_retry.failed(error)
            return
        self._open_retry.succeeded()
        self._phase = _Phase.OPEN

    def _begin(self) -> None:
        """Start reading from the position of each store to the ends of the partitions."""
        try:
            partitions = self._partitions(self._existing_topics())
            ends = self._consumer.end_offsets(partitions, _REQUEST_TIMEOUT_MS)
            reached = {partition: self.stores.last_offset(partition) for partition in partitions}
            starts = {
                partition: OFFSET_BEGINNING if offset is None else offset + 1
                for partition, offset in reached.items()
            }
            self._check(starts, ends)
            self._consumer.assign(starts, _REQUEST_TIMEOUT_MS)
        except (MissingSourceTopicError, UnknownTopicError) as error:
            self._topic_retry.failed(error)
            return
        except BrokerUnavailableError as error:
            self._begin_retry.failed(error)
            return
        self._begin_retry.succeeded()
        self._topic_retry.succeeded()
        self._assigned.update(partitions)
        self._phase = _Phase.CATCHING_UP
        self._next_check_ms = self._clock.monotonic_ms() + self._metadata_max_age_ms
        for partition in partitions:
            now_ms = self._clock.monotonic_ms()
            progress = _CatchUpProgress(starts[partition], ends[partition], now_ms, now_ms)
            self._catching_up[partition] = progress
            self._notify(RestoreStep.START, partition, progress, max(progress.start, 0), 0)
        self._finish_at_ends()

    def _existing_topics(self) -> Mapping[str, int]:
        counts = self._cluster.partition_counts(self.stores.topics, _REQUEST_TIMEOUT_MS)
        for topic in sorted(self.stores.topics - counts.keys()):
            raise MissingSourceTopicError(
                f"The global store '{self.stores.store_of(topic)}' is a copy of the topic "
                f"{topic!r}, which the cluster does not have. Create the topic before the "
                "application starts. Perhaps its name is misspelled, or this is another cluster.",
                topic=topic,
            )
        return counts

    def _check(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        for partition, start in starts.items():
            if start > ends[partition]:
                raise TaskCorruptedError(
                    f"The position of global store '{self.stores.store_of(partition.topic)}' is "
                    f"offset {start} of {partition}, which ends at {ends[partition]}: the topic "
                    "was probably deleted and recreated.",
                    task_ids=[GLOBAL_TASK],
                )

    def _apply(self, timeout_ms: int) -> None:
        try:
            fetched = self._consumer.poll_columns(self._limit, timeout_ms)
        except OffsetOutOfRangeError as error:
            shown = ", ".join(
                f"{offset} of {partition}" for partition, offset in error.offsets.items()
            )
            raise TaskCorruptedError(
                f"The positions of global stores are no longer in their topics ({shown}).",
                task_ids=[GLOBAL_TASK],
            ) from error
        if not fetched:
            return
        started_ms = self._clock.monotonic_ms()
        for partition, records in fetched.items():
            self.stores.update(partition, records)
            progress = self._catching_up.get(partition)
            if progress is not None:
                count = len(records.offsets)
                progress.records += count
                self._notify(RestoreStep.BATCH, partition, progress, records.offsets[-1], count)
                self._log_progress(partition, progress, records.offsets[-1])
        count = sum(len(records.offsets) for records in fetched.values())
        self._adjust_batch_size(count, self._clock.monotonic_ms() - started_ms)

    def _log_progress(
        self, partition: TopicPartition, progress: _CatchUpProgress, last: int
    ) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - progress.logged_ms >= _PROGRESS_LOG_INTERVAL_MS:
            progress.logged_ms = now_ms
            logger.info(
                "global store %s is at offset %d of %s, on the way to %d",
                self.stores.store_of(partition.topic),
                last,
                partition,
                progress.end_offset,
            )

    def _adjust_batch_size(self, count: int, took_ms: int) -> None:
        """Limit the duration of batches: rebalances, commits and commands wait for them."""
        if took_ms > _TARGET_BATCH_MS:
            self._limit = max(1, count * _TARGET_BATCH_MS // took_ms)
        elif count == self._limit and 2 * took_ms < _TARGET_BATCH_MS:
            self._limit = min(self._max_records, 2 * self._limit)

    def _finish_at_ends(self) -> None:
        for partition, progress in list(self._catching_up.items()):
            if self._position(partition) >= progress.end_offset:
                del self._catching_up[partition]
                self._finish(partition, progress)
        if not self._catching_up:
            self._rebuild_count = 0
            self._phase = _Phase.FOLLOWING

    def _finish(self, partition: TopicPartition, progress: _CatchUpProgress) -> None:
        logger.info(
            "global store %s read %d records from %s up to offset %d in %d ms",
            self.stores.store_of(partition.topic),
            progress.records,
            partition,
            progress.end_offset,
            self._clock.monotonic_ms() - progress.started_ms,
        )
        self._notify(RestoreStep.END, partition, progress, progress.end_offset, progress.records)

    def _check_partitions(self) -> None:
        """Start reading partitions that were added."""
        self._next_check_ms = self._clock.monotonic_ms() + self._metadata_max_age_ms
        try:
            counts = self._cluster.partition_counts(self.stores.topics, _REQUEST_TIMEOUT_MS)
            new = [each for each in self._partitions(counts) if each not in self._assigned]
            self._consumer.assign(dict.fromkeys(new, OFFSET_BEGINNING), _REQUEST_TIMEOUT_MS)
        except (BrokerUnavailableError, UnknownTopicError) as error:
            logger.info("cannot check for new partitions of global topics: %s", error)
            return
        self._assigned.update(new)
        for partition in new:
            logger.info("reading new partition %s from its beginning", partition)

    def _partitions(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number)
            for topic in sorted(counts)
            for number in range(counts[topic])
        ]

    def _position(self, partition: TopicPartition) -> int:
        """Return the next offset, which skips transaction markers and compacted gaps."""
        position = self._consumer.position(partition)
        return 0 if position is None else position

    def _notify(
        self,
        step: RestoreStep,
        partition: TopicPartition,
        progress: _CatchUpProgress,
        offset: int,
        records: int,
    ) -> None:
        self._listener(
            RestoreEvent(
                step,
                partition,
                self.stores.store_of(partition.topic),
                offset,
                progress.end_offset,
                records,
                GLOBAL_TASK,
            )
        )


class NoGlobalStores:
    """The updater of a thread without global stores."""

    stores = None
    caught_up = True
    is_reading = False

    def find(self, name: str) -> OpenStore | None:
        return None

    def step(self, timeout_ms: int) -> None:
        """Do nothing."""

    def rebuild(self, why: TaskCorruptedError) -> None:
        raise why

    def close(self) -> None:
        """Do nothing."""

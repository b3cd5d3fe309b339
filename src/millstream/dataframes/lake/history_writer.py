"""Writes the history of a topology to its internal topic exactly once.

This guarantee also holds after crashes. There are three phases:

    1 plan    The first driver commits a plan in a separate group. The plan contains the number of
              rows, and the offsets at which the topic that follows the history continues. From
              then on, all drivers have the same rows with the same numbers.
    2 steps   The rows are written in steps, in the order of their numbers. Each partition of a step
              is a transaction that contains the step's number, so that no step is written twice
              (see `kafka_writer`).
    3 mark    Offsets of the history's topic and of the topic that follows are committed in the
              application's group. If these offsets exist, the history is complete.

Several drivers may write the same history concurrently. The plan and the mark are written in
transactions with the same transactional ID, after checking whether they have already been written.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.clock import Deadline, SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.dataframes.lake.history_rows import (
    CHUNK,
    TIMEOUT_MS,
    HistoryTable,
    steps_group,
    transactional_output,
    write_in_steps,
)
from millstream.errors import SparkError, StreamsError, TaskMigratedError, UnknownTopicError
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.kafka.cluster.committed_offsets import committed_positions
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.kafka.membership.member_events import CommitOffset
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TopicPartition
from millstream.spark.jobs import short_reason
from millstream.spark.sessions.local_session import has_jvm
from millstream.topology.options.lake import LakeHistory
from millstream.topology.physical.internal_topic_configs import RepartitionTopic, decorated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

#: The number of attempts to write, each of which another driver may interrupt.
_ATTEMPTS: Final = 5
#: The time without progress after which another driver is considered dead.
_OTHER_TIMEOUT_MS: Final = 30_000
_POLL_INTERVAL_S: Final = 0.2


@dataclass(frozen=True)
class HistoryPlan:
    run: str
    #: The maximum number of records per partition in a step.
    chunk: int
    #: The number of rows of each partition.
    counts: Mapping[int, int]
    #: The offset at which each partition of the topic continues; 0 if no topic follows the history.
    resume: Mapping[int, int]

    def positions(self, topic: str) -> dict[TopicPartition, CommitOffset]:
        return {
            TopicPartition(topic, number): CommitOffset(
                offset, f"{self.run} {self.chunk} {self.counts[number]}"
            )
            for number, offset in self.resume.items()
        }


def parse_plan(found: Mapping[TopicPartition, tuple[int, str] | None]) -> HistoryPlan | None:
    """Parse the plan from a group's committed offsets; return None if there are none."""
    entries = {tp.partition: each for tp, each in found.items() if each is not None}
    if not entries:
        return None
    parts = {number: text.split() for number, (_, text) in entries.items()}
    run, chunk, _ = next(iter(parts.values()))
    return HistoryPlan(
        run,
        int(chunk),
        {number: int(part[2]) for number, part in parts.items()},
        {number: offset for number, (offset, _) in entries.items()},
    )


@dataclass(eq=False, repr=False)
class HistoryWriter:
    """Writes one history in one driver.

    `is_cancelled` is polled several times per second.
    """

    history: LakeHistory
    config: StreamsConfig
    session: SparkSession
    is_cancelled: Callable[[], bool]
    #: The maximum number of records per partition in a step.
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        self._into = decorated(self.history.topic, self.config.application_id)
        self._plan_group = f"{self._into}-plan"
        client_id = f"{self.config.application_id}-{self.history.name}-history-admin"
        self._settings = librdkafka_settings(self.config, "admin", client_id)

    def write(self) -> int:
        """Write the missing part of the history; return early if canceled.

        Returns the number of records that the last attempt has written; 0 if canceled.

        Raises:
            ConfigError: the table cannot be read as configured.
            UnknownTopicError: the topic that follows the history does not exist.
            StreamsError: the application is running or has started without its history; or the
                table has changed since an earlier start, or lacks records.
            SparkError: a Spark job failed.
        """
        admin = GroupAdmin(self._settings, replication_factor=self.config.replication_factor)
        try:
            with _cancel_jobs_when(self.session, f"{self._into}-job", self.is_cancelled):
                return self._retry(admin)
        finally:
            admin.close()

    def _retry(self, admin: GroupAdmin) -> int:
        for left in reversed(range(_ATTEMPTS)):
            try:
                return self._attempt(admin)
            except Exception as error:
                if self.is_cancelled():
                    return 0
                if not _is_fenced(error) or not left:
                    raise self._to_streams_error(error) from error
                logger.info(
                    "%s: waiting for another instance that is writing this history: %s",
                    self._into,
                    short_reason(error),
                )
                self._await_other_driver(admin)
        return 0

    def _attempt(self, admin: GroupAdmin) -> int:
        history, into = self.history, self._into
        partitions = self._partitions(admin)
        if self._is_complete(admin, partitions):
            return 0
        error = self._started_error(admin, partitions)
        if error is not None:
            # Another instance may have finished the history and started in the meantime.
            if self._is_complete(admin, partitions):
                return 0
            raise error
        topic = RepartitionTopic(history.topic)
        settings = {name: str(value) for name, value in self.config.topic.items()}
        admin.create_topics([(into, partitions, topic.config(settings))], TIMEOUT_MS)
        # Check for records before reading the plan, which is committed before any records.
        has_records = any(admin.end_offsets(self._topic_partitions(partitions)).values())
        plan = self._read_plan(partitions)
        if plan is None and has_records:
            raise StreamsError(
                f"The topic {into!r} has records, but its plan is missing: the offsets of "
                f"{self._plan_group!r} have expired or were deleted. Reset the application "
                "(`millstream reset`), which deletes the topic."
            )
        table = HistoryTable(self.session, history)
        resume = table.resume(admin, partitions) if plan is None else dict(plan.resume)
        rows = table.numbered_rows(into, partitions, resume)
        try:
            counts = {number: rows.counts.get(number, 0) for number in range(partitions)}
            if plan is None:
                every = {number: resume.get(number, 0) for number in range(partitions)}
                plan = HistoryPlan(uuid.uuid4().hex, self.chunk, counts, every)
                self._store_plan(plan, partitions)
            elif plan.counts != counts:
                raise StreamsError(
                    f"The table {history.path} has changed since an earlier start of the "
                    f"application began to write it to {into!r}: it had "
                    f"{sum(plan.counts.values())} rows, and now has {sum(counts.values())}. Reset "
                    "the application (`millstream reset`) to start over."
                )
            written = write_in_steps(rows, into, plan.run, self.config, chunk=plan.chunk)
        finally:
            rows.release()
        self._mark_complete(admin, plan, partitions)
        logger.info("%s: the history is complete, with %d records", into, sum(counts.values()))
        return written

    def _partitions(self, admin: GroupAdmin) -> int:
        history = self.history
        if history.then is None:
            return history.partitions or 1
        counts = admin.partition_counts([history.then])
        if history.then not in counts:
            raise UnknownTopicError(f"The topic {history.then!r} does not exist.")
        return counts[history.then]

    def _topic_partitions(self, partitions: int) -> list[TopicPartition]:
        return [TopicPartition(self._into, number) for number in range(partitions)]

    def _is_complete(self, admin: GroupAdmin, partitions: int) -> bool:
        group, topic_partitions = self.config.application_id, self._topic_partitions(partitions)
        found = admin.committed_offsets(group, topic_partitions)
        return any(offset is not None for offset in found.values())

    def _started_error(self, admin: GroupAdmin, partitions: int) -> StreamsError | None:
        """Return an error if the application has started without its history."""
        application, then = self.config.application_id, self.history.then
        members = admin.members(application)
        if members:
            return StreamsError(
                f"The history {self.history.name!r} has not been written yet, but the group "
                f"{application!r} already has members: {members[0].client_id} on "
                f"{members[0].host}. Stop all instances of the application first."
            )
        if then is None:
            return None
        topic_partitions = [TopicPartition(then, number) for number in range(partitions)]
        committed = admin.committed_offsets(application, topic_partitions)
        beginnings = admin.beginning_offsets(topic_partitions)
        # After a reset to the beginning, the application has processed nothing yet.
        if any(found not in (None, beginnings[tp]) for tp, found in committed.items()):
            return StreamsError(
                f"The application {application!r} has already read {then!r} without the history "
                f"{self.history.name!r}. Reset it (`millstream reset`), or use another "
                "application_id."
            )
        return None

    def _read_plan(self, partitions: int) -> HistoryPlan | None:
        group, topic_partitions = self._plan_group, self._topic_partitions(partitions)
        return parse_plan(
            committed_positions(self._settings, group, topic_partitions, TIMEOUT_MS, SystemClock())
        )

    def _store_plan(self, plan: HistoryPlan, partitions: int) -> None:
        with self._fenced_producer() as producer:
            if self._read_plan(partitions) is not None:
                raise TaskMigratedError(f"Another instance has stored the plan of {self._into!r}.")
            _commit(producer, self._plan_group, plan.positions(self._into))

    def _mark_complete(self, admin: GroupAdmin, plan: HistoryPlan, partitions: int) -> None:
        """Commit the offsets at which the application starts to read.

        These are offsets of the history's topic and of the topic that follows.
        """
        with self._fenced_producer() as producer:
            # Check after the fencing of earlier producers with the same transactional ID.
            if self._is_complete(admin, partitions):
                return
            error = self._started_error(admin, partitions)
            if error is not None:
                raise error
            self._check_no_lost_records(admin, plan)
            begin = dict.fromkeys(self._topic_partitions(partitions), CommitOffset(0))
            if self.history.then is not None:
                begin |= {
                    TopicPartition(self.history.then, number): CommitOffset(offset)
                    for number, offset in plan.resume.items()
                }
            _commit(producer, self.config.application_id, begin)

    def _check_no_lost_records(self, admin: GroupAdmin, plan: HistoryPlan) -> None:
        """Check that the next topic has deleted no records since the plan was made."""
        then = self.history.then
        topic_partitions = (
            [] if then is None else [TopicPartition(then, number) for number in plan.resume]
        )
        for tp, beginning in admin.beginning_offsets(topic_partitions).items():
            if beginning > plan.resume[tp.partition]:
                raise StreamsError(
                    f"{then}, partition {tp.partition}, has deleted the records "
                    f"{plan.resume[tp.partition]} to {beginning - 1} while its history was "
                    "being written. Reset the application (`millstream reset`) to start over with "
                    "the current content of the table."
                )

    @contextmanager
    def _fenced_producer(self) -> Iterator[TransactionalRecordProducer]:
        """Open a producer with the plan's transactional ID.

        This fences earlier producers.
        """
        target = transactional_output(self._into, self.config)
        producer = TransactionalRecordProducer(
            target.settings,
            self._plan_group,
            task_timeout_ms=target.timeout_ms,
            speedups=target.speedups,
        )
        try:
            producer.init_transactions(target.timeout_ms)
            yield producer
        finally:
            producer.close()

    def _await_other_driver(self, admin: GroupAdmin) -> None:
        """Wait until the other driver is done, or has made no progress for a while."""
        topic_partitions = self._topic_partitions(self._partitions(admin))
        clock = SystemClock()
        seen, deadline = None, Deadline(clock, _OTHER_TIMEOUT_MS)
        while not deadline.passed and not self.is_cancelled():
            if self._is_complete(admin, len(topic_partitions)):
                return
            steps = admin.committed_offsets(steps_group(self._into), topic_partitions)
            if steps != seen:
                seen, deadline = steps, Deadline(clock, _OTHER_TIMEOUT_MS)
            clock.sleep_ms(int(_POLL_INTERVAL_S * 1_000))

    def _to_streams_error(self, error: Exception) -> StreamsError:
        if isinstance(error, StreamsError):
            return error
        return SparkError(
            f"The history {self.history.name!r} could not be written to {self._into!r}: "
            f"{short_reason(error)}"
        )


def _commit(
    producer: TransactionalRecordProducer,
    group: str,
    offsets: Mapping[TopicPartition, CommitOffset],
) -> None:
    producer.send_offsets(offsets, GroupMetadata(-1, group, ""), TIMEOUT_MS)
    producer.commit_transaction(TIMEOUT_MS)


def _is_fenced(error: Exception) -> bool:
    """Return whether another driver has taken over.

    If a Spark task raised the error, Spark's message only contains the error's text.
    """
    return isinstance(error, TaskMigratedError) or TaskMigratedError.__name__ in str(error)


@contextmanager
def _cancel_jobs_when(
    session: SparkSession, tag: str, is_cancelled: Callable[[], bool]
) -> Iterator[None]:
    """Cancel this thread's Spark jobs when `is_cancelled` returns True."""
    context = session.sparkContext
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_INTERVAL_S):
            if is_cancelled() and has_jvm(context):
                context.cancelJobsWithTag(tag)

    watcher = threading.Thread(target=watch, name=f"millstream-{tag}", daemon=True)
    context.addJobTag(tag)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        if has_jvm(context):
            context.removeJobTag(tag)

"""Writes the history of a topology into its internal topic, once, whoever is killed meanwhile.

    1 plan    which rows, and where the topic goes on: noted in a group of its own, by whoever is
              first. From then on the rows are the same for everybody, and numbered alike.
    2 steps   of rows by their numbers: each partition of a step is a transaction with the number
              of the step in it, so that none is written twice (see `sending`).
    3 mark    the application's group gets offsets, of the history's topic and of the one after it.
              Whoever finds them has nothing to do.

Several drivers may do this at once: each of 1 and 3 is a transaction of one transactional id, in
which it is asked first whether it was done.
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
from millstream.config import StreamsConfig
from millstream.errors import SparkError, StreamsError, TaskMigratedError, UnknownTopicError
from millstream.kafka.cluster.committed_offsets import committed_positions
from millstream.kafka.cluster.group_admin import GroupAdmin
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.data.transactions import TransactionalRecordProducer
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition
from millstream.spark.sessions.local_session import has_jvm
from millstream.structured.account import reason_told
from millstream.structured.lake.history_rows import (
    CHUNK,
    TIMEOUT_MS,
    marks_of,
    send_in_steps,
    target_of,
)
from millstream.structured.lake.history_table import HistoryTable
from millstream.topology.options.history import LakeHistory
from millstream.topology.physical.internal_topics import RepartitionTopic, decorated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

#: How often another driver may take over from this one.
_ATTEMPTS: Final = 5
#: Another driver that has done nothing for so long does nothing any more.
_ANOTHER_MS: Final = 30_000
_LOOK_S: Final = 0.2


@dataclass(frozen=True)
class HistoryPlan:
    """Which rows are written, and how.

    Args:
        run: names this writing.
        chunk: how many records of a partition are a step.
        counts: how many rows each partition has, all partitions named.
        resume: where the topic goes on, likewise; 0 where no topic comes after the history.
    """

    run: str
    chunk: int
    counts: Mapping[int, int]
    resume: Mapping[int, int]

    def positions(self, topic: str) -> dict[TopicPartition, CommitOffset]:
        """It as a group keeps it."""
        return {
            TopicPartition(topic, number): CommitOffset(
                offset, f"{self.run} {self.chunk} {self.counts[number]}"
            )
            for number, offset in self.resume.items()
        }


def noted_plan(found: Mapping[TopicPartition, tuple[int, str] | None]) -> HistoryPlan | None:
    """The plan that a group has; None if it has none."""
    told = {place.partition: each for place, each in found.items() if each is not None}
    if not told:
        return None
    parts = {number: text.split() for number, (_, text) in told.items()}
    run, chunk, _ = next(iter(parts.values()))
    return HistoryPlan(
        run,
        int(chunk),
        {number: int(part[2]) for number, part in parts.items()},
        {number: offset for number, (offset, _) in told.items()},
    )


class HistoryWriter:
    """Writes one history in one driver.

    Args:
        history: what to write.
        config: the application's settings.
        session: reads the table and writes the topic.
        given_up: asked several times a second: whether nobody waits for it any more.
        chunk: how many records of a partition are written at once.
    """

    def __init__(
        self,
        history: LakeHistory,
        config: StreamsConfig,
        session: SparkSession,
        given_up: Callable[[], bool],
        chunk: int = CHUNK,
    ) -> None:
        self._history = history
        self._config = config
        self._session = session
        self._given_up = given_up
        self._chunk = chunk
        self._into = decorated(history.topic, config.application_id)
        self._plan_group = f"{self._into}-plan"
        client_id = f"{config.application_id}-{history.name}-history-admin"
        self._settings = librdkafka_settings(config, "admin", client_id)

    def write(self) -> int:
        """Write what is not written yet; returns early if nobody waits for it any more.

        Returns:
            How many records this call has written.

        Raises:
            ConfigError: the table cannot be read as it was asked for.
            UnknownTopicError: the topic that comes after it does not exist.
            StreamsError: the application has begun without its history, or another version of it
                runs; the table has changed since an earlier start, or lacks records.
            SparkError: Spark cannot do it.
        """
        admin = GroupAdmin(
            self._settings,
            replication_factor=self._config.replication_factor,
        )
        try:
            with _cancelled(self._session, f"{self._into}-job", self._given_up):
                return self._try_often(admin)
        finally:
            admin.close()

    def _try_often(self, admin: GroupAdmin) -> int:
        for left in reversed(range(_ATTEMPTS)):
            try:
                return self._attempt(admin)
            except Exception as error:
                if self._given_up():
                    return 0
                if not _is_of_another(error) or not left:
                    raise self._told(error) from error
                logger.info(
                    "%s: another instance writes it, which is waited for: %s",
                    self._into,
                    reason_told(error),
                )
                self._wait_for_another(admin)
        return 0

    def _attempt(self, admin: GroupAdmin) -> int:
        history, into = self._history, self._into
        partitions = self._partitions(admin)
        if self._is_marked(admin, partitions):
            return 0
        begun = self._begun(admin, partitions)
        if begun is not None:
            # Another instance may have marked it and begun meanwhile.
            if self._is_marked(admin, partitions):
                return 0
            raise begun
        topic = RepartitionTopic(history.topic)
        settings = {name: str(value) for name, value in self._config.topic.items()}
        admin.create_topics([(into, partitions, topic.config(settings))], TIMEOUT_MS)
        # In this order: records are written only after the plan is noted.
        has_records = any(admin.end_offsets(self._places(partitions)).values())
        plan = self._noted(partitions)
        if plan is None and has_records:
            raise StreamsError(
                f"The topic {into!r} has records, and it is not noted any more what they are: the "
                f"offsets of {self._plan_group!r} have expired or were deleted. Reset the "
                "application (`millstream reset`), which deletes the topic."
            )
        table = HistoryTable(self._session, history)
        resume = table.resume(admin, partitions) if plan is None else dict(plan.resume)
        rows = table.numbered(into, partitions, resume)
        try:
            counts = {number: rows.counts.get(number, 0) for number in range(partitions)}
            if plan is None:
                every = {number: resume.get(number, 0) for number in range(partitions)}
                plan = HistoryPlan(uuid.uuid4().hex, self._chunk, counts, every)
                self._note(plan, partitions)
            elif plan.counts != counts:
                raise StreamsError(
                    f"The table {history.path} has changed since an earlier start has begun to "
                    f"write it into {into!r}: it had {sum(plan.counts.values())} rows for that, "
                    f"and has {sum(counts.values())} now. Reset the application "
                    "(`millstream reset`) to begin anew."
                )
            written = send_in_steps(rows, into, plan.run, self._config, chunk=plan.chunk)
        finally:
            rows.release()
        self._mark(admin, plan, partitions)
        logger.info("%s: the history is whole, with %d records", into, sum(counts.values()))
        return written

    def _partitions(self, admin: GroupAdmin) -> int:
        history = self._history
        if history.then is None:
            return history.partitions or 1
        counts = admin.partition_counts([history.then])
        if history.then not in counts:
            raise UnknownTopicError(f"The topic {history.then!r} does not exist.")
        return counts[history.then]

    def _places(self, partitions: int) -> list[TopicPartition]:
        return [TopicPartition(self._into, number) for number in range(partitions)]

    def _is_marked(self, admin: GroupAdmin, partitions: int) -> bool:
        """Whether all is done."""
        group, places = self._config.application_id, self._places(partitions)
        found = admin.committed_offsets(group, places)
        return any(offset is not None for offset in found.values())

    def _begun(self, admin: GroupAdmin, partitions: int) -> StreamsError | None:
        """What is wrong with an application without a mark: it has read the topic without its
        history, or does so now."""
        application, then = self._config.application_id, self._history.then
        members = admin.members(application)
        if members:
            return StreamsError(
                f"The history {self._history.name!r} is not written yet, but group "
                f"{application!r} has members: {members[0].client_id} on {members[0].host}. Stop "
                "all instances of the application first."
            )
        if then is None:
            return None
        places = [TopicPartition(then, number) for number in range(partitions)]
        committed = admin.committed_offsets(application, places)
        beginnings = admin.beginning_offsets(places)
        # One that was reset to the beginning has done nothing yet.
        if any(found not in (None, beginnings[place]) for place, found in committed.items()):
            return StreamsError(
                f"The application {application!r} has already begun to read {then!r} without the "
                f"history {self._history.name!r}. Reset it (`millstream reset`), or give it "
                "another application_id."
            )
        return None

    def _noted(self, partitions: int) -> HistoryPlan | None:
        group, places = self._plan_group, self._places(partitions)
        return noted_plan(
            committed_positions(self._settings, group, places, TIMEOUT_MS, SystemClock())
        )

    def _note(self, plan: HistoryPlan, partitions: int) -> None:
        with self._taken_over() as producer:
            if self._noted(partitions) is not None:
                raise TaskMigratedError(f"Another instance has planned {self._into!r}.")
            self._commit(producer, self._plan_group, plan.positions(self._into))

    def _mark(self, admin: GroupAdmin, plan: HistoryPlan, partitions: int) -> None:
        """Let the application's group begin with the history, and then where it ends."""
        with self._taken_over() as producer:
            # Asked only now: whoever asked before cannot commit any more.
            if self._is_marked(admin, partitions):
                return
            begun = self._begun(admin, partitions)
            if begun is not None:
                raise begun
            self._check_still_there(admin, plan)
            begin = dict.fromkeys(self._places(partitions), CommitOffset(0))
            if self._history.then is not None:
                begin |= {
                    TopicPartition(self._history.then, number): CommitOffset(offset)
                    for number, offset in plan.resume.items()
                }
            self._commit(producer, self._config.application_id, begin)

    def _check_still_there(self, admin: GroupAdmin, plan: HistoryPlan) -> None:
        """Refuse to go on behind records that the topic has lost since the plan was made."""
        then = self._history.then
        places = [] if then is None else [TopicPartition(then, number) for number in plan.resume]
        for place, beginning in admin.beginning_offsets(places).items():
            if beginning > plan.resume[place.partition]:
                raise StreamsError(
                    f"{then}, partition {place.partition}, has lost the records "
                    f"{plan.resume[place.partition]} to {beginning - 1} while its history was "
                    "written. Reset the application (`millstream reset`) to begin anew with what "
                    "the table has by now."
                )

    @contextmanager
    def _taken_over(self) -> Iterator[TransactionalRecordProducer]:
        """A producer of the one id; its former owners cannot commit any more."""
        target = target_of(self._into, self._config)
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

    def _commit(
        self,
        producer: TransactionalRecordProducer,
        group: str,
        offsets: Mapping[TopicPartition, CommitOffset],
    ) -> None:
        producer.send_offsets(offsets, GroupMetadata(-1, group, ""), TIMEOUT_MS)
        producer.commit_transaction(TIMEOUT_MS)

    def _wait_for_another(self, admin: GroupAdmin) -> None:
        """Until it has done all, or has done nothing for a while."""
        places = self._places(self._partitions(admin))
        clock = SystemClock()
        seen, deadline = None, Deadline(clock, _ANOTHER_MS)
        while not deadline.passed and not self._given_up():
            if self._is_marked(admin, len(places)):
                return
            steps = admin.committed_offsets(marks_of(self._into), places)
            if steps != seen:
                seen, deadline = steps, Deadline(clock, _ANOTHER_MS)
            clock.sleep_ms(int(_LOOK_S * 1_000))

    def _told(self, error: Exception) -> StreamsError:
        if isinstance(error, StreamsError):
            return error
        return SparkError(
            f"The history {self._history.name!r} could not be written into {self._into!r}: "
            f"{reason_told(error)}"
        )


def _is_of_another(error: Exception) -> bool:
    """Whether another driver has taken over, as far as Spark's account tells it too."""
    return isinstance(error, TaskMigratedError) or TaskMigratedError.__name__ in str(error)


@contextmanager
def _cancelled(session: SparkSession, tag: str, given_up: Callable[[], bool]) -> Iterator[None]:
    """Cancels Spark's jobs of this thread as soon as nobody waits for them any more."""
    context = session.sparkContext
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_LOOK_S):
            if given_up() and has_jvm(context):
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

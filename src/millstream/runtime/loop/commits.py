"""Committing the tasks of a thread: everything that a record caused, and its offset."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError, RebalanceInProgressError, StreamsError
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.protocols import Producer
from millstream.metrics.sensors import Sensor
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.patience import USUAL, Patience, when_closing, when_given_up
from millstream.runtime.loop.publication import Confirmation, Publication
from millstream.runtime.states import TaskState
from millstream.runtime.work import Work, failures_of
from millstream.subscriptions.properties.properties import Properties

logger = logging.getLogger(__name__)

#: How long it is waited for records in flight before the group is told that the thread lives.
_STEP_MS: Final = 1_000
#: The same where there are other tasks to look after.
_TURN_MS: Final = 20
#: For how long what was sent is waited for without a look at questions, and how often at most.
_PAUSE_MS: Final = 2
_MOST_PAUSES: Final = 500


class UnfinishedError(Exception):
    """A commit has to wait for what tasks have in flight; they take nothing meanwhile.

    Args:
        tasks: those tasks.
    """

    def __init__(self, tasks: Collection[Work]) -> None:
        names = ", ".join(str(task.task_id) for task in tasks)
        super().__init__(f"tasks {names} have records in flight")
        self.tasks = tasks


@dataclass(frozen=True, slots=True)
class _Begun:
    """A commit that lacks the group's answer to its offsets.

    Attributes:
        confirmation: the answer.
        tasks: what is committed.
        offsets: of all of them.
        acked: the changelog offsets that all of it stands for.
    """

    confirmation: Confirmation
    tasks: Sequence[Work]
    offsets: Mapping[TopicPartition, CommitOffset]
    acked: Mapping[TopicPartition, int]


class Commits:
    """Commits tasks, all of a thread together.

    The order is: caches are flushed → outputs, changelogs and offsets are published, in the way of
    the processing guarantee → stores write their data with the changelog offset that it stands for.
    A crash anywhere in between loses nothing.

    The stores wait until the group has taken the offsets: a member that it has given up is not to
    keep state that claims to hold what another one has written to the changelog meanwhile.

    Args:
        publication: makes what was sent visible, with its offsets.
        producer: the thread's producer.
        clock: for the timeouts.
        on_wait: called again and again while records in flight are waited for.
        most_wait_ms: how long the group lets anybody wait who gives tasks up; None for any time.
        took: told how long commits took, in milliseconds.
    """

    def __init__(
        self,
        publication: Publication,
        producer: Producer,
        clock: Clock,
        on_wait: Callable[[], None] = lambda: None,
        most_wait_ms: int | None = None,
        took: Sensor | None = None,
    ) -> None:
        self._publication = publication
        self._producer = producer
        self._clock = clock
        self._on_wait = on_wait
        self._most_wait_ms = most_wait_ms
        self._took = took
        self._begun: _Begun | None = None
        #: How long tasks that go to others are waited for, and all when the thread closes.
        self.when_given_up = USUAL
        self.when_closing = USUAL
        #: Commits that went through.
        self.total = 0

    @property
    def all_or_nothing(self) -> bool:
        """Whether uncommitted work is given up for all tasks, or for none."""
        return self._publication.all_or_nothing

    @property
    def is_open(self) -> bool:
        """Whether something was sent that only a commit makes visible, or one is not over."""
        return self._publication.is_open or self._begun is not None

    def is_ready(self) -> bool:
        """Whether tasks may begin; see `Publication`."""
        return self._publication.is_ready()

    def be_patient(self, properties: Properties) -> None:
        """From now on tasks are waited for as the properties of their subscription say."""
        self.when_given_up = when_given_up(properties)
        self.when_closing = when_closing(properties)

    def drain(self, tasks: Collection[Work]) -> None:
        """Wait for what tasks have taken and not finished, before a commit that is their last here.

        What does not come to its end in time is repeated by the next owners.

        Args:
            tasks: what is given up: it begins nothing any more.

        Raises:
            StreamsError: user code failed.
        """
        self._drain(tasks, self.when_given_up, self._most_wait_ms)

    def drain_to_close(self, tasks: Collection[Work], within_ms: int | None) -> bool:
        """The same, when the thread closes; whether all have come to their ends.

        Args:
            tasks: all of them.
            within_ms: how long closing may take in all; half of it is left for the commit.

        Raises:
            StreamsError: user code failed.
        """
        return self._drain(tasks, self.when_closing, None if within_ms is None else within_ms // 2)

    def land(self, tasks: Collection[Work]) -> None:
        """Wait as long for tasks that stay, and go on after it.

        Raises:
            StreamsError: user code failed.
        """
        self._finished(tasks, Deadline(self._clock, self.when_given_up.all_ms))

    def _drain(self, tasks: Collection[Work], patience: Patience, most_ms: int | None) -> bool:
        started_ms = self._clock.monotonic_ms()
        whole = Deadline(self._clock, most_ms)
        left = self._finished(
            tasks, Deadline(self._clock, whole.remaining_ms(patience.all_ms)), whole
        )
        for task in left:
            task.halt()
        if left and patience.running_ms != 0:
            left = self._finished(left, Deadline(self._clock, patience.running_ms), whole)
        for task in left:
            logger.warning(
                "task %s has records that are not done after %d ms: its next owner repeats them",
                task.task_id,
                self._clock.monotonic_ms() - started_ms,
            )
        return not left

    def _finished(
        self, tasks: Collection[Work], deadline: Deadline, whole: Deadline | None = None
    ) -> list[Work]:
        """Wait for tasks, which finish beside each other; those that have not by then."""
        left, given_up = list(tasks), []
        most_ms = _STEP_MS
        while left:
            step_ms = deadline.remaining_ms(most_ms)
            if whole is not None:
                step_ms = whole.remaining_ms(step_ms)
            left = [task for task in left if not self._is_drained(task, step_ms)]
            if not step_ms:
                break
            given_up += [task for task in left if not task.may_land]
            left = [task for task in left if task.may_land]
            # In turn: what a task has not begun is only begun while it is looked after.
            most_ms = _STEP_MS if len(left) < 2 else _TURN_MS
            self._on_wait()
        return given_up + left

    def _is_drained(self, task: Work, within_ms: int) -> bool:
        with failures_of(task):
            return task.drain(Deadline(self._clock, within_ms))

    def commit(
        self,
        tasks: Collection[Work],
        within_ms: int | None = None,
        meanwhile: Callable[[], bool] = lambda: False,
        *,
        soon: bool = False,
    ) -> dict[TopicPartition, CommitOffset]:
        """Commit those of the tasks that have anything to commit; what was committed.


        Args:
            tasks: what to commit.
            within_ms: how long all of it may take, tries included; None for no such bound.
            meanwhile: called now and then between two of its steps; tells whether it wants to be
                called while what was sent is waited for as well: most of a commit's time.
            soon: whether the tasks go on before the group has answered, where that may be; `hear`
                of its answer now and then. With records at a steady pace the answer is the greater
                part of a commit: 2 to 3 ms, in which none would be taken.

        Raises:
            RebalanceInProgressError: the group takes no commits now; try again after it.
            TaskMigratedError: this member is no longer in the group.
            ProductionError: an output could not be written.
            BrokerUnavailableError: no answer in time.
            UnfinishedError: try again when that is finished.
        """
        whole = Deadline(self._clock, within_ms)
        self._finish(whole)
        began_ms = self._clock.monotonic_ms()
        needing, offsets = self._prepared(tasks, whole, meanwhile)
        if not needing and not self.is_open:
            return {}
        confirmation = None
        if soon:
            confirmation = self._publication.publish_soon(offsets, whole)
        else:
            self._publication.publish(offsets, whole)
        acked = self._producer.acked_offsets()
        for task in needing:
            task.commit_begun()
        if confirmation is None:
            self._end(needing, offsets, acked, meanwhile)
        else:
            self._begun = _Begun(confirmation, needing, offsets, acked)
        if self._took is not None:
            self._took.record(self._clock.monotonic_ms() - began_ms)
        return offsets

    def hear(self) -> None:
        """Bring a commit to its end that the group has answered.

        Raises:
            StreamsError: as `commit`. What could not be committed needs it again.
        """
        if self._begun is not None and self._begun.confirmation.is_there:
            self._finish(Deadline(self._clock, None))

    def _finish(self, whole: Deadline, corrupted: Collection[TaskId] = ()) -> None:
        """Wait for the answer to the commit before, if it is not there yet."""
        begun, self._begun = self._begun, None
        if begun is None:
            return
        # The others were closed, and opened again perhaps.
        running = [
            task
            for task in begun.tasks
            if task.state is TaskState.RUNNING and task.task_id not in corrupted
        ]
        try:
            begun.confirmation.take(whole)
        except StreamsError:
            for task in running:
                task.commit_failed()
            raise
        self._end(running, begun.offsets, begun.acked)

    def _prepared(
        self, tasks: Collection[Work], whole: Deadline, meanwhile: Callable[[], bool]
    ) -> tuple[list[Work], dict[TopicPartition, CommitOffset]]:
        """The tasks that need a commit, with all that they hold back handed to the producer, and
        the offsets to commit."""
        needing = [task for task in tasks if task.commit_needed]
        if not needing and not self.is_open:
            return [], {}
        # All are asked before any hands on what its caches hold back: it may take many tries.
        unfinished = [task for task in needing if not self._may_commit(task)]
        if unfinished:
            raise UnfinishedError(unfinished)
        for task in needing:
            with failures_of(task):
                task.prepare_commit()
            meanwhile()
        self._pause(meanwhile)
        self._wait_for_sent([task for task in needing if task.awaits_sent], whole)
        # Before they are published: a record that is finished during it may have sent what is not.
        offsets: dict[TopicPartition, CommitOffset] = {}
        for task in needing:
            offsets.update(task.offsets_to_commit())
        if not offsets and self.is_open:
            # What a punctuation has sent comes without any, and then nothing would tell the group
            # who commits: a zombie could. So an offset that is committed goes with it again.
            for task in tasks:
                offsets.update(task.offsets_to_commit())
        return needing, offsets

    def _end(
        self,
        tasks: Sequence[Work],
        offsets: Mapping[TopicPartition, CommitOffset],
        acked: Mapping[TopicPartition, int],
        meanwhile: Callable[[], bool] = lambda: False,
    ) -> None:
        """The offsets are committed: let stores be written, those of all tasks."""
        self.total += 1
        failed: StreamsError | None = None
        for task in tasks:
            meanwhile()
            try:
                task.post_commit(offsets, acked)
            except StreamsError as error:
                # The others have no other commit to be written by.
                failed = failed or error
        if failed is not None:
            raise failed

    def _pause(self, meanwhile: Callable[[], bool]) -> None:
        """While somebody wants to be called, wait for what was sent a little at a time.

        Not for long: it is the publication that knows what to do about brokers that do not answer.
        """
        for _ in range(_MOST_PAUSES):
            if not meanwhile():
                return
            try:
                self._producer.flush(_PAUSE_MS)
                return
            except BrokerUnavailableError:
                # Not all of it is there yet.
                continue

    def _wait_for_sent(self, tasks: Collection[Work], whole: Deadline) -> None:
        if tasks:
            self._publication.settle(whole)
        for task in tasks:
            with failures_of(task):
                task.sent()

    def _may_commit(self, task: Work) -> bool:
        with failures_of(task):
            return task.may_commit()

    def settle(self, tasks: Collection[Work], corrupted: Collection[TaskId] = ()) -> None:
        """Wait until what tasks have sent is in their topics, as long as a commit would.

        A task that is restored from its changelog, though it has logged since its last commit, must
        not take the end of the changelog for an offset before those records.

        Args:
            tasks: all that run.
            corrupted: those whose state is thrown away: nothing of a commit is written into it.

        Raises:
            ProductionError: an output could not be written.
            BrokerUnavailableError: no answer in time.
        """
        try:
            self._finish(Deadline(self._clock, None), corrupted)
        except RebalanceInProgressError as error:
            logger.debug("commit put off: %s", error)
        if any(task.commit_needed for task in tasks):
            self._publication.settle(Deadline(self._clock, None))

    def forget_sent(self) -> None:
        """All tasks were closed without a commit: what they sent is sent again by their owners."""
        self._begun = None
        self._publication.forget_sent()

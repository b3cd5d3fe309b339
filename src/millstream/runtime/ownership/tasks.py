"""The tasks of one stream thread: created from an assignment, run, committed, given up."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from millstream.clock import Clock, Deadline
from millstream.errors import (
    BrokerUnavailableError,
    LockError,
    OffsetOutOfRangeError,
    StreamsError,
    TaskCorruptedError,
    UnknownTopicError,
)
from millstream.kafka.protocols import Consumer
from millstream.record import TaskId, TopicPartition
from millstream.runtime.ownership.expired_offsets import ExpiredOffsets
from millstream.runtime.ownership.inputs import Inputs
from millstream.runtime.ownership.offset_sums import OffsetSums
from millstream.runtime.ownership.restoration import Restoration
from millstream.runtime.ownership.start_offsets import CommittedOffsets, epochs_of
from millstream.runtime.retry import LockRetry, Retry
from millstream.runtime.states import TaskState
from millstream.runtime.task.punctuations import AT_ONCE, Agenda
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.work import Work, failures_of

logger = logging.getLogger(__name__)

#: How often in a row the state of a task is rebuilt before its disk is thought to be broken.
_MOST_REVIVALS = 3


@dataclass(frozen=True, slots=True)
class _Opening:
    """A task that waits for its directory, and what it is to be then."""

    retry: LockRetry
    standby: bool


class Tasks:
    """What the thread owns.

    A task goes through: created → stores opened (its directory locked) → restored → running. Its
    input partitions are only fetched once it runs. A standby task follows its changelogs instead,
    until it becomes active, which costs just what it has not read yet. A task may change sides any
    number of times: it is the same task, and its stores stay open.

    Args:
        create: makes a task of an id and its input partitions.
        restoration: restores stores beside processing.
        consumer: the main consumer.
        offsets: where to begin.
        clock: for retries.
        timeout_ms: how long the cluster may not answer (`task.timeout.ms`).
        offset_sums: told how far the state of each task is.
        may_start: whether restored tasks may begin to process.
        calls_ms: how long punctuators are called before `punctuate` returns; None for all of them.
        max_buffered: with more records than this waiting in a partition it is paused, until the
            half of them are processed. Only partitions that wait for another one get so far.
    """

    def __init__(
        self,
        create: Callable[[TaskId, frozenset[TopicPartition]], StreamTask],
        restoration: Restoration,
        consumer: Consumer,
        offsets: CommittedOffsets,
        clock: Clock,
        *,
        timeout_ms: int,
        max_buffered: int,
        offset_sums: OffsetSums,
        may_start: Callable[[], bool] = lambda: True,
        calls_ms: int | None = None,
    ) -> None:
        self._offset_sums = offset_sums
        self._create = create
        self._restoration = restoration
        self._offsets = offsets
        self._clock = clock
        self._timeout_ms = timeout_ms
        resetting = Retry("resetting offsets that are gone", clock, timeout_ms)
        self._inputs = Inputs(consumer, offsets, resetting, max_buffered=max_buffered)
        self._expired = ExpiredOffsets(offsets.have_records)
        self._may_start = may_start
        self._tasks: dict[TaskId, StreamTask] = {}
        self._opening: dict[TaskId, _Opening] = {}
        #: Active tasks of which it is not known yet where their partitions ended when they came.
        self._unexpected: set[TaskId] = set()
        self._expecting = Retry("asking where partitions end", clock, timeout_ms)
        self._starting = Retry("starting restored tasks", clock, timeout_ms)
        self._agenda = Agenda()
        self._calls_ms = calls_ms
        #: The task whose punctuators were looked at last.
        self._called = TaskId(-1, -1)
        self._revivals: Counter[TaskId] = Counter()
        #: How often the state of a task was wiped and rebuilt.
        self.rebuilt_total = 0
        #: How often tasks came, went, or got further.
        self.changes = 0
        # Kept, because the loop asks many times a round: 0.5 us a task for each sorting.
        self._sorted: Sequence[StreamTask] = ()
        self._running: Sequence[StreamTask] = ()
        self._standby: frozenset[TaskId] = frozenset()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def all(self) -> Sequence[StreamTask]:
        """All tasks, by id."""
        return self._sorted

    @property
    def running(self) -> Sequence[StreamTask]:
        """The tasks that process, by id."""
        return self._running

    @property
    def all_running(self) -> bool:
        """Whether no active task waits for its directory or its state."""
        return len(self._running) == len(self._tasks) - len(self._standby)

    @property
    def standby(self) -> frozenset[TaskId]:
        """The tasks that are kept as copies only."""
        return self._standby

    @property
    def is_restoring(self) -> bool:
        """Whether records are to be expected from a changelog."""
        return self._restoration.is_reading

    def assign(
        self,
        wanted: Mapping[TaskId, frozenset[TopicPartition]],
        standby: Mapping[TaskId, frozenset[TopicPartition]] | None = None,
    ) -> None:
        """Own exactly these tasks: close the others, create what is new.

        What is closed should hold nothing uncommitted (`outdated`): else that work is repeated. A
        task that changes sides, or comes back after it was suspended, keeps its stores open.

        Args:
            wanted: the active tasks, with their input partitions.
            standby: the standby tasks, with the input partitions that they do not read.
        """
        copies = standby or {}
        for task in self.outdated(wanted, copies):
            task_id = task.task_id
            if copies.get(task_id) == task.partitions and not task.commit_needed:
                self.suspend([task_id])
            else:
                self.close([task_id], clean=not task.commit_needed)
        for task_id in sorted(wanted):
            self._make_active(task_id, wanted[task_id])
        for task_id in sorted(copies):
            self._make_standby(task_id, copies[task_id])
        self._sort()

    def outdated(
        self,
        wanted: Mapping[TaskId, frozenset[TopicPartition]],
        standby: Mapping[TaskId, frozenset[TopicPartition]] | None = None,
    ) -> list[StreamTask]:
        """The tasks that `assign` would stop: not wanted any more, not as what they are now, or
        with other partitions."""
        return [task for task in self.all if not self._fits(task, wanted, standby or {})]

    def _fits(
        self,
        task: StreamTask,
        wanted: Mapping[TaskId, frozenset[TopicPartition]],
        standby: Mapping[TaskId, frozenset[TopicPartition]],
    ) -> bool:
        """Whether a task becomes what is wanted from the state that it is in."""
        if wanted.get(task.task_id) == task.partitions:
            return True
        active = (TaskState.RESTORING, TaskState.RUNNING)
        return standby.get(task.task_id) == task.partitions and task.state not in active

    def _make_active(self, task_id: TaskId, partitions: frozenset[TopicPartition]) -> None:
        """Let a task process, once its stores are up to date."""
        task = self._tasks.get(task_id)
        if task is None:
            self._add(task_id, partitions, standby=False)
        elif self._is_standby(task) or task.state is TaskState.SUSPENDED:
            logger.info("task %s becomes active", task_id)
            if task.state is TaskState.CREATED:
                self._opening[task_id] = _Opening(self._opening[task_id].retry, standby=False)
            else:
                task.activate()
                self._restore(task)
        else:
            return
        self._unexpected.add(task_id)

    def _make_standby(self, task_id: TaskId, partitions: frozenset[TopicPartition]) -> None:
        """Let a task follow its changelogs."""
        task = self._tasks.get(task_id)
        if task is None:
            self._add(task_id, partitions, standby=True)
        elif task.state is TaskState.CREATED:
            self._opening[task_id] = _Opening(self._opening[task_id].retry, standby=True)
        elif task.state is not TaskState.STANDBY:
            logger.info("task %s becomes a standby", task_id)
            task.stand_by()
            self._restore(task)
        self._unexpected.discard(task_id)

    def _is_standby(self, task: StreamTask) -> bool:
        opening = self._opening.get(task.task_id)
        return task.state is TaskState.STANDBY if opening is None else opening.standby

    def owners_of(self, partitions: Collection[TopicPartition]) -> list[StreamTask]:
        """The active tasks that read any of these partitions."""
        return [
            task
            for task in self.all
            if not self._is_standby(task) and not task.partitions.isdisjoint(partitions)
        ]

    def suspend(self, task_ids: Iterable[TaskId]) -> None:
        """Stop tasks that are committed, but keep their stores open: the assignment that follows
        may want them as standbys. Those that have nothing to keep are closed.

        Raises:
            StreamsError: a task could not be stopped in an orderly way.
        """
        for task_id in list(task_ids):
            task = self._tasks[task_id]
            if task.state is TaskState.SUSPENDED:
                continue
            if task.state is TaskState.CREATED or not task.stores.restorers():
                self.close([task_id], clean=True)
                continue
            self._restoration.remove(task_id)
            self._unexpected.discard(task_id)
            self._inputs.stop(task)
            try:
                with failures_of(task):
                    task.suspend()
            except StreamsError:
                self.close([task_id], clean=False)
                raise
            if not task.stores.can_be_recycled:
                self.close([task_id], clean=False)
        self._sort()

    def close(self, task_ids: Iterable[TaskId], *, clean: bool) -> None:
        """Give tasks up and stop fetching for them.

        Every task is tried; the first error is raised at the end, if they are to close clean.
        """
        failure: Exception | None = None
        for task_id in list(task_ids):
            failure = self._close(self._tasks.pop(task_id), clean=clean) or failure
        self._sort()
        if failure is not None and clean:
            raise failure

    def _close(self, task: StreamTask, *, clean: bool) -> StreamsError | None:
        """Close a task and forget what is known of it; what went wrong."""
        task_id = task.task_id
        self._opening.pop(task_id, None)
        self._unexpected.discard(task_id)
        try:
            with ExitStack() as closing:
                # In reverse order. A failure must not leave the task open and its directory locked.
                closing.callback(task.close, clean=clean)
                closing.callback(self._inputs.stop, task)
                closing.callback(self._restoration.remove, task_id)
        except Exception as error:
            logger.warning("task %s did not close: %s", task_id, error)
            return task.fail(error)
        return None

    def close_active(self, *, clean: bool) -> None:
        """Give all tasks up but the standbys."""
        active = [task.task_id for task in self.all if not self._is_standby(task)]
        self.close(active, clean=clean)

    def close_all(self, *, clean: bool) -> None:
        """Give all tasks up."""
        self.close([task.task_id for task in self.all], clean=clean)

    def revive(self, error: TaskCorruptedError) -> None:
        """Rebuild tasks whose state cannot be trusted: let them begin again, without it.

        It is not used either if they are given up before they are opened again: that is noted
        beside it.

        Raises:
            StreamsError: a task had to be rebuilt several times in a row.
        """
        for task_id in sorted(error.task_ids & self._tasks.keys()):
            self._revivals[task_id] += 1
            self.rebuilt_total += 1
            if self._revivals[task_id] > _MOST_REVIVALS:
                raise StreamsError(
                    f"The state of task {task_id} was rebuilt {_MOST_REVIVALS} times and is "
                    f"corrupted again: {error.message} Check the disk of state_dir.",
                    task_id=task_id,
                ) from error
            task = self._tasks[task_id]
            standby, unexpected = self._is_standby(task), task_id in self._unexpected
            with suppress(LockError):
                # Else it was not open here: who tried to open it has noted that already.
                task.stores.distrust()
            self._close(task, clean=False)
            task.revive()
            if unexpected:
                self._unexpected.add(task_id)
            self._open_later(task, standby=standby)
        self._sort()

    def advance(self, timeout_ms: int, restore_ms: int = 0) -> None:
        """Bring tasks that do not run yet one step further.

        Args:
            timeout_ms: how long to wait for a record to be restored.
            restore_ms: for how long more of them are restored, as long as there are any.

        Raises:
            TaskCorruptedError: a task's state must be rebuilt (`revive`).
            LockError: another process has had a task's directory locked for the whole timeout.
            BrokerUnavailableError: the cluster did not answer for the whole timeout.
        """
        self._expect()
        for task_id in sorted(self._opening):
            if self._opening[task_id].retry.is_due:
                self._open(self._tasks[task_id], self._opening[task_id])
        self._restoration.step(timeout_ms, restore_ms)
        for task_id in self._standby & self._revivals.keys():
            if self._restoration.has_caught_up(task_id):
                del self._revivals[task_id]
        self._offset_sums.publish(self._sorted)
        if self._starting.is_due and self._may_start():
            self._start_restored()

    def look_anew(self) -> None:
        """After a time without polls: what came meanwhile is not to be overlooked, or records of
        one partition would be taken before older ones of another."""
        self._inputs.look_anew()

    def add_records(self, records: Mapping[TopicPartition, RawRecords]) -> None:
        """Hand fetched records to the tasks that read them.

        Raises:
            StreamsError: as `reset_position`.
        """
        self._inputs.add_records(records)

    @property
    def input_room(self) -> int:
        """How many more records may wait, in the partition where it is most, before that is
        paused."""
        return self._inputs.room

    def pass_over_ends(self) -> None:
        """Before a commit: let tasks know where they are in partitions that they have read."""
        self._inputs.pass_over_ends()

    def reset_position(self, error: OffsetOutOfRangeError) -> None:
        """Go on elsewhere where partitions do not have the offset to read from, as soon as the
        brokers tell where that is.

        Raises:
            OffsetOutOfRangeError: no reset policy was chosen for some of them.
            BrokerUnavailableError: the cluster did not answer for the whole timeout.
        """
        self._inputs.reset_position(error.offsets)

    def processable(self, max_idle_ms: int) -> list[Work]:
        """The tasks that could take a batch now, by id."""
        return self._inputs.processable(max_idle_ms)

    def step(self, task: Work, limit: int) -> int:
        """Let a task take a batch of at most `limit` records; how many records it was.

        Raises:
            StreamsError: the task failed; it carries the task's id.
        """
        with failures_of(task):
            count = task.step(limit)
        self._inputs.were_taken(task)
        return count

    def punctuate(self) -> bool:
        """Make the calls that processors wait for by now; whether there were any.

        Once the time for it is over, the other tasks have their turn first at the next call.
        Cheap while none is due. By stream time, calls are due after a batch, which makes them; here
        it is for what is scheduled elsewhere.

        Raises:
            StreamsError: a task failed; it carries the task's id.
        """
        agenda = self._agenda
        if agenda.due_ms is None or self._clock.now_ms() < agenda.due_ms:
            return False
        agenda.due_ms = None
        called, last = False, self._called
        deadline = Deadline(self._clock, self._calls_ms)
        for task in sorted(self._running, key=lambda each: (each.task_id <= last, each.task_id)):
            if called and deadline.passed:
                agenda.by(AT_ONCE)
                break
            self._called = task.task_id
            if self._punctuated(task):
                called = True
                self._inputs.was_called(task)
            agenda.by(task.next_wall_clock_ms)
        return called

    def next_wall_clock_ms(self) -> int | None:
        """By when to call `punctuate`; None if nothing waits for it."""
        return self._agenda.due_ms

    def _punctuated(self, task: StreamTask) -> bool:
        try:
            with failures_of(task):
                by_stream = task.punctuate_stream_time()
                return task.punctuate_wall_clock_time() or by_stream
        except StreamsError:
            # The other tasks have not been asked.
            self._agenda.by(AT_ONCE)
            raise

    def _add(
        self, task_id: TaskId, partitions: frozenset[TopicPartition], *, standby: bool
    ) -> None:
        task = self._tasks[task_id] = self._create(task_id, partitions)
        task.note_in(self._agenda)
        self._open_later(task, standby=standby)

    def _open_later(self, task: StreamTask, *, standby: bool) -> None:
        what = f"opening the state of task {task.task_id}"
        retry = LockRetry(what, self._clock, self._timeout_ms)
        self._opening[task.task_id] = _Opening(retry, standby)

    def _expect(self) -> None:
        """Note where the partitions of new active tasks end: once, however long a task waits for
        its directory and its state, and however often these are rebuilt."""
        if not self._unexpected or not self._expecting.is_due:
            return
        tasks = [self._tasks[task_id] for task_id in sorted(self._unexpected)]
        try:
            self._offsets.expect(sorted(place for task in tasks for place in task.partitions))
        except (BrokerUnavailableError, UnknownTopicError) as error:
            self._expecting.failed(error)
            return
        self._expecting.worked()
        self._unexpected.clear()

    def _open(self, task: StreamTask, opening: _Opening) -> None:
        try:
            with failures_of(task):
                task.open_stores(standby=opening.standby)
        except LockError as error:
            opening.retry.failed(error)
            return
        del self._opening[task.task_id]
        self._restore(task)
        self.changes += 1

    def _restore(self, task: StreamTask) -> None:
        standby = task.state is TaskState.STANDBY
        self._restoration.add(task.task_id, task.stores.restorers(), standby=standby)

    def _start_restored(self) -> None:
        restored = [
            task
            for task in self.all
            if task.state is TaskState.RESTORING
            and task.task_id not in self._unexpected
            and not self._restoration.unfinished(task.task_id)
        ]
        if not restored:
            return
        partitions = sorted(place for task in restored for place in task.partitions)
        try:
            committed = self._offsets.committed(partitions)
            topic_ids = self._offsets.topic_ids(partitions)
            starts = self._offsets.starts(partitions, committed, topic_ids)
            self._inputs.fetch(restored, starts, epochs_of(committed))
        except (BrokerUnavailableError, UnknownTopicError) as error:
            self._starting.failed(error)
            return
        self._starting.worked()
        for task in restored:
            self._expired.check(task, committed, starts)
            with failures_of(task):
                task.start(committed, topic_ids)
            del self._revivals[task.task_id]
        self._sort()

    def _sort(self) -> None:
        self.changes += 1
        self._sorted = [self._tasks[task_id] for task_id in sorted(self._tasks)]
        self._running = [task for task in self._sorted if task.state is TaskState.RUNNING]
        self._standby = frozenset(task.task_id for task in self._sorted if self._is_standby(task))
        self._offset_sums.publish(self._sorted)

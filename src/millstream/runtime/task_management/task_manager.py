"""Manages the tasks of one stream thread."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from millstream.assignment.wire_format import LATEST_OFFSET
from millstream.clock import Clock, Deadline
from millstream.errors import (
    BrokerUnavailableError,
    LockError,
    StreamsError,
    TaskCorruptedError,
    UnknownTopicError,
)
from millstream.kafka.protocols import Consumer
from millstream.record import TaskId, TopicPartition
from millstream.runtime.retry import LockRetry, RetrySchedule
from millstream.runtime.states.thread_states import TaskState
from millstream.runtime.task.punctuations import IMMEDIATELY, EarliestPunctuation
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task_management.expired_offsets import ExpiredOffsetsCheck
from millstream.runtime.task_management.restoration import StateRestorer
from millstream.runtime.task_management.start_offsets import CommittedOffsets, epochs_of
from millstream.runtime.task_management.task_inputs import TaskInputs
from millstream.state.directories.state_directory import StateDirectory

logger = logging.getLogger(__name__)

#: The input partitions of tasks.
TaskPartitions = Mapping[TaskId, frozenset[TopicPartition]]

#: How often in a row a task's state is rebuilt before its disk is considered broken.
_MAX_REVIVALS = 3


@dataclass(slots=True)
class _PendingOpen:
    """A task that is waiting for its directory, and its intended role."""

    retry: LockRetry
    standby: bool


class TaskManager:
    """The tasks of a stream thread.

    A task passes through these steps: created → stores opened (its directory locked) → restored →
    running. Its input partitions are only fetched while it runs. A standby follows its changelogs
    until it becomes active; then it only restores the rest. A task may change its role any number
    of times: it stays the same task with open stores.

    Args:
        may_start: returns whether restored tasks may start processing.
        calls_ms: how long `punctuate` calls punctuators before it returns; None for no limit.
    """

    def __init__(
        self,
        create: Callable[[TaskId, frozenset[TopicPartition]], StreamTask],
        restoration: StateRestorer,
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
        resetting = RetrySchedule("resetting offsets that are out of range", clock, timeout_ms)
        self.inputs = TaskInputs(consumer, offsets, resetting, max_buffered=max_buffered)
        self._expired = ExpiredOffsetsCheck(offsets.have_records)
        self._may_start = may_start
        self._tasks: dict[TaskId, StreamTask] = {}
        self._pending_opens: dict[TaskId, _PendingOpen] = {}
        #: Active tasks whose end offsets at the time of the assignment are not recorded yet.
        self._missing_end_offsets: set[TaskId] = set()
        self._end_offset_retry = RetrySchedule("fetching end offsets", clock, timeout_ms)
        self._start_retry = RetrySchedule("starting restored tasks", clock, timeout_ms)
        self._earliest_punctuation = EarliestPunctuation()
        self._punctuation_ms = calls_ms
        #: The task whose punctuators were called last.
        self._last_punctuated = TaskId(-1, -1)
        self._revivals: Counter[TaskId] = Counter()
        #: The number of times that the state of a task was rebuilt.
        self.rebuilt_total = 0
        #: The number of changes to the tasks or their states.
        self.changes = 0
        # The following are cached and ordered by id, because the loop reads them many times per
        # round, and sorting takes 0.5 us per task.
        self.all: Sequence[StreamTask] = ()
        self.running: Sequence[StreamTask] = ()
        self.standby: frozenset[TaskId] = frozenset()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def all_running(self) -> bool:
        """Whether no active task is waiting for its directory or its state."""
        return len(self.running) == len(self._tasks) - len(self.standby)

    @property
    def is_restoring(self) -> bool:
        return self._restoration.is_reading

    def assign(self, wanted: TaskPartitions, standby: TaskPartitions | None = None) -> None:
        """Own exactly these tasks: close all others and create new ones.

        Tasks to be closed (`outdated`) should be committed first; otherwise, their work is
        repeated. A task that changes its role, or returns after a suspension, keeps its stores
        open.
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
        self, wanted: TaskPartitions, standby: TaskPartitions | None = None
    ) -> list[StreamTask]:
        """Return the tasks that `assign` would stop, or restart with other partitions."""
        copies, active = standby or {}, (TaskState.RESTORING, TaskState.RUNNING)
        return [
            task
            for task in self.all
            if wanted.get(task.task_id) != task.partitions
            if copies.get(task.task_id) != task.partitions or task.state in active
        ]

    def _make_active(self, task_id: TaskId, partitions: frozenset[TopicPartition]) -> None:
        """Activate a task, which starts to process once its stores are restored."""
        task = self._tasks.get(task_id)
        if task is None:
            self._add(task_id, partitions, standby=False)
        elif self._is_standby(task) or task.state is TaskState.SUSPENDED:
            logger.info("task %s becomes active", task_id)
            if task.state is TaskState.CREATED:
                self._pending_opens[task_id].standby = False
            else:
                task.activate()
                self._restore(task)
        else:
            return
        self._missing_end_offsets.add(task_id)

    def _make_standby(self, task_id: TaskId, partitions: frozenset[TopicPartition]) -> None:
        task = self._tasks.get(task_id)
        if task is None:
            self._add(task_id, partitions, standby=True)
        elif task.state is TaskState.CREATED:
            self._pending_opens[task_id].standby = True
        elif task.state is not TaskState.STANDBY:
            logger.info("task %s becomes a standby", task_id)
            task.convert_to_standby()
            self._restore(task)
        self._missing_end_offsets.discard(task_id)

    def _is_standby(self, task: StreamTask) -> bool:
        opening = self._pending_opens.get(task.task_id)
        return task.state is TaskState.STANDBY if opening is None else opening.standby

    def tasks_reading(self, partitions: Collection[TopicPartition]) -> list[StreamTask]:
        return [
            task
            for task in self.all
            if not self._is_standby(task) and not task.partitions.isdisjoint(partitions)
        ]

    def suspend(self, task_ids: Iterable[TaskId]) -> None:
        """Suspend committed tasks, which the next assignment may turn into standbys.

        Tasks without state are closed. Raises StreamsError if a task fails to suspend.
        """
        for task_id in list(task_ids):
            task = self._tasks[task_id]
            if task.state is TaskState.SUSPENDED:
                continue
            if task.state is TaskState.CREATED or not task.stores.restorers():
                self.close([task_id], clean=True)
                continue
            self._restoration.remove(task_id)
            self._missing_end_offsets.discard(task_id)
            self.inputs.stop(task)
            try:
                with task.located_errors():
                    task.suspend()
            except StreamsError:
                self.close([task_id], clean=False)
                raise
            if not task.stores.can_recycle:
                self.close([task_id], clean=False)
        self._sort()

    def close(self, task_ids: Iterable[TaskId], *, clean: bool) -> None:
        """Close tasks and stop fetching their records.

        All tasks are closed even if one fails; after that, a clean close raises the first error.
        """
        failure: Exception | None = None
        for task_id in list(task_ids):
            failure = self._close(self._tasks.pop(task_id), clean=clean) or failure
        self._sort()
        if failure is not None and clean:
            raise failure

    def _close(self, task: StreamTask, *, clean: bool) -> StreamsError | None:
        """Close a task and remove all references to it; return the error, if any."""
        task_id = task.task_id
        self._pending_opens.pop(task_id, None)
        self._missing_end_offsets.discard(task_id)
        try:
            with ExitStack() as closing:
                # The callbacks run in reverse order. A failure must not leave the task open and its
                # directory locked.
                closing.callback(task.close, clean=clean)
                closing.callback(self.inputs.stop, task)
                closing.callback(self._restoration.remove, task_id)
        except Exception as error:
            logger.warning("task %s did not close: %s", task_id, error)
            return task.with_location(error)
        return None

    def close_active(self, *, clean: bool) -> None:
        active = [task.task_id for task in self.all if not self._is_standby(task)]
        self.close(active, clean=clean)

    def close_all(self, *, clean: bool) -> None:
        self.close([task.task_id for task in self.all], clean=clean)

    def revive(self, error: TaskCorruptedError) -> None:
        """Rebuild corrupted tasks: delete their state and restore it.

        The state is marked on disk as corrupted, so that it is not used if the task is released
        before it is reopened. Raises StreamsError for a task that was already rebuilt several times
        in a row.
        """
        for task_id in sorted(error.task_ids & self._tasks.keys()):
            self._revivals[task_id] += 1
            self.rebuilt_total += 1
            if self._revivals[task_id] > _MAX_REVIVALS:
                raise StreamsError(
                    f"The state of task {task_id} was rebuilt {_MAX_REVIVALS} times and is "
                    f"corrupted again: {error.message} Check the disk of state_dir.",
                    task_id=task_id,
                ) from error
            task = self._tasks[task_id]
            standby = self._is_standby(task)
            lacks_end_offsets = task_id in self._missing_end_offsets
            with suppress(LockError):
                # A task that is not open was already marked as corrupted when opening it failed.
                task.stores.mark_corrupted()
            self._close(task, clean=False)
            task.revive()
            if lacks_end_offsets:
                self._missing_end_offsets.add(task_id)
            self._open_later(task, standby=standby)
        self._sort()

    def advance(self, timeout_ms: int, restore_ms: int = 0) -> None:
        """Advance tasks that are not running yet.

        Args:
            timeout_ms: how long to wait for a record to restore.
            restore_ms: how long to restore further records, if there are any.

        Raises:
            TaskCorruptedError: a task's state must be rebuilt (`revive`).
            LockError: another process has locked a task's directory for the whole timeout.
            BrokerUnavailableError: the cluster did not respond for the whole timeout.
        """
        self._fetch_end_offsets()
        for task_id in sorted(self._pending_opens):
            if self._pending_opens[task_id].retry.is_due:
                self._open(self._tasks[task_id], self._pending_opens[task_id])
        self._restoration.step(timeout_ms, restore_ms)
        for task_id in self.standby & self._revivals.keys():
            if self._restoration.has_caught_up(task_id):
                del self._revivals[task_id]
        self._offset_sums.publish(self.all)
        if self._start_retry.is_due and self._may_start():
            self._start_restored()

    def step(self, task: StreamTask, limit: int) -> int:
        """Process at most `limit` records of a task; return the number of records.

        Like `punctuate`, raises StreamsError with the task's id if the task fails.
        """
        with task.located_errors():
            count = task.step(limit)
        self.inputs.on_records_taken(task)
        return count

    def punctuate(self) -> bool:
        """Call the punctuators that are due; return whether there were any.

        This is cheap if none is due. If the time limit is exceeded, the remaining tasks come first
        in the next call. Stream-time punctuators that become due in a batch are called after that
        batch; this method calls the others.
        """
        earliest = self._earliest_punctuation
        if earliest.due_ms is None or self._clock.now_ms() < earliest.due_ms:
            return False
        earliest.due_ms = None
        called, last = False, self._last_punctuated
        deadline = Deadline(self._clock, self._punctuation_ms)
        for task in sorted(self.running, key=lambda each: (each.task_id <= last, each.task_id)):
            if called and deadline.passed:
                earliest.include(IMMEDIATELY)
                break
            self._last_punctuated = task.task_id
            if self._punctuate(task):
                called = True
                self.inputs.on_punctuated(task)
            earliest.include(task.next_wall_clock_ms)
        return called

    def next_wall_clock_ms(self) -> int | None:
        """Return when `punctuate` must be called; None if nothing is scheduled."""
        return self._earliest_punctuation.due_ms

    def _punctuate(self, task: StreamTask) -> bool:
        try:
            with task.located_errors():
                by_stream = task.punctuate_stream_time()
                return task.punctuate_wall_clock_time() or by_stream
        except StreamsError:
            # The punctuators of the other tasks were not called yet.
            self._earliest_punctuation.include(IMMEDIATELY)
            raise

    def _add(
        self, task_id: TaskId, partitions: frozenset[TopicPartition], *, standby: bool
    ) -> None:
        task = self._tasks[task_id] = self._create(task_id, partitions)
        task.report_to(self._earliest_punctuation)
        self._open_later(task, standby=standby)

    def _open_later(self, task: StreamTask, *, standby: bool) -> None:
        what = f"opening the state of task {task.task_id}"
        retry = LockRetry(what, self._clock, self._timeout_ms)
        self._pending_opens[task.task_id] = _PendingOpen(retry, standby)

    def _fetch_end_offsets(self) -> None:
        """Record the end offsets of new active tasks.

        This happens once per assignment, however long a task waits for its directory and its state,
        and however often the state is rebuilt.
        """
        if not self._missing_end_offsets or not self._end_offset_retry.is_due:
            return
        tasks = [self._tasks[task_id] for task_id in sorted(self._missing_end_offsets)]
        try:
            self._offsets.note_end_offsets(
                sorted(partition for task in tasks for partition in task.partitions)
            )
        except (BrokerUnavailableError, UnknownTopicError) as error:
            self._end_offset_retry.failed(error)
            return
        self._end_offset_retry.succeeded()
        self._missing_end_offsets.clear()

    def _open(self, task: StreamTask, opening: _PendingOpen) -> None:
        try:
            with task.located_errors():
                task.open_stores(standby=opening.standby)
        except LockError as error:
            opening.retry.failed(error)
            return
        del self._pending_opens[task.task_id]
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
            and task.task_id not in self._missing_end_offsets
            and not self._restoration.has_unfinished(task.task_id)
        ]
        if not restored:
            return
        partitions = sorted(partition for task in restored for partition in task.partitions)
        try:
            committed = self._offsets.committed(partitions)
            topic_ids = self._offsets.topic_ids(partitions)
            starts = self._offsets.starts(partitions, committed, topic_ids)
            self.inputs.fetch(restored, starts, epochs_of(committed))
        except (BrokerUnavailableError, UnknownTopicError) as error:
            self._start_retry.failed(error)
            return
        self._start_retry.succeeded()
        for task in restored:
            self._expired.check(task, committed, starts)
            with task.located_errors():
                task.start(committed, topic_ids)
            del self._revivals[task.task_id]
        self._sort()

    def _sort(self) -> None:
        self.changes += 1
        self.all = [self._tasks[task_id] for task_id in sorted(self._tasks)]
        self.running = [task for task in self.all if task.state is TaskState.RUNNING]
        self.standby = frozenset(task.task_id for task in self.all if self._is_standby(task))
        self._offset_sums.publish(self.all)


class OffsetSums:
    """The sum of each task's changelog offsets, for the group's leader (KIP-441).

    The stream thread publishes the sums, and the group member's thread reads them when it joins.
    Unused state on disk counts as well. If another thread has the task open, that thread reports a
    more recent sum, and the leader uses the larger one.
    """

    def __init__(self, directory: StateDirectory) -> None:
        self._directory = directory
        self._sums: Mapping[TaskId, int] = {}

    def publish(self, tasks: Iterable[StreamTask]) -> None:
        sums: dict[TaskId, int] = {}
        for task in tasks:
            offsets = task.stores.changelog_offsets()
            if not offsets:
                continue
            # The offsets are those of the last records; the number of records is one more.
            count = sum(reached + 1 for reached in offsets.values() if reached is not None)
            sums[task.task_id] = LATEST_OFFSET if task.state is TaskState.RUNNING else count
        # A single assignment, so that a concurrent reader gets either the old or the new sums.
        self._sums = sums

    def __call__(self) -> Mapping[TaskId, int]:
        """Return the published sums, and those of other tasks on disk."""
        return {**self._directory.offset_sums(), **self._sums}

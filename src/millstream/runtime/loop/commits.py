"""Commits the tasks of a thread: the results of records, and their offsets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from millstream.clock import Clock, Deadline
from millstream.errors import BrokerUnavailableError, RebalanceInProgressError, StreamsError
from millstream.kafka.membership.member_events import CommitOffset
from millstream.kafka.protocols import CommitResponse, Producer
from millstream.metrics.sensors import Sensor
from millstream.record import TaskId, TopicPartition
from millstream.runtime.states.thread_states import TaskState
from millstream.runtime.task.stream_task import StreamTask

logger = logging.getLogger(__name__)

#: The interval of progress reports to the group while records in flight are drained.
_PROGRESS_INTERVAL_MS: Final = 1_000
#: The time slice of each task if several tasks are drained in turn.
_DRAIN_SLICE_MS: Final = 20
#: The time slice of a flush between checks for queries, and the maximum number of slices.
_FLUSH_SLICE_MS: Final = 2
_MAX_FLUSH_SLICES: Final = 500


class ProcessingGuarantee(Protocol):
    """The part of a processing guarantee that involves the cluster.

    `AtLeastOnce` waits for the acknowledgment of records and then commits offsets; `ExactlyOnce`
    commits both in a transaction.
    """

    @property
    def all_or_nothing(self) -> bool:
        """Whether sent records can only be discarded for all tasks of a thread together."""

    @property
    def in_transaction(self) -> bool:
        """Whether records were sent that only a commit makes visible."""

    def is_ready(self) -> bool:
        """Perform the required initialization; return whether tasks may start.

        Raises BrokerUnavailableError if the cluster has not responded for too long.
        """

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], overall: Deadline) -> None:
        """Make all sent records durable, then the offsets.

        Args:
            overall: no attempt starts after this deadline.

        Raises:
            RebalanceInProgressError: the group accepts no commits now; retry after the rebalance.
            TaskMigratedError: the sent records are lost; the work must be discarded and repeated.
            ProductionError: an output could not be written.
            BrokerUnavailableError: no response in time.
        """

    def publish_async(
        self, offsets: Mapping[TopicPartition, CommitOffset], overall: Deadline
    ) -> CommitResponse | None:
        """Publish like `publish`, but let tasks continue before the group responds.

        The stores of the tasks are not written to disk before `await_commit`.

        Returns the response to the commit for `await_commit`; None if the commit is complete.
        """

    def await_commit(
        self,
        offsets: Mapping[TopicPartition, CommitOffset],
        response: CommitResponse,
        overall: Deadline,
    ) -> None:
        """Wait for the response of `publish_async`; commit again after a timeout.

        Raises the same errors as `publish`.
        """

    def await_delivery(self, overall: Deadline) -> None:
        """Wait until all sent records are in their topics, without a commit."""

    def discard_uncommitted(self) -> None:
        """Discard the records sent since the last commit."""


class DrainTimeouts(NamedTuple):
    """The timeouts for draining tasks; all in milliseconds."""

    #: The timeout for all taken records, including those whose calls have not started.
    drain_ms: int
    #: The additional timeout for running calls, during which no more calls start; None for no
    #: limit.
    running_ms: int | None


#: The timeouts of an application without subscriptions. Five seconds is a fraction of the group's
#: rebalance timeout, and at most half of the time that a worker gets when its machine shuts down.
DEFAULT_TIMEOUTS: Final = DrainTimeouts(5_000, 0)


class DrainSettings(Protocol):
    """The settings of a subscription that determine the drain timeouts."""

    @property
    def group_rebalance_timeout_ms(self) -> int: ...
    @property
    def processing_shutdown_timeout_ms(self) -> int: ...
    @property
    def processor_termination_timeout_ms(self) -> int | None: ...


class TasksInFlightError(Exception):
    """A commit must wait for records in flight.

    Until then, the tasks take no records.
    """

    def __init__(self, tasks: Collection[StreamTask]) -> None:
        names = ", ".join(str(task.task_id) for task in tasks)
        super().__init__(f"tasks {names} have records in flight")
        self.tasks = tasks


@dataclass(frozen=True, slots=True)
class _PendingCommit:
    """A commit with a pending response from the group."""

    response: CommitResponse
    tasks: Sequence[StreamTask]
    offsets: Mapping[TopicPartition, CommitOffset]
    #: The acknowledged changelog offsets that belong to the commit.
    acked: Mapping[TopicPartition, int]


class TaskCommitter:
    """Commits all tasks of a thread together.

    The order is: caches are flushed → outputs, changelogs and offsets are published according to
    the processing guarantee → stores write their data with the corresponding changelog offset. A
    crash between any two steps loses nothing.

    The stores wait until the group has accepted the offsets: a member that was removed from the
    group must not keep state with a changelog offset that includes records of another member.

    Args:
        on_wait: called repeatedly while records in flight are drained.
        max_wait_ms: the maximum time for draining tasks that move to other members; None for no
            limit. The group waits only a limited time for a member that releases tasks.
        latency: records the duration of commits, in milliseconds.
    """

    def __init__(
        self,
        guarantee: ProcessingGuarantee,
        producer: Producer,
        clock: Clock,
        on_wait: Callable[[], None] = lambda: None,
        max_wait_ms: int | None = None,
        latency: Sensor | None = None,
    ) -> None:
        self._guarantee = guarantee
        self._producer = producer
        self._clock = clock
        self._on_wait = on_wait
        self._max_drain_ms = max_wait_ms
        self._latency = latency
        self._pending: _PendingCommit | None = None
        #: The timeouts for draining tasks that move to other members, and for draining all tasks
        #: when the thread closes.
        self.revocation_timeouts = DEFAULT_TIMEOUTS
        self.closing_timeouts = DEFAULT_TIMEOUTS
        #: The number of successful commits.
        self.total = 0

    @property
    def all_or_nothing(self) -> bool:
        return self._guarantee.all_or_nothing

    @property
    def has_pending_work(self) -> bool:
        """Whether a commit is pending or would make sent records visible."""
        return self._guarantee.in_transaction or self._pending is not None

    def is_ready(self) -> bool:
        return self._guarantee.is_ready()

    def set_drain_timeouts(self, settings: DrainSettings) -> None:
        running_ms = settings.processor_termination_timeout_ms
        self.revocation_timeouts = DrainTimeouts(settings.group_rebalance_timeout_ms, running_ms)
        self.closing_timeouts = DrainTimeouts(settings.processing_shutdown_timeout_ms, running_ms)

    def drain(self, tasks: Collection[StreamTask]) -> None:
        """Wait until tasks to be released have finished all taken records.

        Call this method before the last commit of the tasks on this thread. After a timeout, the
        tasks start no more calls, and their next owners process unfinished records again. Like the
        other methods that drain tasks, raises StreamsError if user code fails.
        """
        self._drain(tasks, self.revocation_timeouts, self._max_drain_ms)

    def drain_to_close(self, tasks: Collection[StreamTask], within_ms: int | None) -> bool:
        """Drain all tasks when the thread closes; return whether everything has finished.

        Half of `within_ms`, the total time for closing, is reserved for the commit.
        """
        return self._drain(
            tasks, self.closing_timeouts, None if within_ms is None else within_ms // 2
        )

    def wait_for_in_flight(self, tasks: Collection[StreamTask]) -> None:
        """Wait for the records in flight of remaining tasks, with the timeout of `drain`."""
        self._wait_for_tasks(tasks, Deadline(self._clock, self.revocation_timeouts.drain_ms))

    def _drain(
        self, tasks: Collection[StreamTask], timeouts: DrainTimeouts, max_ms: int | None
    ) -> bool:
        started_ms = self._clock.monotonic_ms()
        overall = Deadline(self._clock, max_ms)
        left = self._wait_for_tasks(
            tasks, Deadline(self._clock, overall.remaining_ms(timeouts.drain_ms)), overall
        )
        for task in left:
            task.halt()
        if left and timeouts.running_ms != 0:
            left = self._wait_for_tasks(left, Deadline(self._clock, timeouts.running_ms), overall)
        for task in left:
            logger.warning(
                "task %s has unfinished records after %d ms: the next owner processes them again",
                task.task_id,
                self._clock.monotonic_ms() - started_ms,
            )
        return not left

    def _wait_for_tasks(
        self, tasks: Collection[StreamTask], deadline: Deadline, overall: Deadline | None = None
    ) -> list[StreamTask]:
        """Wait for tasks, which finish concurrently; return the tasks that timed out."""
        left, aborted = list(tasks), []
        max_ms = _PROGRESS_INTERVAL_MS
        while left:
            step_ms = deadline.remaining_ms(max_ms)
            if overall is not None:
                step_ms = overall.remaining_ms(step_ms)
            left = [task for task in left if not self._is_drained(task, step_ms)]
            if not step_ms:
                break
            aborted += [task for task in left if not task.can_finish]
            left = [task for task in left if task.can_finish]
            # The tasks take turns: a task only starts queued calls while it is drained.
            max_ms = _PROGRESS_INTERVAL_MS if len(left) < 2 else _DRAIN_SLICE_MS
            self._on_wait()
        return aborted + left

    def _is_drained(self, task: StreamTask, within_ms: int) -> bool:
        with task.located_errors():
            return task.drain(Deadline(self._clock, within_ms))

    def commit(
        self,
        tasks: Collection[StreamTask],
        within_ms: int | None = None,
        meanwhile: Callable[[], bool] = lambda: False,
        *,
        asynchronous: bool = False,
    ) -> dict[TopicPartition, CommitOffset]:
        """Commit the tasks that have uncommitted work; return the committed offsets.

        Args:
            within_ms: the total time including retries; None for no limit.
            meanwhile: called between steps; returns whether it should also be called during the
                flush, which takes most of the time.
            asynchronous: whether tasks continue before the group responds, if the guarantee allows
                that; then call `finish_pending` regularly. At a steady rate of records, waiting for
                the response is the longest part of a commit: 2 to 3 ms, during which no records
                would be taken.

        Raises:
            RebalanceInProgressError: the group accepts no commits now; retry after the rebalance.
            TaskMigratedError: this member is no longer in the group.
            ProductionError: an output could not be written.
            BrokerUnavailableError: no response in time.
            TasksInFlightError: retry when the records in flight have finished.
        """
        overall = Deadline(self._clock, within_ms)
        # The stores of the previous asynchronous commit are written first.
        self._await_pending(overall)
        began_ms = self._clock.monotonic_ms()
        to_commit, offsets = self._flush_tasks(tasks, overall, meanwhile)
        if not to_commit and not self.has_pending_work:
            return {}
        response = None
        if asynchronous:
            response = self._guarantee.publish_async(offsets, overall)
        else:
            self._guarantee.publish(offsets, overall)
        acked = self._producer.acked_offsets()
        for task in to_commit:
            task.on_commit_started()
        if response is None:
            self._write_stores(to_commit, offsets, acked, meanwhile)
        else:
            self._pending = _PendingCommit(response, to_commit, offsets, acked)
        if self._latency is not None:
            self._latency.record(self._clock.monotonic_ms() - began_ms)
        return offsets

    def finish_pending(self) -> None:
        """Finish the pending commit if the group's response has arrived.

        Raises the same errors as `commit`; after an error, the work must be committed again.
        """
        if self._pending is not None and self._pending.response.is_done:
            self._await_pending(Deadline(self._clock, None))

    def _await_pending(self, overall: Deadline, corrupted: Collection[TaskId] = ()) -> None:
        pending, self._pending = self._pending, None
        if pending is None:
            return
        # All other tasks of the commit have been closed since then, and perhaps reopened.
        running = [
            task
            for task in pending.tasks
            if task.state is TaskState.RUNNING and task.task_id not in corrupted
        ]
        try:
            self._guarantee.await_commit(pending.offsets, pending.response, overall)
        except StreamsError:
            for task in running:
                task.commit_failed()
            raise
        self._write_stores(running, pending.offsets, pending.acked)

    def _flush_tasks(
        self, tasks: Collection[StreamTask], overall: Deadline, meanwhile: Callable[[], bool]
    ) -> tuple[list[StreamTask], dict[TopicPartition, CommitOffset]]:
        """Flush the caches of tasks that need a commit; return the tasks and offsets."""
        to_commit = [task for task in tasks if task.commit_needed]
        if not to_commit and not self.has_pending_work:
            return [], {}
        # Check all tasks before flushing any cache: the check may take many attempts.
        unfinished = [task for task in to_commit if not self._may_commit(task)]
        if unfinished:
            raise TasksInFlightError(unfinished)
        for task in to_commit:
            with task.located_errors():
                task.prepare_commit()
            meanwhile()
        self._flush_in_slices(meanwhile)
        self._await_deliveries([task for task in to_commit if task.awaits_delivery], overall)
        # Determine the offsets before publishing: the outputs of a record that finishes later may
        # not be acknowledged yet.
        offsets: dict[TopicPartition, CommitOffset] = {}
        for task in to_commit:
            offsets.update(task.offsets_to_commit())
        if not offsets and self.has_pending_work:
            # Without offsets, for example after a punctuation, the group could not fence a zombie,
            # so committed offsets are committed again.
            for task in tasks:
                offsets.update(task.offsets_to_commit())
        return to_commit, offsets

    def _write_stores(
        self,
        tasks: Sequence[StreamTask],
        offsets: Mapping[TopicPartition, CommitOffset],
        acked: Mapping[TopicPartition, int],
        meanwhile: Callable[[], bool] = lambda: False,
    ) -> None:
        """Write the stores of all tasks after the offsets have been committed."""
        self.total += 1
        failed: StreamsError | None = None
        for task in tasks:
            meanwhile()
            try:
                task.post_commit(offsets, acked)
            except StreamsError as error:
                # The other tasks must still write their stores, because their offsets are already
                # committed.
                failed = failed or error
        if failed is not None:
            raise failed

    def _flush_in_slices(self, meanwhile: Callable[[], bool]) -> None:
        """Flush the producer in slices, and answer the queries that arrive in between.

        The required flush is in `ProcessingGuarantee.publish`, which also handles unavailable
        brokers.
        """
        for _ in range(_MAX_FLUSH_SLICES):
            if not meanwhile():
                return
            try:
                self._producer.flush(_FLUSH_SLICE_MS)
                return
            except BrokerUnavailableError:
                # Not everything is acknowledged yet.
                continue

    def _await_deliveries(self, tasks: Collection[StreamTask], overall: Deadline) -> None:
        if tasks:
            self._guarantee.await_delivery(overall)
        for task in tasks:
            with task.located_errors():
                task.on_delivered()

    def _may_commit(self, task: StreamTask) -> bool:
        with task.located_errors():
            return task.can_commit()

    def await_delivery(
        self, tasks: Collection[StreamTask], corrupted: Collection[TaskId] = ()
    ) -> None:
        """Wait until the sent records of tasks are in their topics.

        The timeouts are those of a commit. If a task has written changes to its changelog since its
        last commit, the end offset of a restoration must include those records. The pending commit
        is not written to the stores of corrupted tasks, whose state is deleted.

        Raises:
            ProductionError: an output could not be written.
            BrokerUnavailableError: no response in time.
        """
        try:
            self._await_pending(Deadline(self._clock, None), corrupted)
        except RebalanceInProgressError as error:
            logger.debug("commit postponed: %s", error)
        if any(task.commit_needed for task in tasks):
            self._guarantee.await_delivery(Deadline(self._clock, None))

    def discard_uncommitted(self) -> None:
        """Discard sent records, which the next owners send again.

        All tasks must be closed.
        """
        self._pending = None
        self._guarantee.discard_uncommitted()


def describe_offsets(offsets: Mapping[TopicPartition, CommitOffset]) -> dict[str, int]:
    """Return committed offsets by partition, for a log line."""
    return {str(partition): offset.offset for partition, offset in sorted(offsets.items())}

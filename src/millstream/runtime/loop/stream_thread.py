"""The stream thread: the loop that polls, processes and commits until it closes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millstream.clock import Clock, Waker
from millstream.errors import (
    OffsetOutOfRangeError,
    RebalanceInProgressError,
    StreamsError,
    TaskCorruptedError,
    TaskMigratedError,
    UnknownTopicError,
    as_streams_error,
)
from millstream.kafka.protocols import Consumer, Producer
from millstream.metrics.values import OWN_GROUP
from millstream.record import TaskId
from millstream.runtime.loop.commits import TaskCommitter, TasksInFlightError
from millstream.runtime.loop.purge import RepartitionPurge, StateCleanup
from millstream.runtime.loop.rebalances import GroupRejoin, RebalanceHandler
from millstream.runtime.loop.record_poller import RecordPoller
from millstream.runtime.loop.reports import ThreadReporter
from millstream.runtime.loop.thread_closer import ShutdownRequester, ThreadCloser
from millstream.runtime.loop.thread_meters import ThreadMeters, input_lags
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.loop.uncommitted_work import UncommittedWork
from millstream.runtime.queries.pending_queries import BatchLimiter, PendingQueries
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.runtime.stack_inspection import raised_by_user_code
from millstream.runtime.states.thread_states import THREAD_TRANSITIONS, StateMachine, ThreadState
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task.time_limits import TimeLimits
from millstream.runtime.task_management.global_store_updater import (
    GlobalStoreUpdater,
    NoGlobalStores,
)
from millstream.runtime.task_management.global_stores import GLOBAL_TASK
from millstream.runtime.task_management.start_offsets import TopicIncarnations
from millstream.runtime.task_management.task_manager import TaskManager
from millstream.runtime.thread_control import (
    ChangeProperties,
    Close,
    Control,
    GetMetrics,
    HostsChanged,
    MemoryShare,
    Pause,
    RequestShutdown,
    ResizeMemory,
    Resume,
    StateChanged,
    ThreadFailed,
    ThreadOutcome,
)
from millstream.subscriptions.thread_state import SubscriptionThreadState

logger = logging.getLogger(__name__)

#: How long running tasks wait for records while other tasks restore, and while queries arrive.
_RESTORE_WAIT_MS, _QUERY_WAIT_MS = 10, 2
#: The time per round for restoring and for processing while both share the thread.
_RESTORE_MS, _PROCESS_WHILE_RESTORING_MS = 100, 100
#: The number of checks before a batch exceeds its time budget.
_CHECKS_PER_BUDGET = 5
_DEFECT = " This is probably a bug in Millstream; see the log of the thread for details."


class StreamThread:
    """Owns tasks and runs the processing loop: poll, process, commit.

    A stream thread runs in its own process, as a Spark task, and owns all its Kafka clients. All
    work happens on the thread that calls `run`, except for that of the group member, which has its
    own thread. The waker interrupts the loop's waits for commands, member events and other urgent
    events.
    """

    def __init__(
        self,
        settings: ThreadSettings,
        control: Control,
        *,
        rebalances: RebalanceHandler,
        tasks: TaskManager,
        limits: TimeLimits,
        committer: TaskCommitter,
        uncommitted: UncommittedWork,
        consumer: Consumer,
        producer: Producer,
        global_updates: GlobalStoreUpdater | NoGlobalStores,
        incarnations: TopicIncarnations,
        meters: ThreadMeters,
        subscription_state: SubscriptionThreadState,
        purge: RepartitionPurge,
        cleanup: StateCleanup,
        queries: StoreQueries,
        resize_memory: Callable[[MemoryShare], None],
        close_others: Sequence[Callable[[], None]],
        clock: Clock,
        waker: Waker,
    ) -> None:
        self._settings = settings
        self._control = control
        self._rebalances = rebalances
        self._tasks = tasks
        self._limits = limits
        self._committer = committer
        self._consumer = consumer
        self._poller = RecordPoller(consumer, producer, tasks, rebalances, settings, clock)
        self._global_stores = global_updates
        self._incarnations = incarnations
        self._meters = meters
        self._subscription_state = subscription_state
        self._purge = purge
        self._cleanup = cleanup
        self._queries = queries
        self._batch_limiter = BatchLimiter(settings.max_batch_records, clock)
        self._pending_queries = PendingQueries(queries.answer, control, clock, self._batch_limiter)
        self._resize_memory = resize_memory
        self._clock = clock
        self._waker = waker
        self._machine = StateMachine(
            settings.name, ThreadState.CREATED, THREAD_TRANSITIONS, clock, self._on_state
        )
        self._stopping = self._paused = False
        self._stop_reason = "close requested"
        # If set, no more records are processed, not even the one that caused the request.
        self._shutdown_requested = False
        self._last_commit_ms = 0
        # Tasks request commits while they process, so only tasks that have processed are checked.
        self._commit_requested = False
        self._reporter = ThreadReporter(settings, control, clock, meters, self._refresh_meters)
        self._closer = ThreadCloser(
            tasks,
            committer,
            rebalances,
            producer,
            [queries.close, consumer.close, global_updates.close, *close_others],
            ShutdownRequester(control, rebalances, clock),
            self._as_streams_error,
            clock,
        )
        self._uncommitted = uncommitted
        self._group_rejoin = GroupRejoin(rebalances, committer, uncommitted, clock)
        self._last_processed, self._processed_total = TaskId(-1, -1), 0
        meters.scope.gauge(OWN_GROUP, "state-rebuilt-total", lambda: tasks.rebuilt_total)
        meters.scope.gauge(OWN_GROUP, "uncommitted-ms", lambda: self._uncommitted.uncommitted_ms)

    @property
    def state(self) -> ThreadState:
        return self._machine.state

    @property
    def rounds(self) -> int:
        """The number of progress reports of the loop, for a watchdog on another thread."""
        return self._rebalances.rounds

    def check_batch_time(self) -> None:
        """Stop a batch that has exceeded its time limit.

        Called periodically from another thread.
        """
        self._limits.check_timer()

    @property
    def check_interval_ms(self) -> int:
        """The interval for calls to `check_batch_time`, in milliseconds."""
        return max(1, self._limits.budget_ms // _CHECKS_PER_BUDGET)

    @property
    def overdue_ms(self) -> int:
        """How long work has been uncommitted, if its commit is overdue; else 0."""
        return self._uncommitted.overdue_ms(self._settings.commit_interval_ms)

    def run(self) -> ThreadOutcome:
        """Run until the thread fails or is closed, then close everything that it owns."""
        error: StreamsError | None = None
        self._last_commit_ms = self._clock.monotonic_ms()
        self._reporter.begin()
        try:
            self._machine.transition_to(ThreadState.STARTING, "start requested")
            self._rebalances.start()
            while not self._stopping:
                self._run_once_or_recover()
        except BaseException as failure:
            # User code may raise SystemExit. Everything must be closed anyway.
            error = self._as_streams_error(failure)
            # The driver logs or raises the error.
            logger.info("stopping: %s", error)
            # Report before closing, which may take a long time: the driver must decide before other
            # threads take over the failed work.
            self._control.report(ThreadFailed(error))
            self._stop_reason = "failed"
        close_error = self._close(clean=error is None)
        return ThreadOutcome(
            error, self._machine.history, close_error, has_drained=self._closer.has_drained
        )

    def _run_once_or_recover(self) -> None:
        try:
            try:
                self._run_once()
            except TaskCorruptedError as error:
                self._rebuild(error)
        except TaskMigratedError as error:
            self._group_rejoin.rejoin_after(error)

    def _rebuild(self, error: TaskCorruptedError) -> None:
        if GLOBAL_TASK in error.task_ids:
            self._rebuild_global_stores(error)
            return
        logger.warning("rebuilding the state of tasks: %s", error)
        self._committer.await_delivery(self._tasks.running, error.task_ids)
        running = {task.task_id for task in self._tasks.running}
        idle = {task.task_id for task in self._tasks.all} - running
        self._tasks.revive(error)
        if self._committer.all_or_nothing and not error.task_ids <= idle:
            # The records of a corrupted task must not be committed, and all tasks share the
            # transaction.
            self._rebalances.discard_work()
            self._rebalances.rejoin("rebuilding the state of a task")

    def _rebuild_global_stores(self, error: TaskCorruptedError) -> None:
        """Delete the global stores and read their topics again.

        This happens before any task continues.
        """
        logger.warning("rebuilding the global stores: %s", error)
        if self._tasks.running:
            # The tasks use the stores.
            self._rebalances.discard_work()
            self._rebalances.rejoin("rebuilding the global stores")
        self._global_stores.rebuild(error)

    def _run_once(self) -> None:
        self._waker.clear()
        self._meters.begin_round()
        self._rebalances.progress()
        self._handle_commands()
        self._handle_rebalances()
        self._answer_queries()
        if self._paused or self._shutdown_requested:
            # Wait for the group member, which may have an event at any time.
            self._rebalances.has_event(self._settings.poll_ms)
            self._global_stores.step(0)
            # Commit the work that is already finished.
            self._commit_if_due()
        else:
            self._fetch()
            # After the poll: global records written some time before a polled record must be
            # visible when the polled record is processed.
            self._global_stores.step(
                _RESTORE_WAIT_MS if self._tasks.is_restoring else self._settings.poll_ms
            )
            self._process()
        outdated = self._incarnations.outdated(self._tasks.running)
        if outdated:
            self._restart_tasks(outdated, "their input topics were deleted and recreated")
        self._purge.run(self._tasks.running)
        self._cleanup.run()
        self._queries.close_idle_cursors()
        self._uncommitted.committed(self._committer.total)
        self._reporter.report_if_due(self._tasks, self._processed_total, self._committer.total)

    def _fetch(self) -> None:
        """Restore and poll. Waits at most once, and only if there are no records."""
        # While the global stores catch up, wait for their records instead.
        timeout_ms = 0 if self._global_stores.is_reading else self._wait_ms()
        running = bool(self._tasks.running)
        if not self._committer.is_ready():
            # Neither offsets nor changelogs may be read yet.
            self._rebalances.has_event(min(timeout_ms, _RESTORE_WAIT_MS))
        elif not self._tasks.all_running:
            restoring = self._tasks.is_restoring
            # Restoring and running tasks share this wait, so that neither blocks the other for
            # long.
            max_ms = _RESTORE_WAIT_MS if running else self._settings.poll_ms
            self._advance(min(timeout_ms, max_ms) if restoring else 0, _RESTORE_MS)
            if restoring:
                timeout_ms = 0
        elif self._tasks.standby:
            self._advance(0, 0)
        self._announce_running()
        if not running:
            self._rebalances.has_event(timeout_ms)
            return
        try:
            began_ms = self._clock.monotonic_ms()
            records = self._poller.poll(timeout_ms)
            self._meters.record_poll(records, began_ms)
            self._tasks.inputs.add_records(records)
        except OffsetOutOfRangeError as error:
            self._tasks.inputs.reset_position(error.offsets)
        except UnknownTopicError as error:
            active = self._tasks.running
            readers = [t for t in active if error.topic in {p.topic for p in t.partitions}]
            if not readers:
                raise
            # The leader decides whether the topic is missing or a pattern matches one topic fewer.
            self._restart_tasks(readers, error.message)

    def _advance(self, timeout_ms: int, restore_ms: int) -> None:
        """Advance the tasks that are not running yet, and the standbys."""
        restoring, began_ms = self._tasks.is_restoring, self._clock.monotonic_ms()
        self._tasks.advance(timeout_ms, restore_ms)
        self._meters.record_restoring(began_ms, standby=not restoring)

    def _restart_tasks(self, tasks: Sequence[StreamTask], why: str) -> None:
        logger.warning("restarting tasks %s: %s", [str(task.task_id) for task in tasks], why)
        self._rebalances.release_tasks(tasks, why)

    def _wait_ms(self) -> int:
        """Return how long to wait for records, at most until an action is due.

        Returns 0 if buffered records can be processed.
        """
        has_query = self._batch_limiter.has_recent_query
        max_wait_ms = _QUERY_WAIT_MS if has_query else self._settings.poll_ms
        if self._rebalances.blocks_processing:
            return max_wait_ms
        if self._tasks.inputs.processable(self._settings.max_task_idle_ms):
            return 0
        punctuation_ms = self._tasks.next_wall_clock_ms()
        if punctuation_ms is not None:
            max_wait_ms = max(0, min(max_wait_ms, punctuation_ms - self._clock.now_ms()))
        if self._rebalances.is_rebalancing or not any(t.commit_needed for t in self._tasks.running):
            return max_wait_ms
        due_ms = self._last_commit_ms + self._settings.commit_interval_ms
        return max(0, min(max_wait_ms, due_ms - self._clock.monotonic_ms()))

    def _process(self) -> None:
        """Process batches of tasks in turn.

        Returns when records run out or another action is due.
        """
        settings = self._settings
        if self._rebalances.blocks_processing:
            return
        self._punctuate()
        max_ms = settings.poll_pause_ms
        if not self._tasks.all_running:
            max_ms = min(max_ms, _PROCESS_WHILE_RESTORING_MS)
        started_ms = self._clock.monotonic_ms()
        while tasks := self._tasks.inputs.processable(settings.max_task_idle_ms):
            for task in self._in_turn(tasks):
                began_ms = self._clock.monotonic_ms()
                self._uncommitted.batch_began(began_ms)
                count = self._tasks.step(task, self._batch_limiter.limit)
                self._processed_total += count
                self._uncommitted.batch_ended(count, settings.commit_interval_ms)
                self._batch_limiter.record_batch(count, self._clock.monotonic_ms() - began_ms)
                self._meters.processed(task, count, began_ms)
                self._last_processed = task.task_id
                self._commit_requested = self._commit_requested or task.commit_requested
                self._punctuate()
                self._rebalances.progress()
                self._commit_if_due()
                self._uncommitted.committed(self._committer.total)
                late = self._clock.monotonic_ms() - started_ms > max_ms
                if late or self._is_interrupted() or self._rebalances.has_event():
                    return
        self._commit_if_due()

    def _is_interrupted(self) -> bool:
        """Return whether an event requires more than answering queries."""
        self._pending_queries.process_io()
        if not self._waker.is_set:
            return False
        self._waker.clear()
        self._handle_commands()
        # While a member event is pending, a task that is active here may already be active
        # elsewhere.
        if not self._rebalances.has_event():
            self._answer_queries()
        return self._stopping or self._paused or self._shutdown_requested

    def _punctuate(self) -> None:
        if self._tasks.punctuate():
            self._check_commit_requests()

    def _check_commit_requests(self) -> None:
        if any(task.commit_requested for task in self._tasks.running):
            self._commit_requested = True

    def _in_turn(self, tasks: Sequence[StreamTask]) -> list[StreamTask]:
        """Return the tasks in round-robin order, starting after the last processed task."""
        last = self._last_processed
        return sorted(tasks, key=lambda task: (task.task_id <= last, task.task_id))

    def _commit_if_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._last_commit_ms + self._settings.commit_interval_ms
        try:
            self._committer.finish_pending()
            # A rebalancing group accepts no commits; a due commit follows immediately after the
            # rebalance.
            if (now_ms < due_ms and not self._commit_requested) or self._rebalances.is_rebalancing:
                return
            self._last_commit_ms = now_ms
            self._tasks.inputs.skip_to_ends()
            self._committer.commit(
                self._tasks.running, meanwhile=self._answer_during_commit, asynchronous=True
            )
            self._commit_requested = False
        except TasksInFlightError as error:
            logger.debug("commit postponed: %s", error)
            self._commit_requested = True
        except RebalanceInProgressError as error:
            logger.debug("commit postponed: %s", error)
            # The flush made tasks process records, so tasks may have requested commits.
            self._check_commit_requests()

    def _handle_rebalances(self) -> None:
        began_ms = self._clock.monotonic_ms()
        while (change := self._rebalances.handle_next_event()) is not None:
            self._meters.record_rebalance(change, began_ms)
            if change.revoked and self._machine.can_transition_to(ThreadState.PARTITIONS_REVOKED):
                self._machine.transition_to(ThreadState.PARTITIONS_REVOKED, change.why)
            elif change.assigned:
                self._machine.transition_to(ThreadState.PARTITIONS_ASSIGNED, change.why)
            self._reporter.report_tasks(self._tasks)
            if (assignment := change.assignment) is not None:
                hosts = assignment.partitions_by_host, assignment.standby_partitions_by_host
                self._control.report(HostsChanged(*hosts))
            began_ms = self._clock.monotonic_ms()

    def _announce_running(self) -> None:
        ready = self._tasks.all_running and self._global_stores.caught_up
        if self.state is ThreadState.PARTITIONS_ASSIGNED and ready:
            self._machine.transition_to(
                ThreadState.RUNNING, f"{len(self._tasks)} tasks are running"
            )
            self._reporter.report_tasks(self._tasks)

    def _handle_commands(self) -> None:
        if self._control.lost:
            self._stopping = True
            self._stop_reason = f"the driver is lost: {self._control.lost_reason}"
            self._closer.limit_commit_time()
            logger.error("closing because %s", self._stop_reason)
        for received in self._pending_queries.commands():
            match received.command:
                case Close() as close:
                    self._stopping = True
                    self._closer.configure(close)
                case Pause():
                    self._paused = self._meters.paused = True
                    logger.info("paused")
                case Resume():
                    self._paused = self._meters.paused = False
                    self._tasks.inputs.refetch()
                    logger.info("resumed")
                case ResizeMemory(share):
                    self._resize_memory(share)
                    # Tasks that exceed a smaller share take no records before a commit.
                    self._check_commit_requests()
                    logger.info(
                        "new memory limits: %d bytes for record caches, %d for uncommitted writes",
                        *share,
                    )
                case ChangeProperties(given):
                    self._apply_properties(given)
                case RequestShutdown(why):
                    self._shutdown_requested = True
                    self._rebalances.request_shutdown(why)
                case GetMetrics():
                    self._control.reply(received, self._reporter.all_metrics())
                case unknown:
                    error = StreamsError(f"Unknown command for a stream thread: {unknown!r}.")
                    self._control.reply(received, error)

    def _answer_queries(self) -> None:
        self._pending_queries.answer_some()
        if self._pending_queries.has_pending:
            # Do not wait before the remaining queries are answered.
            self._waker.wake()

    def _answer_during_commit(self) -> bool:
        """Answer queries during a commit; return whether more may arrive before its end.

        A commit does not change the contents of the stores.
        """
        self._pending_queries.process_io()
        if self._waker.is_set and not self._rebalances.has_event():
            # The waker stays set: other commands are handled after the commit.
            self._pending_queries.receive()
            self._pending_queries.answer_some()
        return self._batch_limiter.has_recent_query

    def _apply_properties(self, given: Mapping[str, Any]) -> None:
        properties = self._subscription_state.update(given)
        self._settings = replace(self._settings, commit_interval_ms=properties.commit_interval_ms)
        self._committer.set_drain_timeouts(properties)
        logger.info("the properties changed to %r", properties)

    def _close(self, *, clean: bool) -> StreamsError | None:
        self._machine.transition_to(ThreadState.PENDING_SHUTDOWN, self._stop_reason)
        self._pending_queries.end(self._settings.name)
        failure = self._closer.close(clean=clean)
        suffix = "" if failure is None else f" with an error: {failure}"
        self._machine.transition_to(ThreadState.DEAD, f"closed{suffix}")
        return failure

    def _refresh_meters(self) -> None:
        tasks = self._tasks
        self._meters.set_tasks(tasks.all)
        counted = self._subscription_state.all_metrics(task.committed for task in tasks.running)
        self._meters.set_subscription_metrics(counted)
        self._meters.set_lags(input_lags(self._consumer, tasks.running))

    def _on_state(self, new: ThreadState, old: ThreadState, why: str) -> None:
        logger.info("%s to %s (%s)", old.name, new.name, why)
        self._meters.set_state(new)
        self._control.report(StateChanged(new, why))

    def _as_streams_error(self, error: BaseException) -> StreamsError:
        if isinstance(error, Exception):
            return as_streams_error(self._settings.name, error, _DEFECT)
        return raised_by_user_code(error)

"""The stream thread: the loop that polls, processes and commits, until told to stop."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from millstream.clock import Clock
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
from millstream.record import TaskId
from millstream.runtime.control import (
    AskForShutdown,
    AskMetrics,
    ChangeProperties,
    Close,
    Control,
    MemoryShare,
    Pause,
    ResizeMemory,
    Resume,
    StateChanged,
    ThreadFailed,
    ThreadOutcome,
)
from millstream.runtime.loop.closing import Closing
from millstream.runtime.loop.commits import Commits, UnfinishedError
from millstream.runtime.loop.input_lags import input_lags
from millstream.runtime.loop.joining_anew import JoiningAnew
from millstream.runtime.loop.last_words import LastWords
from millstream.runtime.loop.overdue_commits import UncommittedWork
from millstream.runtime.loop.polls import Polls
from millstream.runtime.loop.purge import RepartitionPurge
from millstream.runtime.loop.rebalances import Rebalances
from millstream.runtime.loop.reports import Reports
from millstream.runtime.loop.thread_meters import OWN_GROUP, ThreadMeters
from millstream.runtime.loop.thread_settings import ThreadSettings
from millstream.runtime.ownership.cleanup import StateCleanup
from millstream.runtime.ownership.global_stores import GLOBAL_TASK
from millstream.runtime.ownership.global_updates import GlobalUpdates, NoGlobalUpdates
from millstream.runtime.ownership.tasks import Tasks
from millstream.runtime.ownership.topic_incarnations import TopicIncarnations
from millstream.runtime.queries.pace import Pace
from millstream.runtime.queries.store_queries import StoreQueries
from millstream.runtime.queries.waiting import WaitingQuestions
from millstream.runtime.state_machine import StateMachine
from millstream.runtime.states import THREAD_STATES, ThreadState
from millstream.runtime.task.time_limits import TimeLimits
from millstream.runtime.whereabouts import raised_by_user_code
from millstream.runtime.work import Work
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.share import SubscriptionShare
from millstream.waker import Waker

logger = logging.getLogger(__name__)

#: How long running tasks wait for those that restore to get records, and all while somebody asks.
_RESTORE_WAIT_MS, _ASKED_WAIT_MS = 10, 2
#: How the two share the thread: for how long there is restored, then processed, in each round.
_RESTORE_MS, _PROCESS_WHILE_RESTORING_MS = 100, 100
#: How often a batch is looked at before it is given up.
_LOOKS_PER_BUDGET = 5
_DEFECT = " This is probably a defect of Millstream; its log has the whole story."


class StreamThread:
    """Owns tasks and takes them round and round: poll, process, commit.

    In this design it is a process of its own, a Spark task; all its clients belong to it alone.
    Everything happens on the calling thread, but for the group member, which lives on its own.

    Args:
        settings: intervals and bounds.
        control: the connection to the driver.
        rebalances: the group member's events, turned into tasks.
        tasks: what it owns.
        limits: how long user code may take.
        commits: commits them.
        uncommitted: measures the work since the last commit.
        consumer: the main consumer.
        producer: the producer.
        global_updates: keep the global stores equal to their topics.
        incarnations: tell which topics were deleted and created again.
        meters: measure what it does.
        share: what the partitions of a subscription have in common.
        purge: deletes repartition records that are done with.
        cleanup: deletes state of tasks that moved away.
        queries: answers what is asked of its stores.
        resize_memory: sets what the stores of the tasks may use.
        close_others: closes further clients that belong to the thread.
        clock: time.
        waker: woken by commands and by the group's news, and by whatever else the thread is to see
            at once; ends its waits.
    """

    def __init__(
        self,
        settings: ThreadSettings,
        control: Control,
        *,
        rebalances: Rebalances,
        tasks: Tasks,
        limits: TimeLimits,
        commits: Commits,
        uncommitted: UncommittedWork,
        consumer: Consumer,
        producer: Producer,
        global_updates: GlobalUpdates | NoGlobalUpdates,
        incarnations: TopicIncarnations,
        meters: ThreadMeters,
        share: SubscriptionShare,
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
        self._commits = commits
        self._consumer = consumer
        self._polls = Polls(consumer, producer, tasks, rebalances, settings, clock)
        self._global = global_updates
        self._incarnations = incarnations
        self._meters = meters
        self._share = share
        self._purge = purge
        self._cleanup = cleanup
        self._queries = queries
        self._pace = Pace(settings.max_batch_records, clock)
        self._questions = WaitingQuestions(queries.answer, control, clock, self._pace)
        self._resize_memory = resize_memory
        self._clock = clock
        self._waker = waker
        self._machine = StateMachine(
            settings.name, ThreadState.CREATED, THREAD_STATES, clock, self._on_state
        )
        self._stopping = self._paused = False
        self._why_stopping = "told to close"
        # What asks that all shut down does not go on, not even with what made it ask.
        self._asks_for_shutdown = False
        self._last_commit_ms = 0
        # A task asks for a commit while it works, so only one that did is asked whether it does.
        self._commit_wanted = False
        self._reports = Reports(settings, control, clock, meters, self._measure, self._totals)
        self._closing = Closing(
            tasks,
            commits,
            rebalances,
            producer,
            [queries.close, consumer.close, global_updates.close, *close_others],
            LastWords(control, rebalances, clock),
            self._as_streams_error,
            clock,
        )
        self._uncommitted = uncommitted
        self._joining_anew = JoiningAnew(rebalances, commits, uncommitted, clock)
        self._turn, self._processed_total = TaskId(-1, -1), 0
        meters.scope.gauge(OWN_GROUP, "state-rebuilt-total", lambda: tasks.rebuilt_total)
        meters.scope.gauge(OWN_GROUP, "uncommitted-ms", lambda: self._uncommitted.uncommitted_ms)

    @property
    def state(self) -> ThreadState:
        """Where the thread is."""
        return self._machine.state

    @property
    def rounds(self) -> int:
        """How often it has told that it goes on; for whoever watches it from another thread."""
        return self._rebalances.rounds

    def look(self) -> None:
        """Stop a batch that has taken too long. Called now and then from another thread."""
        self._limits.look()

    @property
    def look_ms(self) -> int:
        """How often to call `look`, in milliseconds."""
        return max(1, self._limits.budget_ms // _LOOKS_PER_BUDGET)

    @property
    def overdue_ms(self) -> int:
        """For how long records have been processed without a commit, once that is too long."""
        return self._uncommitted.overdue_ms(self._settings.commit_interval_ms)

    def run(self) -> ThreadOutcome:
        """Run until told to stop, or until something fails. Closes everything it was given."""
        error: StreamsError | None = None
        self._last_commit_ms = self._clock.monotonic_ms()
        self._reports.begin()
        try:
            self._machine.transition_to(ThreadState.STARTING, "told to start")
            self._rebalances.start()
            while not self._stopping:
                self._run_once_or_recover()
        except BaseException as failure:
            # User code may raise SystemExit, too: everything must be closed all the same.
            error = self._as_streams_error(failure)
            # The driver is told, whose log or exception has it.
            logger.info("stopping: %s", error)
            # At once, so that the driver decides before other threads take over what this one
            # could not do: closing may take long.
            self._control.report(ThreadFailed(error))
            self._why_stopping = "failed"
        close_error = self._close(clean=error is None)
        return ThreadOutcome(
            error, self._machine.story, close_error, has_drained=self._closing.has_drained
        )

    def _run_once_or_recover(self) -> None:
        try:
            try:
                self._run_once()
            except TaskCorruptedError as error:
                self._rebuild(error)
        except TaskMigratedError as error:
            self._joining_anew.because_of(error)

    def _rebuild(self, error: TaskCorruptedError) -> None:
        if GLOBAL_TASK in error.task_ids:
            self._rebuild_global_stores(error)
            return
        logger.warning("rebuilding the state of tasks: %s", error)
        self._commits.settle(self._tasks.running, error.task_ids)
        running = {task.task_id for task in self._tasks.running}
        idle = {task.task_id for task in self._tasks.all} - running
        self._tasks.revive(error)
        if self._commits.all_or_nothing and not error.task_ids <= idle:
            # What such a task has sent must not be committed, and the others' is sent with it.
            self._rebalances.drop_work()
            self._rebalances.rejoin("the state of a task is rebuilt")

    def _rebuild_global_stores(self, error: TaskCorruptedError) -> None:
        """Throw them away and read their topics again, before any task goes on."""
        logger.warning("rebuilding the global stores: %s", error)
        if self._tasks.running:
            # They have the stores in their hands.
            self._rebalances.drop_work()
            self._rebalances.rejoin("its global stores are read again")
        self._global.rebuild(error)

    def _run_once(self) -> None:
        self._waker.clear()
        self._meters.round_begins()
        self._rebalances.progress()
        self._obey()
        self._follow_rebalances()
        self._answer()
        if self._paused or self._asks_for_shutdown:
            # Wait for the group member, which may have news at any moment.
            self._rebalances.has_news(self._settings.poll_ms)
            self._global.step(0)
            # What was processed before is not held back.
            self._commit_if_due()
        else:
            self._fetch()
            # After the poll: what was written some time before a polled record is seen with it.
            self._global.step(self._global_wait_ms())
            self._process()
        self._start_anew_on_other_topics()
        self._purge.run(self._tasks.running)
        self._cleanup.run()
        self._queries.tidy()
        self._uncommitted.committed(self._commits.total)
        self._reports.tell_if_due(self._tasks)

    def _fetch(self) -> None:
        """Restore and poll. Waits for records at one place at most, and only if there are none."""
        # While the global stores catch up, their records are what is waited for.
        timeout_ms = 0 if self._global.is_reading else self._wait_ms()
        running = bool(self._tasks.running)
        if not self._commits.is_ready():
            # Neither offsets nor changelogs are to be read yet.
            self._rebalances.has_news(min(timeout_ms, _RESTORE_WAIT_MS))
        elif not self._tasks.all_running:
            restoring = self._tasks.is_restoring
            # Both wait for records here: the running tasks get a look in between.
            most_ms = _RESTORE_WAIT_MS if running else self._settings.poll_ms
            self._advance(min(timeout_ms, most_ms) if restoring else 0, _RESTORE_MS)
            if restoring:
                timeout_ms = 0
        elif self._tasks.standby:
            self._advance(0, 0)
        self._announce_running()
        if not running:
            self._rebalances.has_news(timeout_ms)
            return
        try:
            began_ms = self._clock.monotonic_ms()
            records = self._polls.poll(timeout_ms)
            self._meters.polled(records, began_ms)
            self._tasks.add_records(records)
        except OffsetOutOfRangeError as error:
            self._tasks.reset_position(error)
        except UnknownTopicError as error:
            active = self._tasks.running
            readers = [t for t in active if error.topic in {p.topic for p in t.partitions}]
            if not readers:
                raise
            # Whether that is an error, or one topic less that matches a pattern, the leader says.
            self._start_anew(readers, error.message)

    def _advance(self, timeout_ms: int, restore_ms: int) -> None:
        """Bring tasks that do not process one step further."""
        restoring, began_ms = self._tasks.is_restoring, self._clock.monotonic_ms()
        self._tasks.advance(timeout_ms, restore_ms)
        self._meters.advanced(began_ms, standby=not restoring)

    def _start_anew_on_other_topics(self) -> None:
        """Let tasks begin again whose topics are not those any more that they began to read."""
        outdated = self._incarnations.outdated(self._tasks.running)
        if outdated:
            self._start_anew(outdated, "topics that they read were deleted and created again")

    def _start_anew(self, tasks: Sequence[Work], why: str) -> None:
        logger.warning("tasks %s start anew: %s", [str(task.task_id) for task in tasks], why)
        self._rebalances.give_up(tasks, why)

    def _global_wait_ms(self) -> int:
        return _RESTORE_WAIT_MS if self._tasks.is_restoring else self._settings.poll_ms

    def _wait_ms(self) -> int:
        """How long to wait for records: not at all with some at hand, nor past what is due next."""
        most = _ASKED_WAIT_MS if self._pace.is_asked else self._settings.poll_ms
        if self._rebalances.forbids_work:
            return most
        if self._tasks.processable(self._settings.max_task_idle_ms):
            return 0
        punctuation_ms = self._tasks.next_wall_clock_ms()
        if punctuation_ms is not None:
            most = max(0, min(most, punctuation_ms - self._clock.now_ms()))
        if self._rebalances.under_way or not any(t.commit_needed for t in self._tasks.running):
            return most
        due_ms = self._last_commit_ms + self._settings.commit_interval_ms
        return max(0, min(most, due_ms - self._clock.monotonic_ms()))

    def _process(self) -> None:
        """Let the tasks take batches in turn until nothing waits, or it is time to look around."""
        settings = self._settings
        if self._rebalances.forbids_work:
            return
        self._punctuate()
        most_ms = settings.poll_pause_ms
        if not self._tasks.all_running:
            most_ms = min(most_ms, _PROCESS_WHILE_RESTORING_MS)
        started_ms = self._clock.monotonic_ms()
        while tasks := self._tasks.processable(settings.max_task_idle_ms):
            for task in self._in_turn(tasks):
                began_ms = self._clock.monotonic_ms()
                self._uncommitted.batch_began(began_ms)
                count = self._tasks.step(task, self._pace.limit)
                self._processed_total += count
                self._uncommitted.batch_ended(count, settings.commit_interval_ms)
                self._pace.took(count, self._clock.monotonic_ms() - began_ms)
                self._meters.processed(task, count, began_ms)
                self._turn = task.task_id
                self._commit_wanted = self._commit_wanted or task.commit_requested
                self._punctuate()
                self._rebalances.progress()
                self._commit_if_due()
                self._uncommitted.committed(self._commits.total)
                late = self._clock.monotonic_ms() - started_ms > most_ms
                if late or self._is_called() or self._rebalances.has_news():
                    return
        self._commit_if_due()

    def _is_called(self) -> bool:
        """Whether somebody wants more than an answer."""
        self._questions.attend()
        if not self._waker.is_set:
            return False
        self._waker.clear()
        self._obey()
        # With news a task that seems to be active here may be so elsewhere by now.
        if not self._rebalances.has_news():
            self._answer()
        return self._stopping or self._paused or self._asks_for_shutdown

    def _punctuate(self) -> None:
        if self._tasks.punctuate():
            self._ask_all_for_commits()

    def _ask_all_for_commits(self) -> None:
        if any(task.commit_requested for task in self._tasks.running):
            self._commit_wanted = True

    def _in_turn(self, tasks: Sequence[Work]) -> list[Work]:
        """The tasks, those first that come after the last one which had its turn."""
        last = self._turn
        return sorted(tasks, key=lambda task: (task.task_id <= last, task.task_id))

    def _commit_if_due(self) -> None:
        now_ms = self._clock.monotonic_ms()
        due_ms = self._last_commit_ms + self._settings.commit_interval_ms
        try:
            self._commits.hear()
            # A group that rebalances takes no commits; what is due is made up for right after.
            if (now_ms < due_ms and not self._commit_wanted) or self._rebalances.under_way:
                return
            self._last_commit_ms = now_ms
            self._tasks.pass_over_ends()
            self._commits.commit(self._tasks.running, meanwhile=self._answer_meanwhile, soon=True)
            self._commit_wanted = False
        except UnfinishedError as error:
            logger.debug("commit put off: %s", error)
            self._commit_wanted = True
        except RebalanceInProgressError as error:
            logger.debug("commit put off: %s", error)
            # What was flushed for it has let tasks work.
            self._ask_all_for_commits()

    def _follow_rebalances(self) -> None:
        began_ms = self._clock.monotonic_ms()
        while (change := self._rebalances.next_change()) is not None:
            self._meters.changed(change, began_ms)
            if change.revoked and self._machine.may_become(ThreadState.PARTITIONS_REVOKED):
                self._machine.transition_to(ThreadState.PARTITIONS_REVOKED, change.why)
            elif change.assigned:
                self._machine.transition_to(ThreadState.PARTITIONS_ASSIGNED, change.why)
            self._reports.tell_tasks(self._tasks)
            if change.assignment is not None:
                self._reports.tell_hosts(change.assignment)
            began_ms = self._clock.monotonic_ms()

    def _announce_running(self) -> None:
        ready = self._tasks.all_running and self._global.caught_up
        if self.state is ThreadState.PARTITIONS_ASSIGNED and ready:
            self._machine.transition_to(
                ThreadState.RUNNING, f"{len(self._tasks)} tasks are running"
            )
            self._reports.tell_tasks(self._tasks)

    def _obey(self) -> None:
        if self._control.lost:
            self._stopping = True
            self._why_stopping = f"the driver is lost: {self._control.lost_reason}"
            self._closing.hurry()
            logger.error("closing, since %s", self._why_stopping)
        for asked in self._questions.commands():
            match asked.command:
                case Close() as close:
                    self._stopping = True
                    self._closing.obey(close)
                case Pause():
                    self._paused = self._meters.paused = True
                    logger.info("paused")
                case Resume():
                    self._paused = self._meters.paused = False
                    self._tasks.look_anew()
                    logger.info("resumed")
                case ResizeMemory(share):
                    self._resize_memory(share)
                    # Tasks above a smaller share take no records before a commit.
                    self._ask_all_for_commits()
                    logger.info(
                        "from now on the record caches may use %d bytes, and uncommitted writes %d",
                        *share,
                    )
                case ChangeProperties(given):
                    self._follow(Properties(**given))
                case AskForShutdown(why):
                    self._asks_for_shutdown = True
                    self._rebalances.ask_for_shutdown(why)
                case AskMetrics():
                    self._control.reply(asked, self._reports.all_metrics())
                case unknown:
                    error = StreamsError(f"A stream thread does not know the command {unknown!r}.")
                    self._control.reply(asked, error)

    def _answer(self) -> None:
        self._questions.answer_some()
        if self._questions.are_left:
            # So that nothing is waited for before they have their turn.
            self._waker.wake()

    def _answer_meanwhile(self) -> bool:
        """Answer in the middle of a commit, which changes nothing that a store has; whether one may
        ask again before it is over."""
        self._questions.attend()
        if self._waker.is_set and not self._rebalances.has_news():
            # It stays set: other commands are obeyed after the commit.
            self._questions.hear()
            self._questions.answer_some()
        return self._pace.is_asked

    def _follow(self, properties: Properties) -> None:
        self._settings = replace(self._settings, commit_interval_ms=properties.commit_interval_ms)
        self._share.change(properties)
        self._commits.be_patient(properties)
        logger.info("its properties are %r from now on", properties)

    def _close(self, *, clean: bool) -> StreamsError | None:
        """Give everything up in an orderly way; the first error on the way, if any."""
        self._machine.transition_to(ThreadState.PENDING_SHUTDOWN, self._why_stopping)
        self._questions.end(self._settings.name)
        failure = self._closing.close(clean=clean)
        though = "" if failure is None else f", though: {failure}"
        self._machine.transition_to(ThreadState.DEAD, f"closed{though}")
        return failure

    def _measure(self) -> None:
        """Let the meters take in what they are not told all the time."""
        tasks = self._tasks
        self._meters.tasks_are(tasks.all)
        counted = self._share.all_metrics(task.committed for task in tasks.running)
        self._meters.subscription_is(counted)
        self._meters.lags_are(input_lags(self._consumer, tasks.running))

    def _totals(self) -> tuple[int, int, list[str]]:
        ids = [str(task.task_id) for task in self._tasks.all]
        return self._processed_total, self._commits.total, ids

    def _on_state(self, new: ThreadState, old: ThreadState, why: str) -> None:
        logger.info("%s to %s (%s)", old.name, new.name, why)
        self._meters.state_is(new)
        self._control.report(StateChanged(new, why))

    def _as_streams_error(self, error: BaseException) -> StreamsError:
        if isinstance(error, Exception):
            return as_streams_error(self._settings.name, error, _DEFECT)
        return raised_by_user_code(error)

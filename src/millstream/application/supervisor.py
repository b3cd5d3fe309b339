"""The stream threads of one application instance, and what happens when one ends."""

from __future__ import annotations

import logging
import ssl
import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.application.client_metrics import ClientMetrics
from millstream.application.crew import Crew
from millstream.application.dataframes import DataFrameStages
from millstream.application.elastic.elastic_threads import ElasticThreads, Parts
from millstream.application.histories import LakeHistories
from millstream.application.judge import Judge
from millstream.application.listeners import told
from millstream.application.metrics_port import MetricsPort
from millstream.application.restore_bars import RestoreBars
from millstream.application.story.story import ApplicationStory
from millstream.application.thread_changes import ThreadChanges
from millstream.application.workers import Workers
from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.errors import SparkError, StreamsError, ThreadUnavailableError, as_streams_error
from millstream.query.asked import Asked
from millstream.runtime.client_states import ClientStates
from millstream.runtime.control import (
    ClientJoined,
    Close,
    CommitsOverdue,
    HostsChanged,
    LoopStalled,
    Question,
    Report,
    RestoreEvent,
    StateChanged,
    TasksChanged,
    ThreadFailed,
    ThreadMetrics,
)
from millstream.runtime.ownership.client import keeps_state_on_disk
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.stall import Stall
from millstream.runtime.start_checks import StartChecks, committed_in_words
from millstream.runtime.states import ClientState, OwnedTask, ThreadState
from millstream.runtime.topology_topics import has_tasks
from millstream.spark.connection.messages import ThreadExit
from millstream.spark.engine import SparkEngine
from millstream.spark.events import ThreadEvent
from millstream.spark.sessions.local_session import StartGivenUpError
from millstream.spark.sessions.session import require_slots
from millstream.spark.worker.thread_main import StreamThreadMain
from millstream.spark.worker.worker_logging import short_name
from millstream.state.directories.state_directory import StateDirectory
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

R = TypeVar("R")

_ERROR_CLOSE_TIMEOUT_MS = 30_000
#: How long a thread may wait for a slot, so that its error is out half a minute after the start.
_REGISTER_TIMEOUT_MS = 25_000


class ThreadSupervisor:
    """Starts the threads on Spark, follows what they report, replaces them or gives up.

    Args:
        topology: what to compute.
        config: settings.
        spark: where the threads run, None to find or make a session.
        states: the application's state, which it drives.
        clock: for pauses and patience.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        spark: SparkSession | None,
        states: ClientStates,
        clock: Clock | None = None,
    ) -> None:
        self.restore_listener: Callable[[RestoreEvent], None] | None = None
        self.standby_listener: Callable[[RestoreEvent], None] | None = None
        self._bars = RestoreBars()
        self._topology = topology
        self._config = config
        self._spark = spark
        self._states = states
        self._directory = StateDirectory(config.state_dir, config.application_id)
        self._process_id: uuid.UUID | None = None
        # A listener that is told of a thread that comes or goes may close the application.
        self._starting = threading.RLock()
        self._starter: int | None = None
        self._close_asked: tuple[int, bool] | None = None
        #: Set by a signal handler, which may do no more: `start` shall end early.
        self.interrupted = False
        #: Whether all threads ended by themselves when they were closed.
        self.closed_orderly = True
        #: Whether all that their tasks had in flight came to its end.
        self.has_drained = True
        self._clock = clock or SystemClock()
        self._crew = Crew(config, states, self._main, self._clock)
        self.judge = Judge(
            config,
            states,
            self._crew,
            self._clock,
            self._give_up,
            has_group=has_tasks(topology),
        )
        #: The DataFrame functions.
        self.dataframes = DataFrameStages(topology, config, self.judge)
        self._histories = LakeHistories(topology, config)
        #: What the instance has been through.
        self.story = ApplicationStory(self._clock)
        states.remember(self.story.state_changed)
        self.judge.on_verdict = self.story.failed
        #: What is asked of the state.
        self.asked = Asked(topology, config, states.threads, self._ask, lambda: states.state)
        self._engine: SparkEngine | None = None
        self._stalls: dict[str, Stall] = {}
        #: For how long threads have processed records without a commit, where that is too long.
        self._uncommitted_ms: dict[str, int] = {}
        self.metrics = ClientMetrics(
            topology,
            config,
            states,
            lambda: self._client_id,
            lambda: dict(self._stalls),
            lambda: self.judge.failed_threads,
        )
        self.metrics_port = MetricsPort(config, self.metrics.all)
        #: Where its threads run.
        self.workers = Workers()
        #: Adds threads and removes them.
        self.changes = ThreadChanges(states, self._crew, self._starting)
        #: Does so by itself, if that was asked for.
        parts = Parts(states, self._crew, self.changes, self.metrics, self.story, self.workers)
        self._state_on_disk = on_disk = keeps_state_on_disk(topology, config)
        self.elastic = ElasticThreads(config, parts, self._clock, state_on_disk=on_disk)
        self.metrics.more = (self.elastic.metrics, self.dataframes.metrics)

    def is_reached_at(self, address: str | None, token: str, tls: ssl.SSLContext | None) -> None:
        """Tell other instances where this one serves, unless the settings do. Before `start`."""
        if address is not None and not self._config.application_server:
            self._config = self._config.replace(application_server=address)
        self.asked.is_reached_at(self._config.application_server, token, tls)

    @property
    def error(self) -> StreamsError | None:
        """What made a thread or the application stop, if anything did."""
        return self.judge.error

    def start(self) -> None:
        """Take the state directory, ask the cluster, start the threads.

        Ends early if it is closed meanwhile, from another thread or in a signal handler, or when
        it is `interrupted`: then it waits neither for a broker nor for Spark any longer.
        """
        self._starter = threading.get_ident()
        try:
            with self._starting:
                # What this machine can tell comes first, then what the cluster tells, and what
                # takes long last.
                for step in (
                    self.metrics_port.open,
                    self._take_directory,
                    self._crew.pack,
                    self._check_cluster,
                    self._start_engine,
                    self._write_histories,
                    self._crew.start,
                ):
                    if not self._given_up():
                        step()
        except StartGivenUpError:
            logger.info("%s: the start of Spark was given up", self._config.application_id)
        finally:
            self._starter = None
        if self._close_asked is not None:
            self.close(*self._close_asked)

    def could_not_start(self, error: BaseException) -> None:
        """Give back what `start` has taken before it failed; the application ends in ERROR."""
        why = f"could not start: {error}"
        self.judge.error = self.error or as_streams_error("Starting the application", error)
        in_error = self._states.become(ClientState.PENDING_ERROR, why)
        self.close(0, leave_group=True)
        if in_error:
            self._states.become(ClientState.ERROR, why)

    def close(self, timeout_ms: int, leave_group: bool) -> bool:
        """Close all threads; whether they did it in time.

        A `start` under way ends within a second or, in the midst of the start of Spark, a few.
        """
        self._close_asked = (timeout_ms, leave_group)
        if self._starter == threading.get_ident():
            # A signal handler has interrupted `start`, which goes on and then gives all back.
            return True
        with self._starting:
            self._bars.close()
            self.closed_orderly = self._release(timeout_ms, leave_group) and self.closed_orderly
            return self.closed_orderly

    def hurry(self) -> None:
        """Let a `close` under way kill the threads that have not closed yet."""
        if self._engine is not None:
            self._engine.hurry()

    @property
    def paused(self) -> bool:
        """Whether processing is paused."""
        return self._crew.paused

    def pause(self, paused: bool) -> None:
        """Stop or resume processing in all threads."""
        self._crew.pause(paused)
        self.dataframes.pause(paused)

    def change_properties(self, given: Mapping[str, Any]) -> None:
        """Let all threads of a subscription work by these."""
        self._crew.change_properties(given)

    @property
    def num_threads(self) -> int:
        """How many threads there are: those of the settings before the start."""
        return self._config.least_stream_threads if self._engine is None else self._crew.live

    @property
    def topology(self) -> Topology:
        """What is computed."""
        return self._topology

    def stall_of(self, thread: str) -> Stall | None:
        """Where a thread hangs, if it does."""
        return self._stalls.get(thread)

    def uncommitted_ms_of(self, thread: str) -> int | None:
        """For how long a thread has processed records without a commit, if that is too long."""
        return self._uncommitted_ms.get(thread)

    @property
    def master(self) -> str:
        """Where Spark runs, as it calls that itself."""
        return "" if self._engine is None else str(self._engine.session.sparkContext.master)

    @property
    def lone_global_stores(self) -> list[str]:
        """The global stores of an application that has nothing else, and so no tasks."""
        return [] if has_tasks(self._topology) else sorted(self._topology.global_stores)

    def begins_at(self, tasks: Collection[str]) -> list[str]:
        """Where the group has committed what tasks read, in words; empty if it is not told."""
        return committed_in_words(self._topology, self._config, tasks)

    def clean_up(self) -> None:
        """Delete the local state."""
        self._directory.clean_up()

    def _given_up(self) -> bool:
        """Whether nobody waits for `start` any more."""
        return self.interrupted or self._close_asked is not None

    def _check_cluster(self) -> None:
        StartChecks(self._topology, self._config, self._clock, self._given_up).run()

    def _take_directory(self) -> None:
        if not self._state_on_disk:
            self._process_id = uuid.uuid4()
            return
        self._directory.lock_application()
        self._process_id = self._directory.process_id()

    def _start_engine(self) -> None:
        config = self._config
        self._engine = SparkEngine(
            self._spark,
            config.application_id,
            num_threads=config.most_stream_threads,
            on_event=self._on_event,
            register_timeout_ms=_REGISTER_TIMEOUT_MS,
            clock=self._clock,
            given_up=self._given_up,
            connectors=sorted({*self.dataframes.connectors, *self._histories.connectors}),
            greet=self._crew.greet,
            look=self._look,
            keeps_state=self._state_on_disk,
        )
        self._crew.engine = self._engine
        self._engine.start()
        require_slots(self._engine.session, config.least_stream_threads)
        self.dataframes.start(self._engine.session)

    def _write_histories(self) -> None:
        assert self._engine is not None
        self._histories.write(self._engine.session, self._given_up)

    def _look(self) -> None:
        self.judge.look()
        self.dataframes.look()
        self.elastic.look()

    def _ask(self, thread: str, question: Question[Any]) -> Future[Any]:
        if self._engine is None:
            raise ThreadUnavailableError(f"Stream thread {thread} is not started yet.")
        return self._engine.post(thread, question)

    def _release(self, timeout_ms: int, leave_group: bool) -> bool:
        with ExitStack() as rest:
            # The last one is called first, and each whatever the others raise.
            rest.callback(self._directory.unlock_application)
            rest.callback(self.metrics_port.close)
            rest.callback(self.asked.close)
            rest.callback(self._crew.closed)
            if self._engine is None:
                return True
            try:
                self.dataframes.close(timeout_ms)
            finally:
                # A cluster that does not answer must leave a thread time to close what it has.
                command = Close(leave_group, timeout_ms // 2)
                orderly = self._engine.close(timeout_ms, command)
            return orderly

    @property
    def _client_id(self) -> str:
        return self._config.client_id or f"{self._config.application_id}-{self._process_id}"

    def _main(self, index: int) -> StreamThreadMain:
        assert self._process_id is not None
        return StreamThreadMain(
            topology=self._topology,
            config=self._config,
            driver_id=self._process_id,
            thread_name=f"{self._client_id}-StreamThread-{index}",
            thread_index=index,
            restore_audience=RestoreAudience(
                restore_listener=self.restore_listener is not None,
                standby_listener=self.standby_listener is not None,
                bars=self._bars.may_show,
                story=True,
            ),
        )

    def _on_event(self, event: ThreadEvent) -> None:
        """Called by the engine, one event after the other."""
        try:
            self._follow(event)
        except Exception as error:
            # Whatever it is, an application must not be left waiting for what was not done.
            logger.exception("following the event '%s' of %s failed", event.kind, event.thread)
            self._give_up(as_streams_error(event.thread, error))

    def _follow(self, event: ThreadEvent) -> None:
        if event.kind == "registered":
            where = self.workers.registered(event.data)
            logger.info("%s %s", short_name(event.thread), where)
            self._forget_troubles(event.thread)
            self.story.step(event.thread, where)
            self.metrics.begins(event.thread)
            self.judge.runs(event.thread)
            self._crew.has_proven(event.thread)
        elif event.kind == "report":
            self._on_report(event.thread, event.data)
        elif event.kind == "restarting":
            logger.warning("%s is started again: %s", short_name(event.thread), event.data)
            self.workers.ended(event.thread)
            self._forget_troubles(event.thread)
            self._states.tasks_are(event.thread, {})
            self._thread_is(event.thread, ThreadState.CREATED, f"started again: {event.data}")
            # The rebalance that this began has them as what was before it.
            self.story.tasks_are(event.thread, {})
        elif event.kind == "exited":
            self._on_exit(event.thread, event.data)
        else:
            self._on_failed(event.thread, event.data)

    def _on_report(self, thread: str, report: Report) -> None:
        match report:
            case StateChanged(state, why):
                # A thread that has closed its clients is gone only when its Spark task has ended.
                if state is not ThreadState.DEAD:
                    self._thread_is(thread, state, why)
            case ClientJoined():
                logger.info("%s %s", short_name(thread), self.workers.joined(thread, report))
            case TasksChanged(tasks, copies):
                owned = {
                    str(task_id): OwnedTask(state.name, task_id in copies)
                    for task_id, state in tasks.items()
                }
                self._states.tasks_are(thread, owned)
                self.story.tasks_are(thread, owned)
            case HostsChanged():
                self.asked.learn(report)
            case ThreadMetrics():
                self.metrics.take(thread, report)
                self.story.counted(thread, self.metrics.processed_by_task(thread))
            case LoopStalled(stall):
                self._on_stall(thread, stall)
            case CommitsOverdue(uncommitted_ms):
                self._on_overdue(thread, uncommitted_ms)
            case ThreadFailed(error):
                self.judge.died(thread, error)
            case RestoreEvent():
                self._bars.show(report)
                self.story.restored(thread, report)
                standby = report.step.is_of_standby
                listener = self.standby_listener if standby else self.restore_listener
                failure = None if listener is None else told(listener, report)
                if failure is not None:
                    self.judge.listener_failed(failure)
            case unknown:
                logger.warning("%s tells what is not known here: %r", thread, unknown)

    def _thread_is(self, thread: str, state: ThreadState, why: str) -> None:
        self.metrics.thread_is(thread, state)
        self.story.thread_is(thread, state, why)
        self._states.thread_is(thread, state, why)

    def _on_stall(self, thread: str, stall: Stall | None) -> None:
        before = self._stalls.pop(thread, None)
        if stall is None:
            silent_s = 0 if before is None else before.silent_ms // 1_000
            logger.warning("%s goes on, after more than %d s", short_name(thread), silent_s)
            return
        self._stalls[thread] = stall
        logger.error("%s", stall.told_of(short_name(thread)))

    def _on_overdue(self, thread: str, uncommitted_ms: int | None) -> None:
        self._uncommitted_ms.pop(thread, None)
        if uncommitted_ms is None:
            logger.warning("%s commits again", short_name(thread))
            return
        self._uncommitted_ms[thread] = uncommitted_ms
        logger.error(
            "%s has processed records for %d s without a commit: after a failure all of them are "
            "processed again. Its log says why; slow functions are stopped and started again",
            short_name(thread),
            uncommitted_ms // 1_000,
        )

    def _forget_troubles(self, thread: str) -> None:
        self._stalls.pop(thread, None)
        self._uncommitted_ms.pop(thread, None)

    def _on_exit(self, thread: str, ended: ThreadExit) -> None:
        self._thread_is(thread, ThreadState.DEAD, ended.reason or ended.kind)
        self.has_drained = self.has_drained and ended.has_drained
        if ended.error is not None and not self.judge.knows_of(thread):
            if self._crew.is_leaving(thread):
                logger.warning("%s was removed; on its way: %s", short_name(thread), ended.error)
            else:
                self.judge.died(thread, ended.error)
        self._follow_end(thread)

    def _on_failed(self, thread: str, error: SparkError) -> None:
        self._thread_is(thread, ThreadState.DEAD, "cannot be run")
        if not self._crew.is_on_trial(thread):
            self.judge.died(thread, error)
        elif self._states.is_live and not self.elastic.withdraws(thread, error):
            # Whoever wanted to add it is told; the others go on.
            logger.error("%s was added, and cannot be run: %s", short_name(thread), error)
        self._follow_end(thread)

    def _follow_end(self, thread: str) -> None:
        # The handler may have closed the application since, or the user removed the thread.
        if (
            self.judge.wants_another(thread)
            and self._states.is_live
            and not self._crew.is_leaving(thread)
            and self._crew.replace(thread)
        ):
            return
        if self._crew.is_leaving(thread):
            self.metrics.forget(thread)
        self.workers.ended(thread)
        self._forget_troubles(thread)
        self.judge.forget(thread)
        self._crew.ended(thread)

    def _give_up(self, failure: StreamsError) -> None:
        """Close the application because of an error, in the background."""
        self.judge.error = self.error or failure
        if self._states.become(ClientState.PENDING_ERROR, str(failure)):
            # Closing waits for the last events, so it cannot be done by the one who hands them on.
            threading.Thread(target=self._close_in_error, name="millstream-close").start()

    def _close_in_error(self) -> None:
        try:
            self.close(_ERROR_CLOSE_TIMEOUT_MS, leave_group=True)
        finally:
            self._states.become(ClientState.ERROR, str(self.error))

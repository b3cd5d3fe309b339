"""The stream threads of one application instance, and what happens when one ends."""

from __future__ import annotations

import enum
import logging
import threading
import uuid
from collections.abc import Callable, Collection
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from millstream.app_restore_bars import RestoreBars
from millstream.clock import Clock, SystemClock
from millstream.config import StreamsConfig
from millstream.errors import SparkError, StreamsError, ThreadUnavailableError
from millstream.runtime.backoff import Backoff
from millstream.runtime.build_thread import keeps_state_on_disk
from millstream.runtime.client_states import ClientStates
from millstream.runtime.control import (
    Close,
    Pause,
    Report,
    RestoreEvent,
    Resume,
    StateChanged,
    TasksChanged,
    ThreadFailed,
    ThreadMetrics,
)
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.start_checks import StartChecks, committed_in_words
from millstream.runtime.states import ClientState, ThreadState
from millstream.runtime.topology_topics import has_tasks
from millstream.spark.engine import SparkEngine
from millstream.spark.events import ThreadEvent
from millstream.spark.local_session import StartGivenUpError
from millstream.spark.messages import ThreadExit
from millstream.spark.session import require_slots
from millstream.spark.shipping import ship
from millstream.spark.thread_main import StreamThreadMain
from millstream.spark.worker_logging import short_name
from millstream.state.directories.state_directory import StateDirectory
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

_ERROR_CLOSE_TIMEOUT_MS = 30_000
#: How long a thread may wait for a slot, so that its error is out half a minute after the start.
_REGISTER_TIMEOUT_MS = 25_000
#: The pauses before a thread is replaced: a record that fails each time must not keep a cluster
#: busy. After running for `_REPLACE_CALM_MS` the next pause is a first one again.
_REPLACE_FIRST_MS = 250
_REPLACE_MOST_MS = 30_000
_REPLACE_CALM_MS = 60_000
_FAILED_CLOSE_TIMEOUT_MS = 30_000


class StreamsUncaughtExceptionHandlerResponse(enum.Enum):
    """What to do when a stream thread has died of an error (KIP-671).

    Example:
        >>> streams = KafkaStreams(topology, config)
        >>> streams.set_uncaught_exception_handler(
        ...     lambda error: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
        ... )
    """

    #: Start another thread in its place, as often as it takes: after 250 ms, then twice that, up to
    #: 30 s, until one has run for a minute.
    REPLACE_THREAD = "replace_thread"
    #: Close this application instance; its state becomes ERROR. The default.
    SHUTDOWN_CLIENT = "shutdown_client"


ExceptionHandler = Callable[[StreamsError], StreamsUncaughtExceptionHandlerResponse]
_Response = StreamsUncaughtExceptionHandlerResponse


class ThreadSupervisor:
    """Starts the threads on Spark, follows what they report, replaces them or gives up.

    Args:
        topology: what to compute.
        config: settings.
        spark: where the threads run, None to find or make a session.
        states: the application's state, which it drives.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        spark: SparkSession | None,
        states: ClientStates,
    ) -> None:
        self.exception_handler: ExceptionHandler = _shut_down
        self.restore_listener: Callable[[RestoreEvent], None] | None = None
        self.standby_listener: Callable[[RestoreEvent], None] | None = None
        self._bars = RestoreBars()
        self.error: StreamsError | None = None
        self.paused = False
        self._topology = topology
        self._config = config
        self._spark = spark
        self._states = states
        self._directory = StateDirectory(config.state_dir, config.application_id)
        self._process_id: uuid.UUID | None = None
        self._starting = threading.Lock()
        self._starter: int | None = None
        self._close_asked: tuple[int, bool] | None = None
        #: Set by a signal handler, which may do no more: `start` shall end early.
        self.interrupted = False
        #: Whether the error that ends the application is going to be raised by `run`.
        self.raises_error = False
        #: Whether all threads ended by themselves when they were closed.
        self.closed_orderly = True
        self._payloads: dict[int, bytes] = {}
        self._engine: SparkEngine | None = None
        self._metrics: dict[str, ThreadMetrics] = {}
        self._indexes: dict[str, int] = {}
        self._workers: dict[str, tuple[str, int]] = {}
        #: Threads whose error is dealt with, until one of the name runs again.
        self._judged: set[str] = set()
        self._to_replace: set[str] = set()
        self._backoffs: dict[str, Backoff] = {}
        #: How long a thread that has failed may take to close, before it is killed and replaced.
        self.failed_close_timeout_ms = _FAILED_CLOSE_TIMEOUT_MS
        self._clock: Clock = SystemClock()

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
                    self._take_directory,
                    self._pack_threads,
                    self._check_cluster,
                    self._start_engine,
                    self._start_threads,
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
        self.error = self.error or _as_streams_error("Starting the application", error)
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

    def pause(self, paused: bool) -> None:
        """Stop or resume processing in all threads."""
        self.paused = paused
        if self._engine is not None:
            for name in self._engine.threads:
                self._tell_pause(name)

    def metrics(self) -> dict[str, dict[str, Any]]:
        """What each thread reported last."""
        return {name: asdict(metrics) for name, metrics in self._metrics.items()}

    def worker_of(self, thread: str) -> tuple[str | None, int | None]:
        """The host and the process in which a thread runs."""
        return self._workers.get(thread, (None, None))

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
        if not keeps_state_on_disk(self._topology, self._config):
            self._process_id = uuid.uuid4()
            return
        self._directory.lock_application()
        self._process_id = self._directory.process_id()

    def _pack_threads(self) -> None:
        config = self._config
        self._payloads = {
            index: ship(self._main(index), f"the topology of {config.application_id}")
            for index in range(1, config.num_stream_threads + 1)
        }

    def _start_engine(self) -> None:
        config = self._config
        self._engine = SparkEngine(
            self._spark,
            config.application_id,
            num_threads=config.num_stream_threads,
            on_event=self._on_event,
            register_timeout_ms=_REGISTER_TIMEOUT_MS,
            clock=self._clock,
            given_up=self._given_up,
        )
        self._engine.start()
        require_slots(self._engine.session, config.num_stream_threads)

    def _start_threads(self) -> None:
        for index, payload in self._payloads.items():
            self._start_thread(index, payload)

    def _release(self, timeout_ms: int, leave_group: bool) -> bool:
        try:
            if self._engine is None:
                return True
            # A cluster that does not answer must leave a thread time to close what it has.
            return self._engine.close(timeout_ms, Close(leave_group, timeout_ms // 2))
        finally:
            self._directory.unlock_application()

    @property
    def _client_id(self) -> str:
        return self._config.client_id or f"{self._config.application_id}-{self._process_id}"

    def _main(self, index: int) -> StreamThreadMain:
        assert self._process_id is not None
        return StreamThreadMain(
            topology=self._topology,
            config=self._config,
            process_id=self._process_id,
            thread_name=f"{self._client_id}-StreamThread-{index}",
            thread_index=index,
            restore_audience=RestoreAudience(
                restore_listener=self.restore_listener is not None,
                standby_listener=self.standby_listener is not None,
                bars=self._bars.may_show,
            ),
        )

    def _start_thread(self, index: int, payload: bytes, pause_ms: int = 0) -> None:
        assert self._engine is not None
        name = f"{self._client_id}-StreamThread-{index}"
        self._indexes[name] = index
        when = f" in {pause_ms} ms" if pause_ms else ""
        self._states.thread_is(name, ThreadState.CREATED, f"submitted to Spark{when}")
        self._engine.start_thread(name, index, payload, pause_ms=pause_ms)

    def _on_event(self, event: ThreadEvent) -> None:
        """Called by the engine, one event after the other."""
        try:
            self._follow(event)
        except Exception as error:
            # Whatever it is, an application must not be left waiting for what was not done.
            logger.exception("following the event '%s' of %s failed", event.kind, event.thread)
            self._give_up(_as_streams_error(event.thread, error))

    def _follow(self, event: ThreadEvent) -> None:
        if event.kind == "registered":
            logger.info(
                "%s runs in process %d on %s",
                short_name(event.thread),
                event.data.pid,
                event.data.host,
            )
            self._workers[event.thread] = (event.data.host, event.data.pid)
            self._to_replace.discard(event.thread)
            self._judged.discard(event.thread)
            if self.paused:
                self._tell_pause(event.thread)
        elif event.kind == "report":
            self._on_report(event.thread, event.data)
        elif event.kind == "restarting":
            logger.warning("%s is started again: %s", short_name(event.thread), event.data)
            self._workers.pop(event.thread, None)
            self._states.tasks_are(event.thread, {})
            self._states.thread_is(event.thread, ThreadState.CREATED, "started again")
        elif event.kind == "exited":
            self._on_exit(event.thread, event.data)
        else:
            self._states.thread_is(event.thread, ThreadState.DEAD, "cannot be run")
            self._judge(event.thread, event.data)

    def _on_report(self, thread: str, report: Report) -> None:
        match report:
            case StateChanged(state, why):
                # A thread that has closed its clients is gone only when its Spark task has ended.
                if state is not ThreadState.DEAD:
                    self._states.thread_is(thread, state, why)
            case TasksChanged(tasks):
                states = {str(task_id): state.name for task_id, state in tasks.items()}
                self._states.tasks_are(thread, states)
            case ThreadMetrics():
                self._metrics[thread] = report
            case ThreadFailed(error):
                self._judge(thread, error)
            case RestoreEvent():
                self._bars.show(report)
                standby = report.step.is_of_standby
                listener = self.standby_listener if standby else self.restore_listener
                if listener is not None:
                    self._tell_restore_listener(listener, report)
            case unknown:
                logger.warning("%s tells what is not known here: %r", thread, unknown)

    def _on_exit(self, thread: str, ended: ThreadExit) -> None:
        self._states.thread_is(thread, ThreadState.DEAD, ended.reason or ended.kind)
        if ended.error is not None and thread not in self._judged:
            self._judge(thread, ended.error)
        # The handler may have closed the application since.
        if thread in self._to_replace and self._is_live:
            self._replace(thread)

    def _replace(self, thread: str) -> None:
        """Start another thread in its place, after a pause that the engine keeps."""
        backoff = self._backoffs.get(thread)
        if backoff is None:
            backoff = self._backoffs[thread] = Backoff(
                self._clock,
                first_ms=_REPLACE_FIRST_MS,
                most_ms=_REPLACE_MOST_MS,
                calm_ms=_REPLACE_CALM_MS,
            )
        pause_ms = backoff.next_pause_ms()
        logger.info("%s is replaced in %d ms", short_name(thread), pause_ms)
        index = self._indexes[thread]
        self._start_thread(index, ship(self._main(index), "the topology"), pause_ms)

    def _tell_restore_listener(
        self, listener: Callable[[RestoreEvent], None], event: RestoreEvent
    ) -> None:
        try:
            listener(event)
        except Exception as error:
            whose = "standby" if event.step.is_of_standby else "restore"
            failure = StreamsError(
                f"The {whose} listener failed on '{event.step.value}' of store '{event.store}': "
                f"{type(error).__name__}: {error}. Correct it, or let it catch what it raises.",
                topic=event.place.topic,
                partition=event.place.partition,
            )
            failure.__cause__ = error
            # No thread has died of it, so there is none to replace: then all go on.
            if self._is_live and self._ask_handler(failure) is not _Response.REPLACE_THREAD:
                self._give_up(failure)

    def _judge(self, thread: str, error: BaseException) -> None:
        """Decide what follows from the error of a thread, which is ending or has ended."""
        self._judged.add(thread)
        failure = _as_streams_error(thread, error)
        if not self._is_live:
            logger.warning("%s ended with an error while closing: %s", short_name(thread), failure)
            self.error = self.error or failure
            return
        # A script raises the error, which tells the same.
        level = logging.INFO if self.raises_error else logging.ERROR
        logger.log(level, "%s died: %s", short_name(thread), failure)
        # What Spark cannot run it cannot run a second time either.
        hopeless = isinstance(failure, SparkError)
        replace = self._ask_handler(failure) is _Response.REPLACE_THREAD
        if not replace or hopeless:
            self._give_up(failure)
            return
        self._to_replace.add(thread)
        if self._engine is not None:
            # What of the user's code it still has to close may block for ever.
            self._engine.expect_end(thread, self.failed_close_timeout_ms)

    @property
    def _is_live(self) -> bool:
        return self._states.state in (ClientState.REBALANCING, ClientState.RUNNING)

    def _ask_handler(self, failure: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
        try:
            return self.exception_handler(failure)
        except Exception:
            logger.exception("the uncaught exception handler failed; the application is closed")
            return _Response.SHUTDOWN_CLIENT

    def _give_up(self, failure: StreamsError) -> None:
        """Close the application because of an error, in the background."""
        self.error = self.error or failure
        if self._states.become(ClientState.PENDING_ERROR, str(failure)):
            # Closing waits for the last events, so it cannot be done by the one who hands them on.
            threading.Thread(target=self._close_in_error, name="millstream-close").start()

    def _close_in_error(self) -> None:
        try:
            self.close(_ERROR_CLOSE_TIMEOUT_MS, leave_group=True)
        finally:
            self._states.become(ClientState.ERROR, str(self.error))

    def _tell_pause(self, thread: str) -> None:
        assert self._engine is not None
        try:
            self._engine.send(thread, Pause() if self.paused else Resume())
        except ThreadUnavailableError:
            logger.debug("%s is told when it registers", thread)


def _shut_down(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
    return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT


def _as_streams_error(thread: str, error: BaseException) -> StreamsError:
    if isinstance(error, StreamsError):
        return error
    failure = StreamsError(f"{thread} failed: {type(error).__name__}: {error}.")
    failure.__cause__ = error
    return failure

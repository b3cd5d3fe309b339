"""The supervisor of an application instance's stream threads."""

from __future__ import annotations

import logging
import ssl
import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from millstream.application.autoscaling.autoscaler import Autoscaler, ScalingContext
from millstream.application.client_metrics import ClientMetrics, MetricsPort
from millstream.application.dataframes import DataFrameStages, LakeHistories
from millstream.application.event_log.event_log import EventLog
from millstream.application.failure_policy import FailurePolicy
from millstream.application.listeners import RestoreBars, notify
from millstream.application.stream_threads import StreamThreads, ThreadChanges
from millstream.application.thread_metadata import WorkerRegistry
from millstream.clock import Clock, SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import SparkError, StreamsError, ThreadUnavailableError, as_streams_error
from millstream.kafka.speedups import missing_advice
from millstream.log_format import short_name
from millstream.query.query_client import QueryClient
from millstream.runtime.client_process import keeps_state_on_disk
from millstream.runtime.start.cluster_checks import ClusterChecks, describe_start_offsets
from millstream.runtime.start.topology_topics import has_tasks
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ClientState, OwnedTask, ThreadState
from millstream.runtime.task_management.restore_reports import RestoreReportOptions
from millstream.runtime.thread_control import (
    ClientJoined,
    Close,
    CommitsOverdue,
    HostsChanged,
    LoopStalled,
    Report,
    RestoreEvent,
    Stall,
    StateChanged,
    TasksChanged,
    ThreadFailed,
    ThreadMetrics,
    ThreadRequest,
)
from millstream.spark.connection.messages import ThreadExit
from millstream.spark.engine import SparkEngine
from millstream.spark.sessions.local_session import StartCancelledError
from millstream.spark.sessions.session import require_slots
from millstream.spark.thread_events import ThreadEvent
from millstream.spark.worker.thread_main import StreamThreadMain
from millstream.state.directories.state_directory import StateDirectory
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("millstream")

_ERROR_CLOSE_TIMEOUT_MS = 30_000
#: The timeout for a slot. A missing slot is thus reported within 30 s of the start.
_REGISTER_TIMEOUT_MS = 25_000


class ThreadSupervisor:
    """Starts threads on Spark, handles their reports, and replaces failed threads.

    Finds or creates a session if `spark` is None.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        spark: SparkSession | None,
        states: ClientStateTracker,
        clock: Clock | None = None,
    ) -> None:
        self.restore_listener: Callable[[RestoreEvent], None] | None = None
        self.standby_listener: Callable[[RestoreEvent], None] | None = None
        self._bars = RestoreBars()
        self.topology = topology
        self._config = config
        self._spark = spark
        self._states = states
        self._directory = StateDirectory(config.state_dir, config.application_id)
        self._process_id: uuid.UUID | None = None
        # Reentrant: a state listener may close the application.
        self._starting = threading.RLock()
        self._starter: int | None = None
        self._close_request: tuple[int, bool] | None = None
        #: Set by a signal handler, which must not do anything else. Makes `start` return early.
        self.interrupted = False
        #: Whether all threads closed without being killed.
        self.closed_cleanly = True
        #: Whether the work in flight of all tasks was completed.
        self.has_drained = True
        self._clock = clock or SystemClock()
        self._stream_threads = StreamThreads(config, states, self._main, self._clock)
        self.failure_policy = FailurePolicy(
            config,
            states,
            self._stream_threads,
            self._clock,
            self._shut_down_client,
            has_group=has_tasks(topology),
        )
        self.dataframes = DataFrameStages(topology, config, self.failure_policy)
        self._histories = LakeHistories(topology, config)
        self.event_log = EventLog(self._clock)
        states.set_recorder(self.event_log.state_changed)
        self.failure_policy.on_decision = self.event_log.add_failure
        self.query_client = QueryClient(
            topology, config, states.threads, self._send_request, lambda: states.state
        )
        self._engine: SparkEngine | None = None
        #: The stalls of the threads that currently hang.
        self.stalls: dict[str, Stall] = {}
        #: How long threads with overdue commits have processed records without a commit.
        self.uncommitted_ms: dict[str, int] = {}
        self.metrics = ClientMetrics(
            topology,
            config,
            states,
            lambda: self._client_id,
            lambda: dict(self.stalls),
            lambda: self.failure_policy.failed_threads,
        )
        self.metrics_port = MetricsPort(config, self.metrics.all)
        self.workers = WorkerRegistry()
        self.changes = ThreadChanges(states, self._stream_threads, self._starting)
        scaling_context = ScalingContext(
            states, self._stream_threads, self.changes, self.metrics, self.event_log, self.workers
        )
        self._state_on_disk = on_disk = keeps_state_on_disk(topology, config)
        self.autoscaler = Autoscaler(config, scaling_context, self._clock, state_on_disk=on_disk)
        self.metrics.additional = (self.autoscaler.metrics, self.dataframes.metrics)

    def advertise(self, address: str | None, token: str, tls: ssl.SSLContext | None) -> None:
        """Set the address for other instances unless it is configured.

        Call before `start`.
        """
        if address is not None and not self._config.application_server:
            self._config = self._config.replace(application_server=address)
        self.query_client.set_own_address(self._config.application_server, token, tls)

    @property
    def error(self) -> StreamsError | None:
        return self.failure_policy.error

    def start(self) -> None:
        """Lock the state directory, check the cluster, and start the threads.

        Returns early, without waiting for brokers or Spark any longer, if another thread or a
        signal handler calls `close`, or if `interrupted` is set.
        """
        self._starter = threading.get_ident()
        if (warning := missing_advice(self._config.speedups)) is not None:
            logger.warning("%s: %s", self._config.application_id, warning)
        try:
            with self._starting:
                # Local checks come first, then checks on the cluster, and slow steps last.
                for step in (
                    self.metrics_port.open,
                    self._take_directory,
                    self._stream_threads.prepare,
                    self._check_cluster,
                    self._start_engine,
                    self._write_histories,
                    self._stream_threads.start,
                ):
                    if not self._start_cancelled():
                        step()
        except StartCancelledError:
            logger.info("%s: the start of Spark was canceled", self._config.application_id)
        finally:
            self._starter = None
        if self._close_request is not None:
            self.close(*self._close_request)

    def abort_start(self, error: BaseException) -> None:
        """Release all resources after a failed `start`, and change the state to ERROR."""
        why = f"start failed: {error}"
        self.failure_policy.error = self.error or as_streams_error(
            "Starting the application", error
        )
        in_error = self._states.try_transition(ClientState.PENDING_ERROR, why)
        self.close(0, leave_group=True)
        if in_error:
            self._states.try_transition(ClientState.ERROR, why)

    def close(self, timeout_ms: int, leave_group: bool) -> bool:
        """Close all threads and return whether they closed in time.

        A concurrent `start` ends within a second, or within a few seconds while Spark is starting.
        """
        self._close_request = (timeout_ms, leave_group)
        if self._starter == threading.get_ident():
            # A signal handler has interrupted `start`, which closes the application when it
            # continues.
            return True
        with self._starting:
            self._bars.close()
            self.closed_cleanly = self._close_all(timeout_ms, leave_group) and self.closed_cleanly
            return self.closed_cleanly

    def force_close(self) -> None:
        """Make a running `close` kill the threads that have not closed yet."""
        if self._engine is not None:
            self._engine.force_close()

    @property
    def paused(self) -> bool:
        return self._stream_threads.paused

    def pause(self, paused: bool) -> None:
        self._stream_threads.pause(paused)
        self.dataframes.pause(paused)

    def change_properties(self, given: Mapping[str, Any]) -> None:
        self._stream_threads.change_properties(given)

    @property
    def num_threads(self) -> int:
        """The number of threads; before the start, the minimum from the settings."""
        return (
            self._config.least_stream_threads if self._engine is None else self._stream_threads.live
        )

    @property
    def master(self) -> str:
        return "" if self._engine is None else str(self._engine.session.sparkContext.master)

    @property
    def taskless_global_stores(self) -> list[str]:
        """The global stores of an application without tasks."""
        return [] if has_tasks(self.topology) else sorted(self.topology.global_stores)

    def committed_positions(self, tasks: Collection[str]) -> list[str]:
        """Describe the committed offsets of tasks' inputs; empty if unavailable."""
        return describe_start_offsets(self.topology, self._config, tasks)

    def clean_up(self) -> None:
        self._directory.clean_up()

    def _start_cancelled(self) -> bool:
        return self.interrupted or self._close_request is not None

    def _check_cluster(self) -> None:
        ClusterChecks(self.topology, self._config, self._clock, self._start_cancelled).run()

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
            is_cancelled=self._start_cancelled,
            connectors=sorted({*self.dataframes.connectors, *self._histories.connectors}),
            on_registering=self._stream_threads.send_current_commands,
            on_check=self._tick,
            keeps_state=self._state_on_disk,
        )
        self._stream_threads.engine = self._engine
        self._engine.start()
        require_slots(self._engine.session, config.least_stream_threads)
        self.dataframes.start(self._engine.session)

    def _write_histories(self) -> None:
        assert self._engine is not None
        self._histories.write(self._engine.session, self._start_cancelled)

    def _tick(self) -> None:
        self.failure_policy.tick()
        self.dataframes.tick()
        self.autoscaler.tick()

    def _send_request(self, thread: str, request: ThreadRequest[Any]) -> Future[Any]:
        if self._engine is None:
            raise ThreadUnavailableError(f"Stream thread {thread} has not been started yet.")
        return self._engine.post(thread, request)

    def _close_all(self, timeout_ms: int, leave_group: bool) -> bool:
        with ExitStack() as rest:
            # Callbacks run in reverse order, even if others raise.
            rest.callback(self._directory.unlock_application)
            rest.callback(self.metrics_port.close)
            rest.callback(self.query_client.close)
            rest.callback(self._stream_threads.mark_closed)
            if self._engine is None:
                return True
            try:
                self.dataframes.close(timeout_ms)
            finally:
                # Leaves each thread time to close its resources if the cluster does not respond.
                command = Close(leave_group, timeout_ms // 2)
                is_clean = self._engine.close(timeout_ms, command)
            return is_clean

    @property
    def client_id(self) -> str | None:
        """The client id. Generated when the application starts, unless it is configured."""
        return self._client_id if self._config.client_id or self._process_id else None

    @property
    def _client_id(self) -> str:
        return self._config.client_id or f"{self._config.application_id}-{self._process_id}"

    def _main(self, index: int) -> StreamThreadMain:
        assert self._process_id is not None
        return StreamThreadMain(
            topology=self.topology,
            config=self._config,
            driver_id=self._process_id,
            thread_name=f"{self._client_id}-StreamThread-{index}",
            thread_index=index,
            restore_options=RestoreReportOptions(
                restore_listener=self.restore_listener is not None,
                standby_listener=self.standby_listener is not None,
                progress_bars=self._bars.may_show,
                event_log=True,
            ),
        )

    def _on_event(self, event: ThreadEvent) -> None:
        """Handle an event. The engine calls this sequentially."""
        try:
            self._handle_event(event)
        except Exception as error:
            # The application must not continue if an event was not handled.
            logger.exception("failed to handle the event '%s' of %s", event.kind, event.thread)
            self._shut_down_client(as_streams_error(event.thread, error))

    def _handle_event(self, event: ThreadEvent) -> None:
        if event.kind == "registered":
            where = self.workers.registered(event.data)
            logger.info("%s %s", short_name(event.thread), where)
            self._clear_alerts(event.thread)
            self.event_log.add_step(event.thread, where)
            self.metrics.thread_restarted(event.thread)
            self.failure_policy.thread_running(event.thread)
            self._stream_threads.confirm(event.thread)
        elif event.kind == "report":
            self._on_report(event.thread, event.data)
        elif event.kind == "restarting":
            logger.warning("%s is being restarted: %s", short_name(event.thread), event.data)
            self.workers.ended(event.thread)
            self._clear_alerts(event.thread)
            self._states.set_tasks(event.thread, {})
            self._set_thread_state(event.thread, ThreadState.CREATED, f"restarted: {event.data}")
            # Last, so that the event log records the old tasks as those before the rebalance.
            self.event_log.tasks_changed(event.thread, {})
        elif event.kind == "exited":
            self._on_exit(event.thread, event.data)
        else:
            self._on_failed(event.thread, event.data)

    def _on_report(self, thread: str, report: Report) -> None:
        match report:
            case StateChanged(state, why):
                # A thread is only DEAD when its Spark task has ended.
                if state is not ThreadState.DEAD:
                    self._set_thread_state(thread, state, why)
            case ClientJoined():
                logger.info("%s %s", short_name(thread), self.workers.joined(thread, report))
            case TasksChanged(tasks, copies):
                owned = {
                    str(task_id): OwnedTask(state.name, task_id in copies)
                    for task_id, state in tasks.items()
                }
                self._states.set_tasks(thread, owned)
                self.event_log.tasks_changed(thread, owned)
            case HostsChanged():
                self.query_client.apply_assignment(report)
            case ThreadMetrics():
                self.metrics.update(thread, report)
                self.event_log.records_processed(thread, self.metrics.processed_by_task(thread))
            case LoopStalled(stall):
                self._on_stall(thread, stall)
            case CommitsOverdue(uncommitted_ms):
                self._on_overdue(thread, uncommitted_ms)
            case ThreadFailed(error):
                self.failure_policy.thread_failed(thread, error)
            case RestoreEvent():
                self._bars.show(report)
                self.event_log.restore_progressed(thread, report)
                standby = report.step.is_standby
                listener = self.standby_listener if standby else self.restore_listener
                failure = None if listener is None else notify(listener, report)
                if failure is not None:
                    self.failure_policy.listener_failed(failure)
            case unknown:
                logger.warning("%s sent an unknown report: %r", thread, unknown)

    def _set_thread_state(self, thread: str, state: ThreadState, why: str) -> None:
        self.metrics.thread_state_changed(thread, state)
        self.event_log.thread_state_changed(thread, state, why)
        self._states.set_thread_state(thread, state, why)

    def _on_stall(self, thread: str, stall: Stall | None) -> None:
        before = self.stalls.pop(thread, None)
        if stall is None:
            silent_s = 0 if before is None else before.silent_ms // 1_000
            logger.warning(
                "%s makes progress again, after more than %d s", short_name(thread), silent_s
            )
            return
        self.stalls[thread] = stall
        logger.error("%s", stall.told_of(short_name(thread)))

    def _on_overdue(self, thread: str, uncommitted_ms: int | None) -> None:
        self.uncommitted_ms.pop(thread, None)
        if uncommitted_ms is None:
            logger.warning("%s commits again", short_name(thread))
            return
        self.uncommitted_ms[thread] = uncommitted_ms
        logger.error(
            "%s has processed records for %d s without a commit: all of them are reprocessed after "
            "a failure. See the log of the thread for the cause; slow functions are interrupted "
            "and retried",
            short_name(thread),
            uncommitted_ms // 1_000,
        )

    def _clear_alerts(self, thread: str) -> None:
        self.stalls.pop(thread, None)
        self.uncommitted_ms.pop(thread, None)

    def _on_exit(self, thread: str, ended: ThreadExit) -> None:
        self._set_thread_state(thread, ThreadState.DEAD, ended.reason or ended.kind)
        self.has_drained = self.has_drained and ended.has_drained
        if ended.error is not None and not self.failure_policy.is_handled(thread):
            if thread in self._stream_threads.leaving:
                logger.warning(
                    "%s failed while it was being removed: %s", short_name(thread), ended.error
                )
            else:
                self.failure_policy.thread_failed(thread, ended.error)
        self._handle_end(thread)

    def _on_failed(self, thread: str, error: SparkError) -> None:
        self._set_thread_state(thread, ThreadState.DEAD, "cannot be run")
        if not self._stream_threads.is_unconfirmed(thread):
            self.failure_policy.thread_failed(thread, error)
        elif self._states.is_live and not self.autoscaler.try_withdraw(thread, error):
            # The caller of `add` gets the error; other threads continue.
            logger.error("%s was added but cannot be run: %s", short_name(thread), error)
        self._handle_end(thread)

    def _handle_end(self, thread: str) -> None:
        # The handler may have closed the application, or the user may have removed the thread.
        if (
            self.failure_policy.should_replace(thread)
            and self._states.is_live
            and thread not in self._stream_threads.leaving
            and self._stream_threads.replace(thread)
        ):
            return
        if thread in self._stream_threads.leaving:
            self.metrics.remove(thread)
        self.workers.ended(thread)
        self._clear_alerts(thread)
        self.failure_policy.thread_ended(thread)
        self._stream_threads.remove(thread)

    def _shut_down_client(self, failure: StreamsError) -> None:
        """Close the application because of an error, in the background."""
        self.failure_policy.error = self.error or failure
        if self._states.try_transition(ClientState.PENDING_ERROR, str(failure)):
            # Closing waits for the last events, so it must not run on the thread that delivers
            # events.
            threading.Thread(target=self._close_in_error, name="millstream-close").start()

    def _close_in_error(self) -> None:
        try:
            self.close(_ERROR_CLOSE_TIMEOUT_MS, leave_group=True)
        finally:
            self._states.try_transition(ClientState.ERROR, str(self.error))

"""The driver's engine, which runs stream threads on Spark.

The engine starts, supervises, controls and stops the threads.
"""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.clock import Clock, SystemClock
from millstream.errors import IllegalStateError, SparkError, ThreadUnavailableError
from millstream.log_format import short_name
from millstream.runtime.thread_control import Close, Command, Report, ThreadRequest
from millstream.spark.code.environment import installed_versions
from millstream.spark.code.shipping import ship
from millstream.spark.code.user_modules import module_path
from millstream.spark.connection.control_client import GRACE_MS
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.encryption import TlsIdentity, make_tls_identity
from millstream.spark.connection.messages import Hello, ThreadExit
from millstream.spark.hosted_thread import (
    DecommissionMonitor,
    HostedThread,
    RestartPolicy,
    ThreadPlacement,
    ThreadTimeouts,
)
from millstream.spark.jobs import SparkJobs
from millstream.spark.sessions.free_slots import claim_slots
from millstream.spark.sessions.local_session import hide_traces, show_traces
from millstream.spark.sessions.session import HostSession, is_local, resolve_session, slots
from millstream.spark.thread_events import ThreadEvent, ThreadEventQueue
from millstream.spark.worker.worker_logging import LoggingSetup
from millstream.spark.worker.worker_task import ThreadMain, ThreadPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

R = TypeVar("R")

_CLOSE: Final = Close()

#: How often the monitor checks the threads.
_CHECK_INTERVAL_S: Final = 0.25
#: How long Spark may take to kill the process of a canceled task: it polls every 2 s and then waits
#: another 2 s (spark.python.task.killTimeout); the rest is a margin for busy machines.
_KILL_TIMEOUT_S: Final = 8.0
#: How long worker processes may take to end after the session has been stopped.
_PROCESS_END_TIMEOUT_S: Final = 12.0


class SparkEngine:
    """Runs the stream threads of one application instance as Spark tasks.

    Each thread is a Spark job with one task. The engine restarts a thread that has lost its
    process, its executor or its connection, any number of times. A thread that ended by itself or
    with a user error, or that Spark cannot run at all, is not restarted, but reported to the owner.

    Args:
        session: the session for the threads. If None, the engine uses the active session, or starts
            a local one, which `close` stops when no other engine uses it.
        num_threads: the expected number of threads, which determines the size of a new session.
        on_event: called for each event, on a dedicated thread. The callback should return quickly,
            because further reports may block until it returns.
        listen_host: the address to listen on; by default loopback for local masters, and all
            addresses otherwise.
        advertised_host: the address of this machine for executors; by default the value of
            `spark.driver.host`.
        encrypted: whether to encrypt the connections to the threads; by default only for masters
            that are not local.
        is_cancelled: polled while a session starts.
        connectors: the connectors of a session that the engine starts.
        on_registering: called with the name of a newly registered thread. Commands that this
            callback sends reach the thread before all others.
        on_check: called a few times per second on the monitor thread.
        keeps_state: whether threads keep state on the disk of their host, so that a restarted
            thread should run on the same host.
    """

    def __init__(
        self,
        session: SparkSession | None,
        application_id: str,
        *,
        num_threads: int,
        on_event: Callable[[ThreadEvent], None],
        register_timeout_ms: int = 30_000,
        grace_ms: int = GRACE_MS,
        restart_policy: RestartPolicy | None = None,
        listen_host: str | None = None,
        listen_port: int = 0,
        advertised_host: str | None = None,
        encrypted: bool | None = None,
        clock: Clock | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
        connectors: Sequence[str] = (),
        on_registering: Callable[[str], None] = lambda name: None,
        on_check: Callable[[], None] = lambda: None,
        keeps_state: bool = False,
    ) -> None:
        self._resolve = partial(
            resolve_session, session, num_threads, application_id, is_cancelled, connectors
        )
        self._on_registering = on_registering
        self._on_check = on_check
        self._keeps_state = keeps_state
        self._application_id = application_id
        self._events = ThreadEventQueue(on_event)
        self._grace_ms = grace_ms
        # Must exceed the grace period plus the time that a thread then takes to close.
        self._timeouts = ThreadTimeouts(register_timeout_ms, reconnect_ms=3 * grace_ms)
        self._restart_policy = restart_policy or RestartPolicy()
        self._encrypted = encrypted
        self._identity: TlsIdentity | None = None
        self._listen = (listen_host, listen_port, advertised_host)
        self._clock = clock or SystemClock()
        self._authkey = secrets.token_bytes(32)
        self._versions = installed_versions()
        self._lock = threading.Lock()
        self._threads: dict[str, HostedThread] = {}
        self._processes: set[int] = set()
        self._submissions = itertools.count(1)
        self._closed = threading.Event()
        self._released = threading.Event()
        self._monitor = threading.Thread(
            target=self._run_monitor, name="millstream-monitor", daemon=True
        )
        self._is_forced = False
        self._host_session: HostSession | None = None
        self._server: ControlServer | None = None
        self._jobs: SparkJobs | None = None
        self._decommission_monitor: DecommissionMonitor | None = None

    def start(self) -> None:
        """Find or start the session, and start to listen for threads.

        Raises:
            SparkError: no session can host threads.
            OSError: listening on the control port failed.
            StartCancelledError: `is_cancelled` returned True while a session was starting.
        """
        found = self._resolve()
        session = found.session
        try:
            host, port, advertised = self._listen
            if is_local(session):
                host, advertised = host or "127.0.0.1", advertised or "127.0.0.1"
            else:
                own_name = session.sparkContext.getConf().get("spark.driver.host", "")
                host, advertised = host or "0.0.0.0", advertised or own_name or socket.getfqdn()
            if self._encrypted or (self._encrypted is None and not is_local(session)):
                self._identity = make_tls_identity(session)
            server = ControlServer(
                self._application_id,
                self._authkey,
                self,
                host=host,
                port=port,
                advertised_host=advertised,
                identity=self._identity,
            )
            server.start()
        except BaseException:
            found.release()
            raise
        hide_traces()
        self._host_session = found
        self._server = server
        self._jobs = SparkJobs(session, self._application_id)
        self._decommission_monitor = DecommissionMonitor(
            self._jobs, lambda: claim_slots(session, 1), self._clock
        )
        self._events.start()
        self._monitor.start()

    def __enter__(self) -> SparkEngine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def session(self) -> SparkSession:
        if self._host_session is None:
            raise IllegalStateError("The Spark engine has not been started. Call start() first.")
        return self._host_session.session

    @property
    def threads(self) -> list[str]:
        """The names of the threads that have neither exited nor failed."""
        with self._lock:
            return [name for name, thread in self._threads.items() if not thread.ended]

    def start_thread(
        self,
        name: str,
        index: int,
        main: ThreadMain | bytes,
        *,
        pause_ms: int = 0,
        ignore_previous: bool = False,
        register_ms: int | None = None,
    ) -> None:
        """Start a stream thread and return immediately.

        Events report the thread's progress.

        Args:
            main: the thread's code, or its pickle from `shipping.ship`.
            pause_ms: the delay before the job is submitted. Closing the thread ends the delay.
            ignore_previous: whether to ignore an earlier thread of this name. By default, if Spark
                has already run such a thread, failures to start count as outages.
            register_ms: how long the thread may take to register; by default
                `register_timeout_ms`.

        Raises:
            NotPicklableError: the code refers to an object that cannot be pickled.
            IllegalStateError: the engine is not running, or a thread of this name is running.
        """
        payload = main if isinstance(main, bytes) else ship(main, f"the code of {name}")
        with self._lock:
            # Start the thread under the lock, so that a concurrent `close` finds the thread.
            if self._server is None or self._jobs is None or self._closed.is_set():
                raise IllegalStateError(
                    f"Stream thread {name} cannot be started: the Spark engine is not running."
                )
            previous = self._threads.get(name)
            if previous is not None and not previous.is_finished:
                raise IllegalStateError(f"A stream thread named {name} is already running.")
            has_run = previous is not None and previous.has_run and not ignore_previous
            waits_ms = register_ms or self._timeouts.register_ms
            timeouts = replace(self._timeouts, register_ms=waits_ms)
            thread = self._create_thread(
                name, index, payload, previous, timeouts, has_run=has_run, pause_ms=pause_ms
            )
            # Start first, and then store: waiting for a stored thread that never ran would hang.
            threading.Thread(target=thread.run, name=f"{name}-job", daemon=True).start()
            self._threads[name] = thread

    def send(self, name: str, command: Command) -> None:
        """Send a command to a thread. Raises the errors of `ControlServer.send`."""
        self._running_server(name).send(name, command)

    def request(self, name: str, request: ThreadRequest[R], *, timeout_ms: int = 10_000) -> R:
        """Send a request to a thread. Raises the errors of `ControlServer.request`."""
        return self._running_server(name).request(name, request, timeout_ms)

    def post(self, name: str, request: ThreadRequest[Any]) -> Future[Any]:
        return self._running_server(name).post(name, request)

    def stop_thread(self, name: str, timeout_ms: int, command: Close = _CLOSE) -> bool:
        """Close one thread, and kill it if it does not end in time.

        Returns whether the thread ended by itself; True if the thread does not exist.
        """
        thread = self._thread(name)
        return thread is None or self._stop([thread], timeout_ms, command)

    def request_close(self, name: str, command: Close) -> None:
        """Send the close command to a thread, without waiting.

        The thread is not restarted.
        """
        if (thread := self._thread(name)) is not None:
            thread.request_close(command)

    def await_start(self, name: str) -> SparkError | None:
        """Wait until a thread has registered or ended.

        The wait takes at most `register_timeout_ms` if the thread gets no task slot, and at most
        two minutes if it does.

        Returns the error if Spark cannot run the thread.
        """
        thread = self._thread(name)
        return None if thread is None else thread.wait_started()

    def await_end(self, name: str, timeout_s: float | None) -> bool:
        thread = self._thread(name)
        return thread is None or thread.wait_ended(timeout_s)

    @property
    def is_event_thread(self) -> bool:
        return self._events.is_event_thread

    def _thread(self, name: str) -> HostedThread | None:
        with self._lock:
            return self._threads.get(name)

    def kill_after(self, name: str, within_ms: int) -> None:
        """Kill a closing thread if it has not ended after `within_ms`. Does not wait."""
        if (thread := self._thread(name)) is not None:
            thread.kill_after(within_ms)

    def close(self, timeout_ms: int = 60_000, command: Close = _CLOSE) -> bool:
        """Close all threads and release all resources.

        Threads that do not end in time are killed. This method takes at most the timeout, plus
        about 10 s if threads have to be killed. Idempotent. A session that Millstream started is
        stopped with all its worker processes, unless other engines use it. PySpark keeps the JVM
        for the next session and ends it with this process.

        Returns whether all threads ended by themselves, as opposed to being killed or lost by
        Spark. A thread that ended with a user error ended by itself.
        """
        with self._lock:
            if self._closed.is_set() or self._server is None:
                return True
            self._closed.set()
            threads = list(self._threads.values())
        with ExitStack() as cleanup:
            # Called in reverse order; an exception does not skip the other callbacks.
            cleanup.callback(show_traces)
            cleanup.callback(self._release_session)
            cleanup.callback(self._events.close, _KILL_TIMEOUT_S)
            cleanup.callback(self._server.close)
            cleanup.callback(self._end_monitor)
            return self._stop(threads, timeout_ms, command)

    def _end_monitor(self) -> None:
        self._released.set()
        if self._monitor.ident is not None and self._monitor is not threading.current_thread():
            self._monitor.join(_KILL_TIMEOUT_S)

    def _release_session(self) -> None:
        if self._host_session is not None and self._host_session.release():
            self._wait_for_processes()

    def force_close(self) -> None:
        """Make a running `close` or `stop_thread` kill the remaining threads now."""
        self._is_forced = True

    # ---- callbacks of the control server

    def on_registered(self, hello: Hello) -> None:
        with self._lock:
            thread = self._threads.get(hello.thread_name)
            if hello.host == socket.gethostname():
                self._processes = {pid for pid in self._processes if is_running(pid)} | {hello.pid}
        if thread is not None:
            self._on_registering(hello.thread_name)
            thread.on_registered(hello)

    def on_report(self, hello: Hello, report: Report) -> None:
        if isinstance(report, ThreadExit):
            if (thread := self._thread(hello.thread_name)) is not None:
                thread.on_exit_report(hello, report)
            return
        self._events.put(ThreadEvent(hello.thread_name, "report", report))

    def _create_thread(
        self,
        name: str,
        index: int,
        payload: bytes,
        previous: HostedThread | None,
        timeouts: ThreadTimeouts,
        *,
        has_run: bool,
        pause_ms: int,
    ) -> HostedThread:
        session, server, jobs = self.session, self._server, self._jobs
        assert server is not None
        assert jobs is not None
        placement = previous.placement if previous is not None else None
        if self._keeps_state and placement is None and not is_local(session):
            placement = ThreadPlacement(name, jobs)
        folders = module_path() if is_local(session) else ()
        loggers = LoggingSetup.capture()

        def plan_of(submission: int) -> bytes:
            return pickle.dumps(
                ThreadPlan(
                    self._application_id,
                    name,
                    index,
                    submission,
                    server.address,
                    self._authkey,
                    self._versions,
                    loggers,
                    self._grace_ms,
                    folders,
                    b"" if self._identity is None else self._identity.certificate,
                    first_attempt_only=placement is not None,
                )
            )

        return HostedThread(
            name,
            payload,
            plan_of,
            self._versions,
            jobs,
            server,
            self._events.put,
            next_submission=lambda: next(self._submissions),
            needed=lambda: len(self.threads),
            slots=lambda: slots(session),
            policy=self._restart_policy,
            timeouts=timeouts,
            clock=self._clock,
            has_run=has_run,
            pause_ms=pause_ms,
            placement=placement,
        )

    def _running_server(self, name: str) -> ControlServer:
        if self._server is None:
            raise ThreadUnavailableError(
                f"Stream thread {name} does not exist: the Spark engine has not been started."
            )
        return self._server

    def _stop(self, threads: list[HostedThread], timeout_ms: int, command: Close) -> bool:
        for thread in threads:
            thread.request_close(command)
        deadline = time.monotonic() + timeout_ms / 1000
        for thread in threads:
            while not self._is_forced and (left_s := deadline - time.monotonic()) > 0:
                if thread.wait_ended(min(left_s, _CHECK_INTERVAL_S)):
                    break
        late = [thread for thread in threads if not thread.ended]
        if late:
            self._kill(late)
        return not any(thread.was_killed or thread.was_lost for thread in threads)

    def _kill(self, late: list[HostedThread]) -> None:
        logger.warning(
            "%d stream threads did not close in time and are killed: %s",
            len(late),
            ", ".join(short_name(thread.name) for thread in late),
        )
        for thread in late:
            thread.cancel()
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        for thread in late:
            thread.wait_ended(max(0.0, deadline - time.monotonic()))
        hellos = [thread.last_hello for thread in late]
        here = {hello.pid for hello in hellos if hello and hello.host == socket.gethostname()}
        # The job ends immediately, the process of its task a few seconds later.
        wait_for_end(here, deadline)

    def _run_monitor(self) -> None:
        while not self._released.wait(_CHECK_INTERVAL_S):
            with self._lock:
                threads = list(self._threads.values())
            for thread in threads:
                try:
                    thread.check()
                except Exception:
                    # Spark may be shutting down; the thread's job detects that.
                    logger.debug("Checking %s failed", thread.name, exc_info=True)
            try:
                if self._decommission_monitor is not None:
                    self._decommission_monitor.check(threads)
                self._on_check()
            except Exception:
                logger.exception("A periodic task of the Spark engine failed")

    def _wait_for_processes(self) -> None:
        left = wait_for_end(self._processes, time.monotonic() + _PROCESS_END_TIMEOUT_S)
        if left:
            logger.warning(
                "Worker processes are still running after Spark was stopped: %s", sorted(left)
            )


def wait_for_end(pids: set[int], deadline: float) -> set[int]:
    """Wait until these processes have ended, or until the deadline.

    Returns the processes that are still running.
    """
    left = {pid for pid in pids if is_running(pid)}
    while left and time.monotonic() < deadline:
        time.sleep(0.05)
        left = {pid for pid in left if is_running(pid)}
    return left


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):
        # No such process, or the PID has been reused by a process of another user.
        return False
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        # The process has just ended, or this system has no /proc.
        return not Path("/proc/self").exists()
    # A zombie has ended, but its parent has not waited for it.
    return state not in "ZX"

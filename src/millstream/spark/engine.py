"""The driver's side: starts stream threads on Spark, supervises them, talks to them, ends them."""

from __future__ import annotations

import itertools
import logging
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
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.clock import Clock, SystemClock
from millstream.errors import IllegalStateError, SparkError, ThreadUnavailableError
from millstream.runtime.control import Close, Command, Question, Report
from millstream.spark.code.environment import installed_versions
from millstream.spark.code.module_path import module_path
from millstream.spark.code.shipping import ship
from millstream.spark.connection.control import GRACE_MS
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.encryption import Identity, make_identity
from millstream.spark.connection.messages import Hello, ThreadExit
from millstream.spark.departures import Departures
from millstream.spark.events import EventQueue, ThreadEvent
from millstream.spark.hosted_thread import HostedThread
from millstream.spark.jobs import SparkJobs
from millstream.spark.patience import Patience, RestartPolicy
from millstream.spark.placement import Placement
from millstream.spark.processes import runs, wait_for_end
from millstream.spark.py4j_traces import hide_traces, show_traces
from millstream.spark.sessions.free_slots import claim_slots
from millstream.spark.sessions.session import HostSession, is_local, resolve_session, slots
from millstream.spark.worker.worker_logging import LoggingSetup, short_name
from millstream.spark.worker.worker_task import ThreadMain, ThreadPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

R = TypeVar("R")

_CLOSE: Final = Close()

#: How often threads that are out of reach are looked after.
_CHECK_S: Final = 0.25
#: How long Spark takes to kill the process of a cancelled task: it looks every 2 seconds and then
#: gives it 2 more (spark.python.task.killTimeout); and some for a busy machine.
_KILL_S: Final = 8.0
#: How long processes may take to end once nothing keeps them.
_PROCESSES_END_S: Final = 12.0


class SparkEngine:
    """Runs the stream threads of one application instance as Spark tasks.

    Each thread is one Spark job of one task. The engine starts it again when its process, its
    executor or its connection is lost, as often as it takes; a thread that ended by itself, or by a
    user error, or that Spark cannot run at all, is reported and left to the owner.

    Args:
        session: where the threads run; None takes the active session, else starts a local one,
            which `close` stops when no other engine uses it.
        application_id: the application, as in Kafka.
        num_threads: how many threads there will be: the size of a session that is started here.
        on_event: told what happens to the threads, on a thread of its own. It should return soon:
            threads that report are slowed down while it does not.
        register_timeout_ms: how long a thread may take to register before it has failed.
        grace_ms: how long threads that lost the driver go on working.
        restart_policy: when a thread that dies is started again.
        listen_host: address to listen on; default: loopback for local masters, else all.
        listen_port: port to listen on; 0 takes a free one.
        advertised_host: how executors reach this machine; default: what Spark advertises itself.
        encrypted: whether the connections to the threads are; default: unless they are on this
            machine.
        clock: for intervals.
        given_up: asked while a session starts: whether nobody waits for this engine any more.
        connectors: what a session that is started here shall have (`connectors`).
        greet: called with the name of a thread that has registered, before anything else is said to
            it; what it sends is the first that the thread hears.
        look: called a few times a second, on the thread that looks after the threads.
        keeps_state: whether threads keep state on the disk of their host, so that one that is
            started again is best started there.

    Example:
        >>> with SparkEngine(None, "shop", num_threads=2, on_event=print) as engine:
        ...     engine.start_thread("shop-StreamThread-1", 1, main)  # doctest: +SKIP
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
        given_up: Callable[[], bool] = lambda: False,
        connectors: Sequence[str] = (),
        greet: Callable[[str], None] = lambda name: None,
        look: Callable[[], None] = lambda: None,
        keeps_state: bool = False,
    ) -> None:
        self._resolve = partial(
            resolve_session, session, num_threads, application_id, given_up, connectors
        )
        self._greet = greet
        self._look = look
        self._keeps_state = keeps_state
        self._application_id = application_id
        self._events = EventQueue(on_event)
        self._grace_ms = grace_ms
        # A thread that works through its grace period and then closes must not be disturbed.
        self._patience = Patience(register_timeout_ms, reconnect_ms=3 * grace_ms)
        self._restart_policy = restart_policy or RestartPolicy()
        self._encrypted = encrypted
        self._identity: Identity | None = None
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
        self._monitor = threading.Thread(target=self._watch, name="millstream-monitor", daemon=True)
        self._hurried = False
        self._host_session: HostSession | None = None
        self._server: ControlServer | None = None
        self._jobs: SparkJobs | None = None
        self._departures: Departures | None = None

    def start(self) -> None:
        """Find or start the session, and listen for threads.

        Raises:
            SparkError: there is no session that can host threads.
            OSError: the control port cannot be listened on.
            StartGivenUpError: `given_up` said so while a session was starting.
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
                self._identity = make_identity(session)
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
        self._departures = Departures(self._jobs, lambda: claim_slots(session, 1), self._clock)
        self._events.start()
        self._monitor.start()

    def __enter__(self) -> SparkEngine:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def session(self) -> SparkSession:
        """The session that hosts the threads."""
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
        anew: bool = False,
        register_ms: int | None = None,
    ) -> None:
        """Start a stream thread; events tell what becomes of it. Does not wait for anything.

        Args:
            name: a name that no running thread has.
            index: the number of the thread.
            main: the thread's code, called in the worker as `main(channel, attempt)` and returning
                a `ThreadExit`; or the bytes of it from `shipping.ship`.
            pause_ms: how long it is before Spark is asked to run it; less if it is closed.
            anew: whether nothing is concluded from an earlier thread of that name: then Spark has
                to prove that it has a place for it.
            register_ms: how long it may take to register, if not as long as all.

        Raises:
            NotPicklableError: the code holds something that cannot be shipped.
            IllegalStateError: the engine is not running, or a thread of that name is.
        """
        payload = main if isinstance(main, bytes) else ship(main, f"the code of {name}")
        with self._lock:
            # Under the lock: `close` closes the threads that it finds there.
            if self._server is None or self._jobs is None or self._closed.is_set():
                raise IllegalStateError(
                    f"Stream thread {name} cannot be started: the Spark engine is not running."
                )
            known = self._threads.get(name)
            if known is not None and not known.is_over:
                raise IllegalStateError(f"A stream thread of the name {name} is running already.")
            proven = known is not None and known.proven and not anew
            waits_ms = register_ms or self._patience.register_ms
            patience = replace(self._patience, register_ms=waits_ms)
            args = (self._server, self._jobs, known, patience, proven, pause_ms)
            thread = self._host(name, index, payload, *args)
            # A thread that does not run would never end, and waiting for its end would hang.
            threading.Thread(target=thread.run, name=f"{name}-job", daemon=True).start()
            self._threads[name] = thread

    def send(self, name: str, command: Command) -> None:
        """Send a thread a command.

        Raises:
            ThreadUnavailableError: the thread is not registered.
            NotPicklableError: the command cannot be shipped.
        """
        self._control(name).send(name, command)

    def request(self, name: str, question: Question[R], *, timeout_ms: int = 10_000) -> R:
        """Ask a thread and return its answer, which is raised if it is an exception.

        Raises:
            ThreadUnavailableError: the thread is not registered, or did not reply in time.
            NotPicklableError: the question cannot be shipped.
        """
        return self._control(name).request(name, question, timeout_ms)

    def post(self, name: str, question: Question[Any]) -> Future[Any]:
        """As `request`, without waiting: see `ControlServer.post`."""
        return self._control(name).post(name, question)

    def stop_thread(self, name: str, timeout_ms: int, command: Close = _CLOSE) -> bool:
        """Close one thread, and kill it if it does not end in time.

        Args:
            name: the thread.
            timeout_ms: milliseconds for it to close.
            command: how they are to close.

        Returns:
            Whether it ended by itself; True as well for one that is not there.
        """
        thread = self._thread(name)
        return thread is None or self._stop([thread], timeout_ms, command)

    def ask_to_close(self, name: str, command: Close) -> None:
        """Ask one thread to close, and do not start it again. Does not wait, and kills nobody."""
        if (thread := self._thread(name)) is not None:
            thread.ask_to_close(command)

    def await_start(self, name: str) -> SparkError | None:
        """Wait until a thread has registered, or has ended before: then why Spark cannot run it.

        Takes no longer than `register_timeout_ms` without a slot, and two minutes with one.
        """
        thread = self._thread(name)
        return None if thread is None else thread.wait_started()

    def await_end(self, name: str, timeout_s: float | None) -> bool:
        """Wait until a thread has ended; whether it has."""
        thread = self._thread(name)
        return thread is None or thread.wait_ended(timeout_s)

    @property
    def is_telling(self) -> bool:
        """Whether this is the thread on which `on_event` is called."""
        return self._events.is_telling

    def _thread(self, name: str) -> HostedThread | None:
        with self._lock:
            return self._threads.get(name)

    def expect_end(self, name: str, within_ms: int) -> None:
        """A thread says that it is ending: kill it if it has not ended by then. Does not wait.

        Args:
            name: the thread; one that is not there is none to wait for.
            within_ms: milliseconds from now.
        """
        thread = self._thread(name)
        if thread is not None:
            thread.expect_end(within_ms)

    def close(self, timeout_ms: int = 60_000, command: Close = _CLOSE) -> bool:
        """Close all threads, kill those that do not end in time, and release everything.

        Takes at most the timeout, plus about 10 seconds where threads have to be killed. Does
        nothing the second time. A session of ours is stopped with all its worker processes, unless
        other engines use it; PySpark keeps the JVM for the next one and ends it with this process.

        Args:
            timeout_ms: milliseconds for the threads to close.
            command: how they are to close.

        Returns:
            Whether all threads ended by themselves: False when some were killed, or Spark lost
            them. A thread that ended by an error of the user's did it by itself.
        """
        with self._lock:
            if self._closed.is_set() or self._server is None:
                return True
            self._closed.set()
            threads = list(self._threads.values())
        with ExitStack() as rest:
            # The last one is called first, and each whatever the others raise.
            rest.callback(show_traces)
            rest.callback(self._release_session)
            rest.callback(self._events.close, _KILL_S)
            rest.callback(self._server.close)
            rest.callback(self._end_monitor)
            return self._stop(threads, timeout_ms, command)

    def _end_monitor(self) -> None:
        self._released.set()
        if self._monitor.ident is not None and self._monitor is not threading.current_thread():
            self._monitor.join(_KILL_S)

    def _release_session(self) -> None:
        if self._host_session is not None and self._host_session.release():
            self._wait_for_processes()

    def hurry(self) -> None:
        """Let a `close` or `stop_thread` under way kill the threads that have not closed yet."""
        self._hurried = True

    # ---- what the control server tells

    def on_registered(self, hello: Hello) -> None:
        """A thread has registered. Called by the control server."""
        with self._lock:
            thread = self._threads.get(hello.thread_name)
            if hello.host == socket.gethostname():
                self._processes = {pid for pid in self._processes if runs(pid)} | {hello.pid}
        if thread is not None:
            self._greet(hello.thread_name)
            thread.on_registered(hello)

    def on_report(self, hello: Hello, report: Report) -> None:
        """A thread reported something. Called by the control server."""
        if isinstance(report, ThreadExit):
            if (thread := self._thread(hello.thread_name)) is not None:
                thread.on_told(hello, report)
            return
        self._events.put(ThreadEvent(hello.thread_name, "report", report))

    # ---- inside

    def _host(
        self,
        name: str,
        index: int,
        payload: bytes,
        server: ControlServer,
        jobs: SparkJobs,
        before: HostedThread | None,
        patience: Patience,
        proven: bool,
        pause_ms: int,
    ) -> HostedThread:
        session = self.session
        placement = before.placement if before is not None else None
        if self._keeps_state and placement is None and not is_local(session):
            placement = Placement(name, jobs)
        folders = module_path() if is_local(session) else ()
        loggers = LoggingSetup.of_this_process()

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
                    once=placement is not None,
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
            patience=patience,
            clock=self._clock,
            proven=proven,
            pause_ms=pause_ms,
            placement=placement,
        )

    def _control(self, name: str) -> ControlServer:
        if self._server is None:
            raise ThreadUnavailableError(f"Stream thread {name} is not there: nothing was started.")
        return self._server

    def _stop(self, threads: list[HostedThread], timeout_ms: int, command: Close) -> bool:
        for thread in threads:
            thread.ask_to_close(command)
        deadline = time.monotonic() + timeout_ms / 1000
        for thread in threads:
            while not self._hurried and (left_s := deadline - time.monotonic()) > 0:
                if thread.wait_ended(min(left_s, _CHECK_S)):
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
        deadline = time.monotonic() + _KILL_S
        for thread in late:
            thread.wait_ended(max(0.0, deadline - time.monotonic()))
        hellos = [thread.last_hello for thread in late]
        here = {hello.pid for hello in hellos if hello and hello.host == socket.gethostname()}
        # The job ends at once, the process of its task a few seconds later.
        wait_for_end(here, deadline)

    def _watch(self) -> None:
        while not self._released.wait(_CHECK_S):
            with self._lock:
                threads = list(self._threads.values())
            for thread in threads:
                try:
                    thread.check()
                except Exception:
                    # Spark may be shutting down; what ended is noticed by the thread's job.
                    logger.debug("Looking after %s failed", thread.name, exc_info=True)
            try:
                if self._departures is not None:
                    self._departures.look(threads)
                self._look()
            except Exception:
                logger.exception("What is to be looked after beside the threads failed")

    def _wait_for_processes(self) -> None:
        left = wait_for_end(self._processes, time.monotonic() + _PROCESSES_END_S)
        if left:
            logger.warning("Worker processes still run after Spark was stopped: %s", sorted(left))

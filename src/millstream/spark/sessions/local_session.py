"""The local Spark session that Millstream starts by default.

The applications of a process share the session. Starting the session takes seconds, or half a
minute on a busy machine. The session starts on a dedicated Python thread, so that the caller can
cancel the start, which terminates Spark's JVM. The session tracks its users and stops when the last
user is removed. PySpark keeps the JVM for the next session and ends it with this process.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import NotEnoughSlotsError, SparkError
from millstream.spark.sessions.connectors import add_to_jvm, session_settings
from millstream.spark.sessions.java_setup import ensure_java, ensure_user, log_in, user_hint

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: The number of task slots beyond those for the first application's threads. Other applications in
#: the process, and Spark queries, use them.
SPARE_SLOTS: Final = 4
#: How many times Spark attempts a thread's task if the task's process ends unexpectedly.
MAX_FAILURES: Final = 4

_POLL_INTERVAL_S: Final = 0.1
#: How long a JVM may take to end after SIGTERM, including the removal of its temporary folders.
_JVM_END_TIMEOUT_S: Final = 3.0
#: How long the starter thread may take to notice the end of the JVM; it polls every 0.1 s.
_CLEAN_UP_TIMEOUT_S: Final = 1.0
#: How long Spark may take to stop before its JVM is terminated.
_STOP_TIMEOUT_S: Final = 15.0


class StartCancelledError(Exception):
    """The start of Spark was canceled."""


class LocalSession:
    """A local session, which is starting, running or stopped.

    The session has slots for the threads of its first user and `SPARE_SLOTS` more. It starts once
    `previous` has stopped.
    """

    def __init__(
        self, num_threads: int, previous: LocalSession | None, connectors: Sequence[str] = ()
    ) -> None:
        self.slots = num_threads + SPARE_SLOTS
        self.session: SparkSession | None = None
        self._previous = previous
        self._connectors = connectors
        self._lock = threading.Lock()
        self._users: dict[object, tuple[str, int]] = {}
        self._error: SparkError | None = None
        self._jvm: subprocess.Popen[bytes] | None = None
        self._is_closing = False
        self._started = threading.Event()
        self._stopped = threading.Event()
        self._starter = threading.Thread(
            target=self._start, name="millstream-spark-start", daemon=True
        )

    @property
    def is_stopped(self) -> bool:
        """Whether the session was stopped, by Millstream or the user, or failed to start."""
        if self._stopped.is_set():
            return True
        return self.session is not None and not has_jvm(self.session.sparkContext)

    def add_user(self, user: object, application_id: str, num_threads: int) -> bool:
        """Add a user, and start the session for the first user.

        Returns False if the session is stopping. Raises a `NotEnoughSlotsError` if the session has
        too few slots for the threads of all users.
        """
        with self._lock:
            if self._is_closing or self.is_stopped:
                return False
            needed = num_threads + sum(threads for _, threads in self._users.values())
            if needed > self.slots:
                raise self._too_few_slots_error(application_id, num_threads, needed)
            first = not self._users
            self._users[user] = (application_id, num_threads)
        if first:
            try:
                self._starter.start()
            except RuntimeError as error:
                # The machine cannot start more threads. Other users may already be waiting.
                self._error = SparkError(f"Spark did not start on this machine: {error}.")
                self._is_closing = True
                self._started.set()
                self._stopped.set()
        return True

    def wait_started(self, user: object, is_cancelled: Callable[[], bool]) -> SparkSession:
        """Wait until the session has started, and return it.

        Raises a `SparkError` if the start fails, and a `StartCancelledError`, after removing the
        user, if `is_cancelled` returned True.
        """
        try:
            # The waits are short, so that signal handlers can run, and raise or set the flag.
            while not self._started.wait(_POLL_INTERVAL_S):
                if is_cancelled():
                    raise StartCancelledError
        except BaseException:
            self.remove_user(user)
            raise
        if self.session is None:
            raise self._error or SparkError("The start of Spark was canceled.")
        # PySpark has one active session per Python thread, and the starter thread has ended.
        jvm: Any = self.session.sparkContext._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.session._jsparkSession)
        return self.session

    def remove_user(self, user: object) -> bool:
        """Remove a user; return True if it was the last user and the session was stopped."""
        with self._lock:
            if self._users.pop(user, None) is None or self._users:
                return False
            self._is_closing = True
        if self._started.is_set():
            self._stop()
        else:
            # The starter thread cleans up. Ending the JVM, if it has started, wakes that thread.
            self._terminate_jvm()
            # If the process ended before that, a temporary folder of PySpark would remain.
            self._stopped.wait(_CLEAN_UP_TIMEOUT_S)
        return True

    def wait_stopped(self, timeout_s: float) -> bool:
        return self._stopped.wait(timeout_s)

    def _start(self) -> None:
        if self._previous is not None and self._previous._is_closing:
            self._previous.wait_stopped(_STOP_TIMEOUT_S + _JVM_END_TIMEOUT_S)
        try:
            if not self._is_closing:
                with without_traces(), _intercept_jvm_process(self._jvm_started):
                    self.session = start_local(self.slots, self._connectors)
        except SparkError as error:
            self._error = error
        except BaseException as error:
            self._error = SparkError(f"Spark did not start on this machine: {error!r}.")
        with self._lock:
            is_closing = self._is_closing = self._is_closing or self.session is None
            self._started.set()
        if is_closing:
            self._stop()

    def _jvm_started(self, process: subprocess.Popen[bytes]) -> None:
        self._jvm = process
        if self._is_closing:
            self._terminate_jvm()

    def _terminate_jvm(self) -> None:
        process = self._jvm
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_JVM_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()

    def _stop(self) -> None:
        """Stop Spark, and end the JVM if it does not respond."""
        session = self.session
        try:
            if session is not None and has_jvm(session.sparkContext):
                stopping = threading.Thread(target=_stop_quietly, args=(session,), daemon=True)
                stopping.start()
                stopping.join(_STOP_TIMEOUT_S)
                if stopping.is_alive():
                    logger.warning(
                        "Spark did not stop within %.0f s, so its JVM is terminated",
                        _STOP_TIMEOUT_S,
                    )
                    self._terminate_jvm()
            _discard_ended_jvm()
        finally:
            # The next session waits for this event.
            self._stopped.set()

    def _too_few_slots_error(
        self, application_id: str, num_threads: int, needed: int
    ) -> SparkError:
        users = ", ".join(f"{name} ({threads})" for name, threads in self._users.values())
        return NotEnoughSlotsError(
            f"The local Spark session of this process has {self.slots} task slots, and each "
            f"stream thread needs one. The session already runs the threads of {users}; with the "
            f"{num_threads} threads of {application_id}, it needs {needed} slots. Create a "
            "session that is large enough before the first application starts, for example "
            f'SparkSession.builder.master("local[{needed + SPARE_SLOTS}]").getOrCreate(), or run '
            "each application in its own process.",
            slots=self.slots,
            needed=needed,
        )


_current_lock = threading.Lock()
_current: LocalSession | None = None


def current_local_session() -> LocalSession | None:
    with _current_lock:
        return None if _current is None or _current.is_stopped else _current


def join_local_session(
    user: object,
    application_id: str,
    num_threads: int,
    is_cancelled: Callable[[], bool],
    connectors: Sequence[str] = (),
) -> LocalSession:
    """Add a user to the process's local session, and start it if necessary.

    An existing session keeps its connectors. Raises a `NotEnoughSlotsError` if the session has too
    few slots, and a `StartCancelledError` if `is_cancelled` returned True while an earlier session
    was stopping.
    """
    global _current
    while True:
        with _current_lock:
            if _current is None or _current.is_stopped:
                _current = LocalSession(num_threads, _current, connectors)
            local = _current
        if local.add_user(user, application_id, num_threads):
            return local
        if not local.wait_stopped(_POLL_INTERVAL_S) and is_cancelled():
            raise StartCancelledError


def has_jvm(context: SparkContext) -> bool:
    """Return whether a context is not stopped and its JVM is running.

    The JVM is only checked if PySpark started it.
    """
    if getattr(context, "_jsc", None) is None:
        return False
    process = getattr(context._gateway, "proc", None)
    return process is None or process.poll() is None


def start_local(slots: int, connectors: Sequence[str] = ()) -> SparkSession:
    """Start a quiet local session that is bound to loopback and has no web UI.

    Raises a `SparkError` if Spark does not start.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    _discard_ended_jvm()
    jvm_runs = SparkContext._gateway is not None
    if jvm_runs:
        add_to_jvm(SparkContext._jvm, connectors)
    else:
        ensure_java()
        ensure_user()
    settings = {**_settings(slots), **session_settings(connectors)}
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    conf = SparkConf().setAll(list(settings.items()))
    try:
        if not jvm_runs:
            log_in(conf)
        SparkContext.getOrCreate(conf)
        session: SparkSession = builder.getOrCreate()
    except Exception as error:
        raise SparkError(
            f"Spark did not start on this machine: {describe_start_failure(error)}"
        ) from error
    if jvm_runs:
        session.sparkContext.setLogLevel("WARN")
    session.sparkContext.pythonExec = sys.executable
    return session


def _settings(slots: int) -> dict[str, str]:
    log4j = Path(__file__).with_name("log4j2.properties")
    return {
        "spark.master": f"local[{slots},{MAX_FAILURES}]",
        "spark.app.name": "millstream",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # The JVM only schedules the threads and processes no records.
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": (
            # Spark processes long stack traces recursively, which overflows 1 MB thread stacks.
            f"-XX:+UseSerialGC -Xms64m -Xss4m -Dlog4j2.configurationFile={log4j.as_uri()}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.speculation": "false",
        # Spark's default of 200 is meant for clusters: with it, each batch of a query with a
        # shuffle would run 200 tasks, and a streaming query can never change the number.
        "spark.sql.shuffle.partitions": str(slots),
        "spark.sql.catalogImplementation": "in-memory",
    }


@contextmanager
def _intercept_jvm_process(started: Callable[[subprocess.Popen[bytes]], None]) -> Iterator[None]:
    """Intercept the process that PySpark starts for its JVM.

    The process is put in its own process group. PySpark only exposes the process after the JVM has
    started, which takes long. In its own process group, the JVM does not receive signals that a
    terminal or supervisor sends to the driver's group. Therefore, the JVM ends only after the
    driver has closed, and components that still need the JVM log no warnings.
    """
    from pyspark import java_gateway

    launching = threading.get_ident()
    names = vars(java_gateway)
    popen = names["Popen"]

    def recording(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        is_jvm = threading.get_ident() == launching
        if is_jvm and os.name == "posix":
            options.setdefault("process_group", 0)
        process: subprocess.Popen[bytes] = popen(*arguments, **options)
        if is_jvm:
            started(process)
        return process

    names["Popen"] = recording
    try:
        yield
    finally:
        names["Popen"] = popen


def _stop_quietly(session: SparkSession) -> None:
    began = time.monotonic()
    try:
        session.stop()
    except Exception as error:
        # The JVM was most likely killed, so nothing is left to stop.
        took_s = time.monotonic() - began
        logger.warning("Stopping the Spark session failed after %.1f s: %s", took_s, error)


def _discard_ended_jvm() -> None:
    """Reset PySpark's state if its JVM has ended, so that PySpark starts a new one."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None or gateway.proc is None or gateway.proc.poll() is None:
        return
    context = SparkContext._active_spark_context
    if context is not None:
        with warnings.catch_warnings(), suppress(Exception):
            # Ignore the errors and warnings of py4j about the ended JVM.
            warnings.simplefilter("ignore")
            context.stop()
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def describe_start_failure(error: BaseException) -> str:
    """Return the first line of a start error.

    A hint is added if the system user is unusual.
    """
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    sentences = (f"{line}.", user_hint(), "See Spark's messages above for details.")
    return " ".join(filter(None, sentences))


# py4j logs the stack traces of errors that it also raises and that Millstream logs anyway.
_PY4J_FOLDER: Final = f"{os.sep}py4j{os.sep}"
_traces_lock = threading.Lock()
_hide_count = 0


def hide_traces() -> None:
    """Hide py4j's log records until `show_traces` has been called as many times."""
    global _hide_count
    with _traces_lock:
        _hide_count += 1
        # py4j logs to the root logger.
        logging.getLogger().addFilter(_should_log)


def show_traces() -> None:
    global _hide_count
    with _traces_lock:
        _hide_count -= 1
        if _hide_count == 0:
            logging.getLogger().removeFilter(_should_log)


@contextmanager
def without_traces() -> Iterator[None]:
    hide_traces()
    try:
        yield
    finally:
        show_traces()


def _should_log(record: logging.LogRecord) -> bool:
    is_debugging = logging.getLogger("millstream").isEnabledFor(logging.DEBUG)
    return is_debugging or _PY4J_FOLDER not in record.pathname

"""The local session that Millstream starts where there is none, for all applications of a process.

Starting it takes seconds, on a busy machine half a minute. It is started on a Python thread of its
own, so that whoever waits for it may give up: then Spark's JVM is ended in the midst of its start.
Its users are counted, and the last one to go stops it. PySpark keeps the JVM for the next session
and ends it with this process.
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
from millstream.spark.py4j_traces import without_traces
from millstream.spark.sessions.connectors import add_to_jvm, session_settings
from millstream.spark.sessions.driver_user import log_in, peculiarities, see_to_user
from millstream.spark.sessions.java_of_spark import see_to_java

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Task slots beside those of the first application's threads: for more applications in the process,
#: and for queries with Spark.
SPARE_SLOTS: Final = 4
#: How often the session starts a thread's task again by itself when its process dies.
MAX_FAILURES: Final = 4

_LOOK_S: Final = 0.1
#: How long a JVM may take to end by itself, which removes its temporary folders.
_JVM_ENDS_S: Final = 3.0
#: How long Spark may take to stop before its JVM is ended instead.
_STOP_S: Final = 15.0


class StartGivenUpError(Exception):
    """Nobody waits for the start of Spark any more."""


class LocalSession:
    """One local session: starting, started, or over.

    Args:
        num_threads: how many stream threads its first user has.
        after: an earlier session, which has to be over before this one starts.
        connectors: what Spark shall have beside what PySpark brings (see `connectors`).
    """

    def __init__(
        self, num_threads: int, after: LocalSession | None, connectors: Sequence[str] = ()
    ) -> None:
        self.slots = num_threads + SPARE_SLOTS
        self.session: SparkSession | None = None
        self._after = after
        self._connectors = connectors
        self._lock = threading.Lock()
        self._users: dict[object, tuple[str, int]] = {}
        self._error: SparkError | None = None
        self._jvm: subprocess.Popen[bytes] | None = None
        self._unwanted = False
        self._started = threading.Event()
        self._over = threading.Event()
        self._starter = threading.Thread(
            target=self._start, name="millstream-spark-start", daemon=True
        )

    @property
    def is_over(self) -> bool:
        """Whether it has been stopped, by us or by its user, or never came to be."""
        if self._over.is_set():
            return True
        return self.session is not None and not has_jvm(self.session.sparkContext)

    def join(self, user: object, application_id: str, num_threads: int) -> bool:
        """Count one more user, and start the session for the first; False if it is ending.

        Raises:
            NotEnoughSlotsError: it has too few slots for the threads of all its users.
        """
        with self._lock:
            if self._unwanted or self.is_over:
                return False
            needed = num_threads + sum(threads for _, threads in self._users.values())
            if needed > self.slots:
                raise self._too_small(application_id, num_threads, needed)
            first = not self._users
            self._users[user] = (application_id, num_threads)
        if first:
            try:
                self._starter.start()
            except RuntimeError as error:
                # The machine has no thread left. Others may wait for this session already.
                self._error = SparkError(f"Spark did not start on this machine: {error}.")
                self._unwanted = True
                self._started.set()
                self._over.set()
        return True

    def wait_started(self, user: object, given_up: Callable[[], bool]) -> SparkSession:
        """The session, once it is there.

        Raises:
            SparkError: it did not start.
            StartGivenUpError: `given_up` said so; the user is not counted any more.
        """
        try:
            # In short steps: a signal handler that raises or asks to give up is heard in between.
            while not self._started.wait(_LOOK_S):
                if given_up():
                    raise StartGivenUpError
        except BaseException:
            self.leave(user)
            raise
        if self.session is None:
            raise self._error or SparkError("The start of Spark was given up.")
        # PySpark knows active sessions by Python thread, and the one that started it is gone.
        jvm: Any = self.session.sparkContext._jvm
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.session._jsparkSession)
        return self.session

    def leave(self, user: object) -> bool:
        """Count one user less; whether that was the last, so that the session has been stopped."""
        with self._lock:
            if self._users.pop(user, None) is None or self._users:
                return False
            self._unwanted = True
        if self._started.is_set():
            self._stop()
        else:
            # Its starter sees that it is not wanted; the JVM may be another one's or none yet.
            self._end_jvm()
        return True

    def wait_over(self, timeout_s: float) -> bool:
        """Wait until it is over; whether it is."""
        return self._over.wait(timeout_s)

    def _start(self) -> None:
        if self._after is not None and self._after._unwanted:
            self._after.wait_over(_STOP_S + _JVM_ENDS_S)
        try:
            if not self._unwanted:
                with without_traces(), _recording_jvm(self._jvm_started):
                    self.session = start_local(self.slots, self._connectors)
        except SparkError as error:
            self._error = error
        except BaseException as error:
            self._error = SparkError(f"Spark did not start on this machine: {error!r}.")
        with self._lock:
            unwanted = self._unwanted = self._unwanted or self.session is None
            self._started.set()
        if unwanted:
            self._stop()

    def _jvm_started(self, process: subprocess.Popen[bytes]) -> None:
        self._jvm = process
        if self._unwanted:
            self._end_jvm()

    def _end_jvm(self) -> None:
        process = self._jvm
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(_JVM_ENDS_S)
        except subprocess.TimeoutExpired:
            process.kill()

    def _stop(self) -> None:
        """Stop Spark, with its JVM where that does not answer any more."""
        session = self.session
        try:
            if session is not None and has_jvm(session.sparkContext):
                stopping = threading.Thread(target=_stop_quietly, args=(session,), daemon=True)
                stopping.start()
                stopping.join(_STOP_S)
                if stopping.is_alive():
                    logger.warning("Spark did not stop within %.0f s: its JVM is ended", _STOP_S)
                    self._end_jvm()
            _forget_ended_jvm()
        finally:
            # The next session waits for it.
            self._over.set()

    def _too_small(self, application_id: str, num_threads: int, needed: int) -> SparkError:
        users = ", ".join(f"{name} ({threads})" for name, threads in self._users.values())
        return NotEnoughSlotsError(
            f"The local Spark session of this process has {self.slots} task slots, one for each "
            f"stream thread. Threads of other applications run in it: {users}; with the "
            f"{num_threads} of {application_id} it would be {needed}. Create a session that is "
            "large enough for all before the first of them starts, for example "
            f'SparkSession.builder.master("local[{needed + SPARE_SLOTS}]").getOrCreate(), or run '
            "the applications in a process each.",
            slots=self.slots,
            needed=needed,
        )


_current_lock = threading.Lock()
_current: LocalSession | None = None


def current_local() -> LocalSession | None:
    """The local session of this process that Millstream has started, unless it is over."""
    with _current_lock:
        return None if _current is None or _current.is_over else _current


def join_local(
    user: object,
    application_id: str,
    num_threads: int,
    given_up: Callable[[], bool],
    connectors: Sequence[str] = (),
) -> LocalSession:
    """Become a user of the local session of this process, which is started if there is none.

    One that is there already keeps the connectors that it was started with.

    Raises:
        NotEnoughSlotsError: other applications use it, and it has too few slots for this one, too.
        StartGivenUpError: `given_up` said so while an earlier session was still ending.
    """
    global _current
    while True:
        with _current_lock:
            if _current is None or _current.is_over:
                _current = LocalSession(num_threads, _current, connectors)
            local = _current
        if local.join(user, application_id, num_threads):
            return local
        if not local.wait_over(_LOOK_S) and given_up():
            raise StartGivenUpError


def has_jvm(context: SparkContext) -> bool:
    """Whether a context is not stopped and its JVM, as far as PySpark has started it, runs."""
    if getattr(context, "_jsc", None) is None:
        return False
    process = getattr(context._gateway, "proc", None)
    return process is None or process.poll() is None


def start_local(slots: int, connectors: Sequence[str] = ()) -> SparkSession:
    """Start a quiet local session: bound to loopback, no web UI.

    Raises:
        SparkError: there is no Java, Spark does not start, or a connector cannot be had.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    _forget_ended_jvm()
    jvm_runs = SparkContext._gateway is not None
    if jvm_runs:
        add_to_jvm(SparkContext._jvm, connectors)
    else:
        see_to_java()
        see_to_user()
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
        raise SparkError(f"Spark did not start on this machine: {start_failure(error)}") from error
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
        # The JVM only places the threads: records never pass through it.
        "spark.driver.memory": "768m",
        "spark.driver.extraJavaOptions": (
            # Spark looks through long traces by recursion, on threads with 1 MB of stack otherwise.
            f"-XX:+UseSerialGC -Xms64m -Xss4m -Dlog4j2.configurationFile={log4j.as_uri()}"
        ),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        "spark.speculation": "false",
        # Spark's 200 are for a cluster: here each batch of a query with a shuffle would take as
        # many tasks, and a query keeps the number for ever.
        "spark.sql.shuffle.partitions": str(slots),
        "spark.sql.catalogImplementation": "in-memory",
    }


@contextmanager
def _recording_jvm(started: Callable[[subprocess.Popen[bytes]], None]) -> Iterator[None]:
    """Learn which process PySpark starts for its JVM, as soon as it does, and give it a process
    group of its own.

    PySpark tells it only when the JVM is up, which is what takes long. A signal to the group of the
    driver, from a terminal or a supervisor, is the driver's: the JVM ends when the driver has
    closed, without warnings about everything that it was still needed for.
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
        # Its JVM was killed, most likely, and then there is nothing left to stop.
        took_s = time.monotonic() - began
        logger.warning("Stopping the Spark session failed after %.1f s: %s", took_s, error)


def _forget_ended_jvm() -> None:
    """Let PySpark start another JVM if the one it knows has ended."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None or gateway.proc is None or gateway.proc.poll() is None:
        return
    context = SparkContext._active_spark_context
    if context is not None:
        with warnings.catch_warnings(), suppress(Exception):
            # That a JVM which has ended cannot be stopped in order, whichever way py4j says so.
            warnings.simplefilter("ignore")
            context.stop()
    with SparkContext._lock:
        SparkContext._active_spark_context = None
        SparkContext._gateway = None
        SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def start_failure(error: BaseException) -> str:
    """The first line of an error of Spark's start, with what is unusual about the user."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    sentences = (f"{line}.", peculiarities(), "Spark's own messages above may say more.")
    return " ".join(filter(None, sentences))

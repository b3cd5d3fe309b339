"""Finds the Spark session for the stream threads.

This is the caller's session, the active session, or a new one. By default, a new session is a local
one, which all applications of a process share (`local_session`).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import util
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import NotEnoughSlotsError, SparkError
from millstream.spark.sessions.java_setup import ensure_java, ensure_user, log_in
from millstream.spark.sessions.local_session import (
    SPARE_SLOTS,
    LocalSession,
    current_local_session,
    describe_start_failure,
    join_local_session,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: The tag of all Millstream jobs.
JOB_TAG: Final = "millstream"
#: The environment variable that spark-submit sets for Python programs.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
#: The environment variable that `millstream run --spark MASTER` sets.
MASTER_VARIABLE: Final = "MILLSTREAM_SPARK_MASTER"

_PYSPARK_INTERRUPT_HANDLER: Final = "SparkContext._do_init.<locals>.signal_handler"
#: Variables that make PySpark always create Spark Connect sessions.
_CONNECT_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")

_ALTERNATIVES: Final = (
    "Stream threads need a classic session: create it with "
    'SparkSession.builder.master("spark://..."), or run the program with spark-submit, without '
    "spark.remote, SPARK_REMOTE and spark.api.mode=connect. If the rest of the program needs "
    "Spark Connect, run the Millstream application as a separate program, and query its state "
    "over HTTP (streams.serve())."
)


def is_connect(session: object) -> bool:
    return type(session).__module__.startswith("pyspark.sql.connect")


def reject_connect(session: object) -> None:
    """Raise a `SparkError` if this is a Spark Connect session.

    The error describes the alternatives.
    """
    if is_connect(session):
        raise SparkError(
            "The session is a Spark Connect session, whose server supports neither long-running "
            f"tasks nor connections from workers to this program. {_ALTERNATIVES}"
        )


def reject_connect_mode(environment: Mapping[str, str] = os.environ) -> None:
    """Raise a `SparkError` if the environment restricts PySpark to Spark Connect.

    A classic session that the caller passes is still accepted.
    """
    for name in _CONNECT_VARIABLES:
        if environment.get(name):
            raise SparkError(
                f"{name} is set, so this process can only create Spark Connect sessions, whose "
                f"server does not support long-running tasks. {_ALTERNATIVES}"
            )


def has_pyspark() -> bool:
    return util.find_spec("pyspark") is not None


def require_pyspark() -> None:
    """Raise a `SparkError` with the installation command if PySpark is not installed.

    PySpark is an optional extra, because it is large and not needed to write and test topologies.
    """
    if not has_pyspark():
        raise SparkError(
            "Spark runs the stream threads, but PySpark is not installed. Run: "
            "pip install 'millstream[spark]'"
        )


@dataclass(frozen=True)
class HostSession:
    """The session that runs the threads of one application instance."""

    session: SparkSession
    #: The shared local session, if Millstream started the session.
    local: LocalSession | None = None
    #: An object that identifies the instance as a user of the shared local session.
    user: object = None

    def release(self) -> bool:
        """Release the session; return True if this stopped it.

        Only a session that Millstream started is stopped, when its last user releases it.
        """
        return self.local is not None and self.local.remove_user(self.user)


def resolve_session(
    spark: SparkSession | None,
    num_threads: int,
    application_id: str = "",
    is_cancelled: Callable[[], bool] = lambda: False,
    connectors: Sequence[str] = (),
) -> HostSession:
    """Find or start the session.

    Args:
        spark: the caller's session. If None, the active session is used, or else a session on the
            master that this program was started with, or else a new local session.
        application_id: identifies the user in error messages.
        is_cancelled: polled while a session starts; returns True to cancel the start.
        connectors: the connectors of a new session. For other sessions, see `connectors.require`.

    Raises:
        SparkError: Spark or Java is missing, Spark does not start, or the session cannot run
            stream threads.
        NotEnoughSlotsError: the shared local session has too few slots for this application.
        StartCancelledError: `is_cancelled` returned True.
    """
    ours = current_local_session()
    if spark is None and ours is None:
        # Check before the search for a session, which would connect to the Spark Connect server.
        reject_connect_mode()
    session = spark or (find_session() if ours is None else None)
    if session is None or (
        ours is not None
        and ours.session is not None
        and ours.session.sparkContext is session.sparkContext
    ):
        user = object()
        local = join_local_session(user, application_id, num_threads, is_cancelled, connectors)
        session = local.wait_started(user, is_cancelled)
        return HostSession(session, local, user)
    check_session(session)
    _replace_interrupt_handler(session)
    use_driver_python(session)
    return HostSession(session)


def check_session(session: SparkSession) -> None:
    """Raise a `SparkError` if a session cannot run stream threads.

    Unsuitable sessions are stopped sessions, Spark Connect sessions, and sessions whose settings
    could run a thread twice or kill a thread that is waiting for records.
    """
    reject_connect(session)
    if getattr(session.sparkContext, "_jsc", None) is None:
        raise SparkError("The Spark session has been stopped. Create and pass a new one.")
    conf = session.sparkContext.getConf()
    if conf.get("spark.speculation", "false").lower() == "true":
        raise SparkError(
            "The Spark session has spark.speculation=true: Spark could start a second copy of "
            "a stream thread. Set spark.speculation to false."
        )
    kills_idle = conf.get("spark.python.worker.killOnIdleTimeout", "false").lower() == "true"
    if kills_idle and conf.get("spark.python.worker.idleTimeoutSeconds", "0") not in ("0", "0s"):
        raise SparkError(
            "The Spark session has spark.python.worker.killOnIdleTimeout=true with an idle "
            "timeout: Spark would consider stream threads idle and kill them. Set "
            "spark.python.worker.killOnIdleTimeout to false."
        )


def is_local(session: SparkSession) -> bool:
    """Return whether tasks run on this machine.

    Such tasks can reach the driver over loopback.
    """
    return str(session.sparkContext.master).startswith("local")


def slots(session: SparkSession) -> int:
    """Return the number of tasks that the session can currently run at a time."""
    context = session.sparkContext
    # On a cluster, Spark only exposes the current number of cores as the default parallelism.
    cores = _local_cores(context) or int(context.defaultParallelism)
    per_task = int(context.getConf().get("spark.task.cpus", "1") or 1)
    return max(1, cores // per_task)


def require_slots(session: SparkSession, num_threads: int) -> None:
    """Raise a `NotEnoughSlotsError` if a local session has too few slots.

    Each stream thread needs one slot. Sessions that are not local are not checked, because their
    executors may change at any time.
    """
    if _local_cores(session.sparkContext) and slots(session) < num_threads:
        raise NotEnoughSlotsError(
            f"The Spark session {session.sparkContext.master} has {slots(session)} task slots, but "
            f"each of the {num_threads} stream threads needs one. Use a larger session, for "
            f"example local[{num_threads + SPARE_SLOTS}], or run fewer stream threads "
            "(num_stream_threads).",
            slots=slots(session),
            needed=num_threads,
        )


def _local_cores(context: SparkContext) -> int | None:
    """Return the number of cores of a local master; None for other masters."""
    local = re.match(r"local(?:\[(\d+|\*)[,\]]|$)", str(context.master))
    if local is None:
        return None
    if local[1] == "*":
        jvm: Any = context._jvm
        return int(jvm.java.lang.Runtime.getRuntime().availableProcessors())
    return int(local[1] or 1)


def find_session() -> SparkSession | None:
    """Return the active session, or create one on the program's master.

    Returns None if the program has no master. Raises a `SparkError` if Spark or Java is missing, or
    if the session does not start.
    """
    require_pyspark()
    with _preserved_sigint_handler():
        return _find_session()


def _find_session() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # Spark has one active session per Python thread. A running context is equivalent.
        active = SparkSession.builder.getOrCreate()
    if active is None and _SUBMITTED in os.environ:
        # spark-submit has configured the master.
        active = SparkSession.builder.getOrCreate()
    elif active is None and os.environ.get(MASTER_VARIABLE):
        active = _session_on(os.environ[MASTER_VARIABLE])
    return active


@contextmanager
def _preserved_sigint_handler() -> Iterator[None]:
    """Restore the SIGINT handler, which PySpark replaces when it creates a context.

    `run` installs its handler before the session exists.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_main_thread = threading.current_thread() is threading.main_thread()
        if is_main_thread and before not in (None, signal.default_int_handler):
            signal.signal(signal.SIGINT, before)


def _session_on(master: str) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    ensure_java()
    ensure_user()
    try:
        log_in(SparkConf().setMaster(master))
        session: SparkSession = SparkSession.builder.master(master).getOrCreate()
    except Exception as error:
        raise SparkError(
            f"Spark could not start a session on the master {master}: "
            f"{describe_start_failure(error)}"
        ) from error
    return session


def use_driver_python(session: SparkSession) -> None:
    """Make workers on this machine use the driver's Python.

    PYSPARK_PYTHON takes precedence if it is set. By default, PySpark runs the first `python3` on
    the PATH, which belongs to another environment if the driver's virtual environment has not been
    activated.
    """
    if is_local(session) and "PYSPARK_PYTHON" not in os.environ:
        session.sparkContext.pythonExec = sys.executable


def _replace_interrupt_handler(session: SparkSession) -> None:
    """Replace PySpark's SIGINT handler, which cancels all jobs.

    The new handler does not cancel the jobs of stream threads. With PySpark's handler, interrupting
    a query in a notebook would kill the threads, and Ctrl-C in a script would kill them before they
    can close.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    handler: Any = signal.getsignal(signal.SIGINT)
    if getattr(handler, "__qualname__", "") != _PYSPARK_INTERRUPT_HANDLER:
        return

    def interrupt(_: int, __: FrameType | None) -> None:
        try:
            _cancel_other_jobs(session.sparkContext)
        finally:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)


def _cancel_other_jobs(context: SparkContext) -> None:
    jvm_context: Any = getattr(context, "_jsc", None)
    if jvm_context is None:
        return
    tracker = jvm_context.sc().statusTracker()
    ours = set(tracker.getJobIdsForTag(JOB_TAG))
    for job in tracker.getActiveJobIds():
        if job not in ours:
            jvm_context.sc().cancelJob(job)

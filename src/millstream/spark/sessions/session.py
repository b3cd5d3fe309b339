"""The Spark session that hosts the stream threads: the caller's, the active one, or our own.

Our own is a quiet local one, which all applications of a process share (`local_session`).
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import NotEnoughSlotsError, SparkError
from millstream.spark.sessions.driver_user import log_in, see_to_user
from millstream.spark.sessions.installed import require_pyspark
from millstream.spark.sessions.java_of_spark import see_to_java
from millstream.spark.sessions.local_session import (
    SPARE_SLOTS,
    LocalSession,
    current_local,
    join_local,
    start_failure,
)
from millstream.spark.sessions.spark_connect import refuse_connect, refuse_connect_mode

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

#: Every job of ours carries this tag, whatever the application.
JOB_TAG: Final = "millstream"
#: Set by spark-submit for the Python programs that it runs.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
#: Set by `millstream run --spark` to the master that it was given.
MASTER_VARIABLE: Final = "MILLSTREAM_SPARK_MASTER"

_PYSPARK_INTERRUPT_HANDLER: Final = "SparkContext._do_init.<locals>.signal_handler"


class HostSession:
    """The session that hosts the threads of one application instance.

    Args:
        session: the session.
        local: the shared one that this is, if Millstream has started it.
        user: as whom the instance is counted there.
    """

    def __init__(
        self, session: SparkSession, local: LocalSession | None = None, user: object = None
    ) -> None:
        self.session = session
        self._local = local
        self._user = user

    @property
    def is_ours(self) -> bool:
        """Whether Millstream has started it."""
        return self._local is not None

    def release(self) -> bool:
        """Give it back; whether it has been stopped, because it is ours and nobody else uses it."""
        return self._local is not None and self._local.leave(self._user)


def resolve_session(
    spark: SparkSession | None,
    num_threads: int,
    application_id: str = "",
    given_up: Callable[[], bool] = lambda: False,
    connectors: Sequence[str] = (),
) -> HostSession:
    """Find or start the session.

    Args:
        spark: the caller's session, or None: then the active one, else one on the master that
            this program was started with, else a local one is started.
        num_threads: how many stream threads it has to host.
        application_id: who wants it, for messages to those who come later.
        given_up: asked again and again while a session starts: whether nobody waits for it.
        connectors: with what a session is started here; others are asked by `connectors.require`.

    Raises:
        SparkError: there is no Spark or no Java, Spark does not start, or the session cannot host
            threads.
        NotEnoughSlotsError: it is our own one, used by others, and too small for this one, too.
        StartGivenUpError: `given_up` said so.
    """
    ours = current_local()
    if spark is None and ours is None:
        # To look for a session would already be a matter of its server's.
        refuse_connect_mode()
    session = spark or (session_at_hand() if ours is None else None)
    if session is None or (
        ours is not None
        and ours.session is not None
        and ours.session.sparkContext is session.sparkContext
    ):
        user = object()
        local = join_local(user, application_id, num_threads, given_up, connectors)
        session = local.wait_started(user, given_up)
        return HostSession(session, local, user)
    check_session(session)
    _spare_our_jobs_on_interrupt(session)
    use_this_python(session)
    return HostSession(session)


def check_session(session: SparkSession) -> None:
    """Refuse a session in which stream threads cannot live.

    Raises:
        SparkError: it is stopped, a Spark Connect session, or its settings would run a thread
            twice or kill it while it waits for records.
    """
    refuse_connect(session)
    if getattr(session.sparkContext, "_jsc", None) is None:
        raise SparkError("The Spark session has been stopped. Create a new one and give that.")
    conf = session.sparkContext.getConf()
    if conf.get("spark.speculation", "false").lower() == "true":
        raise SparkError(
            "The Spark session has spark.speculation=true: Spark would start a second copy of "
            "each stream thread. Set it to false."
        )
    kills_idle = conf.get("spark.python.worker.killOnIdleTimeout", "false").lower() == "true"
    if kills_idle and conf.get("spark.python.worker.idleTimeoutSeconds", "0") not in ("0", "0s"):
        raise SparkError(
            "The Spark session has spark.python.worker.killOnIdleTimeout=true with an idle "
            "timeout: Spark would kill stream threads, which do not talk to it. Set it to false."
        )


def is_local(session: SparkSession) -> bool:
    """Whether the tasks run on this machine, so that loopback reaches the driver."""
    return str(session.sparkContext.master).startswith("local")


def slots(session: SparkSession) -> int:
    """How many tasks the session can run at a time, as far as it knows now."""
    context = session.sparkContext
    # Elsewhere Spark tells only the default parallelism, which is the number of cores it has got.
    cores = _local_cores(context) or int(context.defaultParallelism)
    per_task = int(context.getConf().get("spark.task.cpus", "1") or 1)
    return max(1, cores // per_task)


def require_slots(session: SparkSession, num_threads: int) -> None:
    """Refuse a local session which can never run that many stream threads.

    Of others it is not known: executors may come and go.

    Raises:
        NotEnoughSlotsError: it has fewer task slots.
    """
    if _local_cores(session.sparkContext) and slots(session) < num_threads:
        raise NotEnoughSlotsError(
            f"The Spark session {session.sparkContext.master} has {slots(session)} task slots, but "
            f"each of the {num_threads} stream threads needs one. Make the session larger, for "
            f"example local[{num_threads + SPARE_SLOTS}], or run fewer stream threads "
            "(num_stream_threads).",
            slots=slots(session),
            needed=num_threads,
        )


def _local_cores(context: SparkContext) -> int | None:
    """How many cores a local master was given; None for any other."""
    local = re.match(r"local(?:\[(\d+|\*)[,\]]|$)", str(context.master))
    if local is None:
        return None
    if local[1] == "*":
        jvm: Any = context._jvm
        return int(jvm.java.lang.Runtime.getRuntime().availableProcessors())
    return int(local[1] or 1)


def session_at_hand() -> SparkSession | None:
    """The session of this process, or that it is to have; None if there is none.

    Raises:
        SparkError: Spark is not installed, there is no Java for it, or no session on the master
            that this program was given.
    """
    require_pyspark()
    with _handler_kept():
        return _session_at_hand()


def _session_at_hand() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is None and SparkContext._active_spark_context is not None:
        # Active means to Spark: on this Python thread. A context that runs is as good.
        active = SparkSession.builder.getOrCreate()
    if active is None and _SUBMITTED in os.environ:
        # A program that spark-submit runs has been given a master: that is where it shall run.
        active = SparkSession.builder.getOrCreate()
    elif active is None and os.environ.get(MASTER_VARIABLE):
        active = _session_on(os.environ[MASTER_VARIABLE])
    return active


@contextmanager
def _handler_kept() -> Iterator[None]:
    """Give Ctrl-C back to who had it: PySpark takes it over where it makes a context.

    `run` heeds signals before there is a session, and would never hear of this one again.
    """
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        is_ours = threading.current_thread() is threading.main_thread()
        if is_ours and before not in (None, signal.default_int_handler):
            signal.signal(signal.SIGINT, before)


def _session_on(master: str) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    see_to_java()
    see_to_user()
    try:
        log_in(SparkConf().setMaster(master))
        session: SparkSession = SparkSession.builder.master(master).getOrCreate()
    except Exception as error:
        raise SparkError(
            f"Spark has no session on the master {master}: {start_failure(error)}"
        ) from error
    return session


def use_this_python(session: SparkSession) -> None:
    """Let workers on this machine run the driver's Python, if nobody has chosen another. Workers
    elsewhere have their own.

    Without that PySpark takes whatever `python3` is on the PATH: not the one of a virtual
    environment that is used without being activated.
    """
    if is_local(session) and "PYSPARK_PYTHON" not in os.environ:
        session.sparkContext.pythonExec = sys.executable


def _spare_our_jobs_on_interrupt(session: SparkSession) -> None:
    """Replace PySpark's handler of Ctrl-C by one that cancels all jobs but the stream threads'.

    PySpark's cancels them all: interrupting a query in a notebook would kill the threads, and
    Ctrl-C in a script would kill them before they could close.
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

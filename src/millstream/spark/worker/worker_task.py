"""The Spark task of a stream thread, in the Python worker.

The task connects to the driver, runs the thread's code, and restores the state of the process,
because PySpark may reuse the process for another task. PySpark may also kill the process without
notice. Errors of the thread are returned as data; the Spark task itself fails only if its process
ends unexpectedly.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Final

from millstream.errors import EnvironmentMismatchError
from millstream.operators.concurrent.event_loop import THREAD_NAME
from millstream.spark.code.user_modules import driver_modules
from millstream.spark.connection.control_client import GRACE_MS, ControlChannel
from millstream.spark.connection.messages import Epoch, Hello, ThreadExit, encode_value
from millstream.spark.signal_handlers import Handler, installed_handlers
from millstream.spark.worker.process_setup import closed_in_forked_children
from millstream.spark.worker.worker_logging import LoggingSetup

logger = logging.getLogger(__name__)

#: How long a thread may take to close after a signal from its machine (not the driver).
GRACEFUL_STOP_S: Final = 10
#: The code of a stream thread. It returns soon after a `Close` command or when the channel is lost.
ThreadMain = Callable[[ControlChannel, Hello], ThreadExit]


@dataclass(frozen=True)
class ThreadPlan:
    """The data that a worker needs to register as a stream thread.

    The worker receives the thread's code and settings when it registers. Spark may write a task's
    data to disk and keep it until the session ends, so the only secret in the plan is the key of
    the application, which is useless once the application has ended.
    """

    application_id: str
    thread_name: str
    #: The lowest free number from 1, as in Kafka Streams.
    thread_index: int
    #: The number of this submission of the thread's job.
    epoch: int
    control_address: tuple[str, int]
    authkey: bytes = field(repr=False)
    versions: dict[str, str | None]
    logging: LoggingSetup
    grace_ms: int = GRACE_MS
    #: The driver's `sys.path`, for workers on the same machine.
    module_path: tuple[str, ...] = ()
    #: The driver's certificate in DER; empty if the connection is not encrypted.
    certificate: bytes = field(default=b"", repr=False)
    #: Whether to run only Spark's first attempt of the task. Spark would retry it on any host; the
    #: driver instead resubmits the job with a preference for the host that has the thread's state.
    first_attempt_only: bool = False


def run_plan(data: bytes) -> bytes:
    """Run a pickled `ThreadPlan` until the thread ends, in a Spark task.

    Returns the encoded `ThreadExit`, which contains any error of the thread's code. Such errors are
    never raised.
    """
    plan: ThreadPlan = pickle.loads(data)
    if plan.first_attempt_only and _is_retry():
        return encode_value(ThreadExit("lost", reason="its process or its executor ended"))
    started = set(threading.enumerate())
    with (
        closed_in_forked_children(),
        plan.logging.apply(plan.application_id, plan.thread_name),
        _log_dead_threads(),
        driver_modules(plan.module_path),
    ):
        thread_exit = _run_thread(plan)
        new = [thread.name for thread in threading.enumerate() if thread not in started]
        left = [name for name in new if name != THREAD_NAME]
        if left:
            logger.warning(
                "%s ended, but these threads are still running: %s",
                plan.thread_name,
                ", ".join(left),
            )
        return encode_value(thread_exit)


def _run_thread(plan: ThreadPlan) -> ThreadExit:
    attempt = Hello(
        plan.application_id,
        plan.thread_name,
        plan.thread_index,
        Epoch(plan.epoch, _spark_attempt()),
        os.getpid(),
        socket.gethostname(),
    )
    channel = ControlChannel(
        plan.control_address,
        plan.authkey,
        attempt,
        grace_ms=plan.grace_ms,
        certificate=plan.certificate,
    )
    try:
        with _close_on_signals(channel):
            if not channel.open():
                return ThreadExit("lost", reason=channel.lost_reason or "")
            thread_exit = _call_main(plan, channel, attempt)
            if channel.stop_signal is not None and thread_exit.kind == "closed":
                # The driver did not close the thread, so it has to run elsewhere.
                thread_exit = ThreadExit(
                    "lost", history=thread_exit.history, reason=channel.stop_signal
                )
            # If the JVM has already ended, only this report brings the result to the driver.
            channel.report(thread_exit)
            return thread_exit
    finally:
        channel.close()


def _call_main(plan: ThreadPlan, channel: ControlChannel, attempt: Hello) -> ThreadExit:
    try:
        try:
            main: ThreadMain = pickle.loads(channel.take_code())
        except ImportError as error:
            raise EnvironmentMismatchError(
                f"A worker on {attempt.host} cannot import what the topology needs: {error}. "
                "Install it on the executors, or ship it with spark.submit.pyFiles or "
                "spark.archives.",
                differences=[(error.name, "installed", None)] if error.name else [],
            ) from error
        thread_exit = main(channel, attempt)
        if not isinstance(thread_exit, ThreadExit):
            raise TypeError(f"The thread's code returned {thread_exit!r} instead of a ThreadExit.")
        return thread_exit
    except BaseException as error:
        # BaseException includes SystemExit and KeyboardInterrupt, which would end the process.
        logger.exception("%s ends with an error", plan.thread_name)
        return ThreadExit("error", error)


def _spark_attempt() -> int:
    """Return Spark's ID of this task attempt.

    The ID is unique, and greater for later attempts.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


def _is_retry() -> bool:
    """Return whether this attempt is a retry by Spark."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


@contextmanager
def _close_on_signals(channel: ControlChannel) -> Iterator[None]:
    """Close the thread gracefully when the executor ends.

    PySpark's daemon then sends SIGHUP. Without a handler, the loss of the executor, or the end of a
    driver that does not close its threads, would kill the thread in the middle of its work. An
    alarm limits the time to close and then ends the process, because neither the driver nor the
    executor can do so anymore.
    """

    def close(number: int, _: FrameType | None) -> None:
        if channel.stop_signal is None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(GRACEFUL_STOP_S)
            channel.stop_by_signal(signal.Signals(number).name, GRACEFUL_STOP_S * 1_000 // 2)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Handler] = {
        signal.SIGTERM: close,
        signal.SIGHUP: close,
        # Ctrl-C also reaches the driver, which then closes its threads.
        signal.SIGINT: signal.SIG_IGN,
    }
    try:
        with installed_handlers(handlers):
            yield
    finally:
        if channel.stop_signal == "SIGTERM":
            # PySpark's daemon is still running and may reuse this process for another task.
            signal.alarm(0)


@contextmanager
def _log_dead_threads() -> Iterator[None]:
    """Log exceptions that end a background thread of the user's code or of a library.

    By default, Python only writes such exceptions to stderr, without the time and the name of the
    stream thread.
    """

    def log_exception(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None or isinstance(args.exc_value, SystemExit):
            return
        name = "a background thread" if args.thread is None else args.thread.name
        exc_info = (args.exc_type, args.exc_value, args.exc_traceback)
        logger.error("%s ended with an exception and is not restarted", name, exc_info=exc_info)

    before, threading.excepthook = threading.excepthook, log_exception
    try:
        yield
    finally:
        threading.excepthook = before

"""What runs in the Python worker: the body of the Spark task that is a stream thread.

It connects to the driver, runs the thread's own code, and leaves nothing behind: PySpark may use
the same process for another task afterwards, or end it without any further ceremony. Whatever goes
wrong in the thread is returned as data; the Spark task itself fails only when its process dies.
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
from typing import Final, NamedTuple

from millstream.errors import EnvironmentMismatchError
from millstream.operators.apart.event_loop import THREAD_NAME
from millstream.spark.code.module_path import modules_of_the_driver
from millstream.spark.connection.control import GRACE_MS, ControlChannel
from millstream.spark.connection.messages import Epoch, Hello, ThreadExit, encode_value
from millstream.spark.signal_handlers import Handler, handling
from millstream.spark.worker.worker_logging import LoggingSetup
from millstream.spark.worker.worker_sockets import kept_from_children

logger = logging.getLogger(__name__)

#: Seconds that a thread has for closing when its machine, not the driver, tells it to end.
ORDERLY_STOP_S: Final = 10


class AttemptInfo(NamedTuple):
    """Which attempt of which stream thread this is, and where it runs."""

    application_id: str
    thread_name: str
    thread_index: int
    epoch: Epoch
    pid: int
    host: str


#: The code of a stream thread. It returns soon after a `close` command or when `channel.lost`.
ThreadMain = Callable[[ControlChannel, AttemptInfo], ThreadExit]


@dataclass(frozen=True)
class ThreadPlan:
    """What a worker needs to register as a stream thread.

    It is given its code then, and with it the settings. Spark may write down what it ships, and
    keep it for as long as the session lasts; so that holds no secret but the key of the
    application, which is worth nothing when that has ended.

    Args:
        application_id: the application.
        thread_name: the name of the thread, unique in the application instance.
        thread_index: its number, from 1; the lowest free one, as in Kafka Streams.
        epoch: which submission of the thread's job this is.
        control_address: host and port at which the driver listens.
        authkey: the application's key.
        versions: the driver's, see `environment`.
        logging: the driver's loggers.
        grace_ms: how long the thread works without its driver, in milliseconds.
        module_path: where the driver finds modules, for workers on the same machine.
        certificate: the driver's, in DER; empty if the connection is not encrypted.
        once: whether only Spark's first attempt at the task is the thread. Spark would start a
            further one on any host; the driver asks for the one that has the thread's state.
    """

    application_id: str
    thread_name: str
    thread_index: int
    epoch: int
    control_address: tuple[str, int]
    authkey: bytes = field(repr=False)
    versions: dict[str, str | None]
    logging: LoggingSetup
    grace_ms: int = GRACE_MS
    module_path: tuple[str, ...] = ()
    certificate: bytes = field(default=b"", repr=False)
    once: bool = False


def run_plan(data: bytes) -> bytes:
    """Be a stream thread until it ends; called by the Spark task.

    Args:
        data: a pickled `ThreadPlan`.

    Returns:
        The pickled `ThreadExit`. Never raises for what the thread's code does.
    """
    plan: ThreadPlan = pickle.loads(data)
    if plan.once and _is_another_attempt():
        return encode_value(ThreadExit("lost", reason="its process or its executor ended"))
    started = set(threading.enumerate())
    with (
        kept_from_children(),
        plan.logging.applied(plan.thread_name),
        _dead_threads_in_the_log(),
        modules_of_the_driver(plan.module_path),
    ):
        ended = _run_thread(plan)
        new = [thread.name for thread in threading.enumerate() if thread not in started]
        left = [name for name in new if name != THREAD_NAME]
        if left:
            logger.warning("%s left threads behind: %s", plan.thread_name, ", ".join(left))
        return encode_value(ended)


def _run_thread(plan: ThreadPlan) -> ThreadExit:
    attempt = AttemptInfo(
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
        Hello(*attempt),
        grace_ms=plan.grace_ms,
        certificate=plan.certificate,
    )
    try:
        with _closing_on_signals(channel):
            if not channel.open():
                return ThreadExit("lost", reason=channel.lost_reason or "")
            ended = _call_main(plan, channel, attempt)
            if channel.stop_signal is not None and ended.kind == "closed":
                # It was not the driver who closed it, so the thread has to run elsewhere.
                ended = ThreadExit("lost", story=ended.story, reason=channel.stop_signal)
            # Where the JVM has ended before, nothing else tells the driver.
            channel.report(ended)
            return ended
    finally:
        channel.close()


def _call_main(plan: ThreadPlan, channel: ControlChannel, attempt: AttemptInfo) -> ThreadExit:
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
        ended = main(channel, attempt)
        if not isinstance(ended, ThreadExit):
            raise TypeError(f"The thread's code returned {ended!r} instead of a ThreadExit.")
        return ended
    except BaseException as error:
        # Also SystemExit and KeyboardInterrupt: raised by user code they would end the process.
        logger.exception("%s ends with an error", plan.thread_name)
        return ThreadExit("error", error)


def _spark_attempt() -> int:
    """The number that Spark gave this attempt at the task: unique, greater for each later one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())


def _is_another_attempt() -> bool:
    """Whether Spark has tried this task before."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


@contextmanager
def _closing_on_signals(channel: ControlChannel) -> Iterator[None]:
    """Close in an orderly way when the executor ends: PySpark's daemon then sends SIGHUP.

    Without this a lost executor, or a driver that ends without closing, would cut the thread off
    in the middle of its work. The time for it is limited by an alarm that ends the process, since
    nobody is left who would.
    """

    def close(number: int, _: FrameType | None) -> None:
        if channel.stop_signal is None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(ORDERLY_STOP_S)
            channel.stop_by_signal(signal.Signals(number).name, ORDERLY_STOP_S * 1_000 // 2)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers: dict[int, Handler] = {
        signal.SIGTERM: close,
        signal.SIGHUP: close,
        # An interrupt is meant for the driver, which then closes its threads.
        signal.SIGINT: signal.SIG_IGN,
    }
    try:
        with handling(handlers):
            yield
    finally:
        if channel.stop_signal == "SIGTERM":
            # PySpark's daemon lives on and may give this process another task.
            signal.alarm(0)


@contextmanager
def _dead_threads_in_the_log() -> Iterator[None]:
    """Let an exception that ends a background thread, of the user's or of a library, be a line in
    the log. Python writes it to stderr only, without time and place."""

    def tell(ended: threading.ExceptHookArgs) -> None:
        if ended.exc_value is None or isinstance(ended.exc_value, SystemExit):
            return
        name = "a background thread" if ended.thread is None else ended.thread.name
        trace = (ended.exc_type, ended.exc_value, ended.exc_traceback)
        logger.error("%s has died, and nothing takes its place", name, exc_info=trace)

    before, threading.excepthook = threading.excepthook, tell
    try:
        yield
    finally:
        threading.excepthook = before

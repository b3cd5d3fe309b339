"""Runs applications as scripts, closes them at the end, and registers them."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.metadata import version
from types import FrameType
from typing import Final, Generic, Protocol, TypeVar

from millstream.application.supervisor import ThreadSupervisor
from millstream.config.streams_config import StreamsConfig
from millstream.errors import IllegalStateError, SparkError
from millstream.kafka.speedups import describe_speedups
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ClientState
from millstream.spark.signal_handlers import installed_handlers
from millstream.state.directories.state_directory import resolve_state_dir

logger = logging.getLogger("millstream")

#: The exit code after an unclean close. 0 means a clean close, 1 an error, and 2 is Python's code
#: for wrong arguments.
EXIT_UNCLEAN = 3
#: The time after Ctrl-C until threads are killed.
CLOSE_TIMEOUT = timedelta(seconds=30)
#: The additional time for killing threads and stopping Spark, before the script ends anyway.
_RELEASE_TIMEOUT_S = 45.0
_POLL_INTERVAL_S = 0.1
#: How long an application is RUNNING without tasks before it is reported as such.
_TASKS_TIMEOUT_S = 5.0
#: The maximum number of tasks and partitions in a message.
_MAX_LISTED = 8
_SCRIPT_END_THREAD: Final = "millstream-script-end"
_SCRIPT_POLL_INTERVAL_S: Final = 0.5
_FINAL: Final = frozenset({ClientState.NOT_RUNNING, ClientState.ERROR})


class RunnableApplication(Protocol):
    """The methods of an application that `run_script` calls."""

    def start(self) -> None: ...

    def close(self, timeout: timedelta) -> bool: ...


def run_script(
    application: RunnableApplication,
    config: StreamsConfig,
    states: ClientStateTracker,
    supervisor: ThreadSupervisor,
) -> None:
    """Start an application, wait for a signal or an error, and close it.

    Must be called on the main thread. The first SIGINT or SIGTERM closes the application cleanly,
    the second kills the threads that have not closed yet, and the third ends the script
    immediately.

    Raises:
        SparkError: closing timed out.
        SystemExit: with `EXIT_UNCLEAN`, if a thread did not commit while closing.
    """
    print_message = _message_writer()
    supervisor.failure_policy.raises_error = True
    began = time.monotonic()
    minimum, maximum = config.least_stream_threads, config.most_stream_threads
    threads = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
    print_message(
        f"millstream {version('millstream')} is starting {config.application_id}: {threads} stream "
        f"thread{'' if maximum == 1 else 's'}, brokers {config.bootstrap_servers}"
    )
    print_message(f"records are read and written {describe_speedups(config.speedups)}")
    signals = _Signals(supervisor)
    with installed_handlers(dict.fromkeys((signal.SIGINT, signal.SIGTERM), signals.on_signal)):
        application.start()
        reported, running_since = False, None
        while not signals.names and not states.is_final:
            now = time.monotonic()
            if states.state is not ClientState.RUNNING:
                running_since = None
            elif not reported:
                running_since = running_since or now
                # The first rebalance may assign no tasks, and the next one follows soon.
                complete = bool(_tasks(states) or supervisor.taskless_global_stores)
                reported = complete or now - running_since > _TASKS_TIMEOUT_S
                if reported:
                    print_message(_running_message(config, states, supervisor, now - began))
            time.sleep(_POLL_INTERVAL_S)
        if signals.names:
            print_message(
                f"{signals.names[0]}: closing {config.application_id}; repeat to kill its threads"
            )
        is_clean = _close(application, config, supervisor, signals)
    if states.state is ClientState.NOT_RUNNING:
        # A thread that ends early may never have reported its work.
        has_worked = reported or supervisor.metrics.has_reports
        outcome = _outcome(is_clean, supervisor, has_worked=has_worked)
        print_message(f"{config.application_id} stopped, {outcome}")
        if supervisor.error is not None or not is_clean:
            raise SystemExit(EXIT_UNCLEAN)


class _Signals:
    """Records the received signals.

    The handler takes no lock and does not log, because it may interrupt code of the main thread
    that holds the same lock.
    """

    def __init__(self, supervisor: ThreadSupervisor) -> None:
        self.names: Sequence[str] = ()
        self._supervisor = supervisor

    def on_signal(self, number: int, _: FrameType | None) -> None:
        self.names = (*self.names, signal.Signals(number).name)
        self._supervisor.interrupted = True
        if len(self.names) > 2:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def _close(
    application: RunnableApplication,
    config: StreamsConfig,
    supervisor: ThreadSupervisor,
    signals: _Signals,
) -> bool:
    """Close on another thread, so that the main thread still handles signals."""
    results: list[bool] = []
    # A daemon, so that the script can end even if Spark hangs.
    closing = threading.Thread(
        target=lambda: results.append(application.close(CLOSE_TIMEOUT)),
        name="millstream-close",
        daemon=True,
    )
    closing.start()
    timeout_s = CLOSE_TIMEOUT.total_seconds() + _RELEASE_TIMEOUT_S
    deadline = time.monotonic() + timeout_s
    while closing.is_alive() and time.monotonic() < deadline:
        if len(signals.names) > 1:
            supervisor.force_close()
        time.sleep(_POLL_INTERVAL_S)
    if closing.is_alive():
        raise SparkError(
            f"{config.application_id} did not close within {timeout_s} s: Spark does not respond. "
            "Uncommitted records will be reprocessed at the next start. Check whether Spark "
            "processes are still running."
        )
    return bool(results) and results[0]


def _message_writer() -> Callable[[str], None]:
    """Return a function that writes to the log if configured, or else to stderr."""
    if logger.hasHandlers():
        return logger.info

    def write(text: str) -> None:
        sys.stderr.write(f"millstream: {text}\n")
        sys.stderr.flush()

    return write


def _running_message(
    config: StreamsConfig, states: ClientStateTracker, supervisor: ThreadSupervisor, seconds: float
) -> str:
    tasks, stores = _tasks(states), supervisor.taskless_global_stores
    text = (
        f"{config.application_id} is RUNNING after {seconds:.1f} s on Spark {supervisor.master}: "
        f"{_listed('global store', stores) if stores else _listed('task', tasks)}"
    )
    reads = supervisor.committed_positions(tasks)
    return f"{text}; reads {_listed('partition', reads)}" if reads else text


def _tasks(states: ClientStateTracker) -> list[str]:
    return sorted({task for _, tasks in states.threads().values() for task in tasks})


def _listed(noun: str, items: Sequence[str]) -> str:
    if not items:
        return f"no {noun}s so far"
    more = len(items) - _MAX_LISTED
    shown = ", ".join(items[:_MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
    return f"{len(items)} {noun}{'' if len(items) == 1 else 's'} ({shown})"


def _outcome(is_clean: bool, supervisor: ThreadSupervisor, *, has_worked: bool) -> str:
    if supervisor.error is not None:
        return f"with an error: {supervisor.error}"
    if not is_clean:
        return (
            "after threads were killed: their uncommitted records are reprocessed at the next start"
        )
    return "everything committed" if has_worked else "before anything was processed"


def close_with_script(
    application: object, states: ClientStateTracker, close: Callable[[timedelta], object]
) -> None:
    """Close an application cleanly at the end of the script, if it is still open.

    A script ends when its main thread and all other non-daemon threads have ended. Without this
    function, the stream threads would be killed with the driver, or continue without it for a while
    on a cluster. Signals that end the process immediately are not handled here.
    """
    # Not a daemon: Python waits for this thread before it shuts down the interpreter, when nothing
    # can be closed any more.
    threading.Thread(
        target=_await_end, args=(application, states, close), name=_SCRIPT_END_THREAD, daemon=False
    ).start()


def _await_end(
    application: object, states: ClientStateTracker, close: Callable[[timedelta], object]
) -> None:
    while not states.wait_for(_FINAL, _SCRIPT_POLL_INTERVAL_S):
        if _script_runs():
            continue
        # If the application is already closing, `close` was called elsewhere.
        if states.is_live:
            logger.warning(
                "%r was not closed before its script ended: closing it now. start() does not "
                "block: call run(), which returns when the application is stopped, or wait in the "
                "script and call close() at its end",
                application,
            )
            close(CLOSE_TIMEOUT)
        return


def _script_runs() -> bool:
    return any(
        thread.is_alive() and not thread.daemon and thread.name != _SCRIPT_END_THREAD
        for thread in threading.enumerate()
    )


class HasState(Protocol):
    @property
    def state(self) -> ClientState: ...


A = TypeVar("A", bound=HasState)


class StartedApplications(Generic[A]):
    """The started applications by id, cluster and state directory. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[tuple[str, ...], A] = {}

    def add(self, config: StreamsConfig, application: A) -> None:
        """Add an application that is about to start.

        Raises:
            IllegalStateError: another running application has the same id, cluster and state
                directory.
        """
        servers = sorted(each.strip() for each in config.bootstrap_servers.split(","))
        key = (config.application_id, str(resolve_state_dir(config.state_dir).resolve()), *servers)
        with self._lock:
            self._started = {key: each for key, each in self._started.items() if _runs(each)}
            other = self._started.setdefault(key, application)
        if other is not application:
            raise IllegalStateError(
                f"This process already runs {config.application_id}: {other!r}. Call its close() "
                "first. If no variable refers to it any more (a notebook cell was run again), use: "
                "for each in KafkaStreams.running(): each.close(). A second instance needs its own "
                "state_dir."
            )

    def all(self) -> list[A]:
        """Return the running applications in the order in which they started."""
        with self._lock:
            return [each for each in self._started.values() if _runs(each)]


def _runs(application: HasState) -> bool:
    return application.state not in _FINAL

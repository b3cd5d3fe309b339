"""An application as the whole of a script: started, told about on stderr, closed on a signal."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.metadata import version
from types import FrameType
from typing import NoReturn, Protocol

from millstream.application.supervisor import ThreadSupervisor
from millstream.config import StreamsConfig
from millstream.errors import SparkError
from millstream.runtime.client_states import ClientStates
from millstream.runtime.states import ClientState
from millstream.spark.signal_handlers import handling

logger = logging.getLogger("millstream")

#: The exit code of a script that was closed, but not in order: 0 is for one that was, 1 for an
#: error, and 2 is Python's for a command line that it does not understand.
NOT_IN_ORDER = 3
#: How long the threads have after Ctrl-C before they are killed.
CLOSE = timedelta(seconds=30)
#: How long killing them and stopping Spark may take beyond that, before the script ends anyway.
_GIVE_BACK_S = 45.0
_LOOK_S = 0.1
#: How long it may be RUNNING without a task before it is said that there is none.
_TASKS_COME_S = 5.0
#: How many tasks, and partitions, are listed.
_LISTED_MOST = 8


class Closable(Protocol):
    """What `run_script` needs of an application."""

    def start(self) -> None:
        """Start the threads."""

    def close(self, timeout: timedelta) -> bool:
        """Close them; whether all ended by themselves."""


def run_script(
    application: Closable,
    config: StreamsConfig,
    states: ClientStates,
    supervisor: ThreadSupervisor,
) -> None:
    """Start, wait for a signal or an error, close. To be called on the main thread.

    The first SIGINT or SIGTERM closes in order, the second one kills the threads that have not
    closed yet, and the third one ends the script at once.

    Raises:
        SparkError: closing did not come to its end.
        SystemExit: with `NOT_IN_ORDER`, if it did, but not every thread has committed.
    """
    say = _voice()
    supervisor.judge.raises_error = True
    began = time.monotonic()
    least, most = config.least_stream_threads, config.most_stream_threads
    threads = f"{least}" if least == most else f"{least} to {most}"
    say(
        f"millstream {version('millstream')} starts {config.application_id}: {threads} stream "
        f"thread{'' if most == 1 else 's'}, brokers {config.bootstrap_servers}"
    )
    with _counting_signals(supervisor) as signals:
        application.start()
        told, running_since = False, None
        while not signals.names and not states.is_final:
            now = time.monotonic()
            if states.state is not ClientState.RUNNING:
                running_since = None
            elif not told:
                running_since = running_since or now
                # The first rebalance may give it nothing, and the next one follows soon.
                complete = bool(_tasks(states) or supervisor.lone_global_stores)
                told = complete or now - running_since > _TASKS_COME_S
                if told:
                    say(_what_runs(config, states, supervisor, now - began))
            time.sleep(_LOOK_S)
        if signals.names:
            say(f"{signals.names[0]}: {config.application_id} closes; once more ends it at once")
        orderly = _close(application, config, supervisor, signals)
    if states.state is ClientState.NOT_RUNNING:
        # A thread that ends soon may never have reported what it did.
        has_worked = told or supervisor.metrics.has_reports
        say(f"{config.application_id} stopped, {_how(orderly, supervisor, has_worked=has_worked)}")
        if supervisor.error is not None or not orderly:
            raise SystemExit(NOT_IN_ORDER)


class _Signals:
    """The signals that came. The handler takes no lock and logs nothing: it may interrupt code of
    the main thread that holds the very lock."""

    def __init__(self, supervisor: ThreadSupervisor) -> None:
        self.names: Sequence[str] = ()
        self._supervisor = supervisor

    def on_signal(self, number: int, _: FrameType | None) -> None:
        self.names = (*self.names, signal.Signals(number).name)
        self._supervisor.interrupted = True
        if len(self.names) > 2:
            _end(number)


def _end(number: int) -> NoReturn:
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


@contextmanager
def _counting_signals(supervisor: ThreadSupervisor) -> Iterator[_Signals]:
    signals = _Signals(supervisor)
    with handling(dict.fromkeys((signal.SIGINT, signal.SIGTERM), signals.on_signal)):
        yield signals


def _close(
    application: Closable, config: StreamsConfig, supervisor: ThreadSupervisor, signals: _Signals
) -> bool:
    """Close on another thread, so that this one can go on heeding signals."""
    results: list[bool] = []
    # A daemon: whatever Spark does, the script can end.
    closing = threading.Thread(
        target=lambda: results.append(application.close(CLOSE)),
        name="millstream-close",
        daemon=True,
    )
    closing.start()
    deadline = time.monotonic() + CLOSE.total_seconds() + _GIVE_BACK_S
    while closing.is_alive() and time.monotonic() < deadline:
        if len(signals.names) > 1:
            supervisor.hurry()
        time.sleep(_LOOK_S)
    if closing.is_alive():
        raise SparkError(
            f"{config.application_id} did not close within {CLOSE.total_seconds() + _GIVE_BACK_S} "
            "s: Spark does not answer. What its threads had not committed is repeated at the next "
            "start; see whether processes of Spark are left."
        )
    return bool(results) and results[0]


def _voice() -> Callable[[str], None]:
    """Where a script tells what it does: stderr, or the log if its author has set one up."""
    if logger.hasHandlers():
        return logger.info

    def write(text: str) -> None:
        sys.stderr.write(f"millstream: {text}\n")
        sys.stderr.flush()

    return write


def _what_runs(
    config: StreamsConfig, states: ClientStates, supervisor: ThreadSupervisor, seconds: float
) -> str:
    tasks, lone = _tasks(states), supervisor.lone_global_stores
    where = supervisor.master
    text = (
        f"{config.application_id} is RUNNING after {seconds:.1f} s on Spark {where}: "
        f"{_listed('global store', lone) if lone else _listed('task', tasks)}"
    )
    reads = supervisor.begins_at(tasks)
    return f"{text}; reads {_listed('partition', reads)}" if reads else text


def _tasks(states: ClientStates) -> list[str]:
    return sorted({task for _, tasks in states.threads().values() for task in tasks})


def _listed(what: str, items: Sequence[str]) -> str:
    if not items:
        return f"no {what}s so far"
    more = len(items) - _LISTED_MOST
    shown = ", ".join(items[:_LISTED_MOST]) + (f" and {more} more" if more > 0 else "")
    return f"{len(items)} {what}{'' if len(items) == 1 else 's'} ({shown})"


def _how(orderly: bool, supervisor: ThreadSupervisor, *, has_worked: bool) -> str:
    if supervisor.error is not None:
        return f"not in order: {supervisor.error}"
    if not orderly:
        return "not in order: what killed threads had not committed is repeated at the next start"
    return "everything committed" if has_worked else "before anything was processed"

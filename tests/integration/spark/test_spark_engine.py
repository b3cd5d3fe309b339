"""Stream threads on real Spark: started, killed, restarted and closed; nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from support.broker.sample_messages import (
    SampleCommand,
    SampleReport,
    SampleRequest,
    sample_command,
)
from support.machine.leftovers import runs
from support.machine.scripts import Script
from support.waiting import HANG_S, NEVER_S, hang_guard, wait_for

from millstream.errors import (
    EnvironmentMismatchError,
    IllegalStateError,
    NotEnoughSlotsError,
    NotPicklableError,
    ProcessingError,
    SparkError,
    ThreadUnavailableError,
)
from millstream.runtime.thread_control import Close
from millstream.spark.connection.control_client import ControlChannel
from millstream.spark.connection.messages import Hello, ThreadExit
from millstream.spark.engine import SparkEngine
from millstream.spark.hosted_thread import RestartPolicy, ThreadTimeouts
from millstream.spark.sessions.session import is_local, resolve_session, slots
from millstream.spark.thread_events import ThreadEvent


def execute_commands(channel: ControlChannel, attempt: Hello) -> ThreadExit:
    """A stream thread that only executes commands."""
    channel.report(SampleReport("started", attempt.epoch))
    count = 0
    while not channel.lost:
        if not channel.wait(100):
            continue
        for received in channel.commands():
            count += 1
            if isinstance(received.command, Close):
                channel.report(SampleReport("closing", received.command))
                return ThreadExit("closed", history=(f"{count} commands",))
            if sample_command(received).kind == "fail":
                raise ProcessingError("the mapper failed", topic="in", offset=7)
            if sample_command(received).kind == "hang":
                time.sleep(NEVER_S)
            if sample_command(received).kind == "ignore the kill":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            channel.reply(received, sample_command(received).data)
    return ThreadExit("lost", reason=str(channel.lost_reason))


class Events:
    """The events of the engine, by thread."""

    def __init__(self) -> None:
        self.all: list[ThreadEvent] = []

    def __call__(self, event: ThreadEvent) -> None:
        self.all.append(event)

    def of(self, thread: str, kind: str) -> list[Any]:
        return [each.data for each in self.all if (each.thread, each.kind) == (thread, kind)]

    def wait(self, thread: str, kind: str, times: int = 1, timeout_s: float = 40.0) -> Any:
        wait_for(
            lambda: len(self.of(thread, kind)) >= times or bool(self.of(thread, "failed")),
            timeout_s,
            lambda: f"{thread} {kind} × {times}; events: {self.all}",
        )
        found = self.of(thread, kind)
        assert len(found) >= times, f"it failed instead: {self.of(thread, 'failed')}"
        return found[times - 1]


@contextmanager
def hosting(session: SparkSession | None, **options: Any) -> Iterator[tuple[SparkEngine, Events]]:
    events = Events()
    settings: dict[str, Any] = {"num_threads": 1, "on_event": events} | options
    engine = SparkEngine(session, "shop", **settings)
    engine.start()
    try:
        yield engine, events
    finally:
        engine.close(10_000)


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """A session as created by a user: `local[3,4]`, or the master of `on`. All share one JVM."""
    master, settings = getattr(request, "param", ("local[3,4]", {}))
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    options = {"spark.ui.showConsoleProgress": "false", "spark.python.worker.reuse": "false"}
    options |= {"spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m"}
    for name, value in (options | settings).items():
        builder = builder.config(name, value)
    before = signal.getsignal(signal.SIGINT)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
    signal.signal(signal.SIGINT, before)


def on(master: str, **settings: str) -> pytest.MarkDecorator:
    """Run a test on another master; `_` represents the dots of the settings."""
    dotted = {name.replace("_", "."): value for name, value in settings.items()}
    return pytest.mark.parametrize("session", [(master, dotted)], indirect=True, ids=[master])


def test_a_thread_runs_executes_commands_and_closes(session: SparkSession) -> None:
    """Goal: the complete life of a thread: registration, reports, replies, close with its exit."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        hello: Hello = events.wait("t1", "registered")
        assert (hello.thread_index, hello.application_id) == (1, "shop")
        assert hello.pid != os.getpid()
        assert events.wait("t1", "report") == SampleReport("started", hello.epoch)
        assert engine.request("t1", SampleRequest("echo", {"a": [1]})) == {"a": [1]}
        assert engine.threads == ["t1"]
        with pytest.raises(IllegalStateError, match="already running"):
            engine.start_thread("t1", 1, execute_commands)
        assert engine.stop_thread("t1", 20_000, Close(leave_group=False))
        assert events.wait("t1", "exited") == ThreadExit("closed", history=("2 commands",))
        assert events.of("t1", "report")[-1] == SampleReport("closing", Close(leave_group=False))
        assert engine.threads == []
        wait_for(lambda: not runs(hello.pid), 30, "the processes have ended")
        with pytest.raises(ThreadUnavailableError):
            engine.send("t1", SampleCommand("echo"))
        engine.start_thread("t1", 1, execute_commands)
        again: Hello = events.wait("t1", "registered", 2)
        assert again.epoch > hello.epoch
        assert engine.close(20_000)
    assert [event.kind for event in events.all if event.kind != "report"] == [
        *("registered", "exited", "registered", "exited"),
    ]


def test_the_connection_between_machines_is_encrypted(session: SparkSession) -> None:
    """Goal: a worker verifies its driver with the certificate created by the session's Java, and
    receives code that is larger than any frame."""
    ballast = os.urandom(1 << 20) * 20

    def large(channel: ControlChannel, attempt: Hello) -> ThreadExit:
        channel.report(SampleReport("size", len(ballast)))
        return execute_commands(channel, attempt)

    with hosting(session, encrypted=True) as (engine, events):
        engine.start_thread("t1", 1, large)
        assert events.wait("t1", "report").data == len(ballast)
        assert engine.request("t1", SampleRequest("echo", "x" * 1_000_000)) == "x" * 1_000_000
        assert engine.stop_thread("t1", 10_000)


def test_a_user_error_is_data(session: SparkSession) -> None:
    """Goal: an error in the thread's code is reported with its fields, and is not retried."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        events.wait("t1", "registered")
        engine.send("t1", SampleCommand("fail"))
        ended: ThreadExit = events.wait("t1", "exited")
        assert ended.kind == "error"
        assert isinstance(ended.error, ProcessingError)
        assert (ended.error.topic, ended.error.offset) == ("in", 7)
        assert "in execute_commands" in ended.error.__notes__[0]
        assert events.of("t1", "restarting") == []


@pytest.mark.slow
def test_spark_retries_a_killed_worker(session: SparkSession) -> None:
    """Goal: with maxFailures Spark restarts the thread; the new attempt has a later epoch."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        first: Hello = events.wait("t1", "registered")
        os.kill(first.pid, signal.SIGKILL)
        second: Hello = events.wait("t1", "registered", 2)
        assert second.epoch.submission == first.epoch.submission
        assert second.epoch > first.epoch
        assert second.pid != first.pid
        assert len(events.of("t1", "restarting")) == 1
        assert engine.request("t1", SampleRequest("echo", 5)) == 5


def test_a_dropped_connection_is_opened_again(session: SparkSession) -> None:
    """Goal: a short network failure does not even cause an event."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        events.wait("t1", "registered")
        for number in range(5):
            assert engine._server is not None
            engine._server.drop_connection("t1")
            assert engine.request("t1", SampleRequest("echo", number)) == number
        assert len(events.of("t1", "registered")) == 1
        assert events.of("t1", "restarting") == []


@pytest.mark.slow
def test_a_thread_that_does_not_close_is_killed(session: SparkSession) -> None:
    """Goal: a close has a timeout, and a hung thread's process does not survive it."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        hello: Hello = events.wait("t1", "registered")
        engine.send("t1", SampleCommand("hang"))
        with hang_guard("the close"):
            assert not engine.close(500)
        assert not runs(hello.pid)
        assert events.wait("t1", "exited").kind == "killed"


@pytest.mark.extended
def test_an_ending_executor_lets_the_thread_close(session: SparkSession) -> None:
    """Goal: SIGTERM ends the thread in an orderly way; then it is restarted, because it was not
    closed by the user."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        first: Hello = events.wait("t1", "registered")
        os.kill(first.pid, signal.SIGTERM)
        second: Hello = events.wait("t1", "registered", 2)
        assert SampleReport("closing", Close(commit_timeout_ms=5_000)) in events.of("t1", "report")
        assert events.of("t1", "restarting") == ["the thread stopped: SIGTERM."]
        assert second.epoch.submission > first.epoch.submission


def test_all_version_differences_are_named(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: one error lists every difference. Method: fake the driver's versions."""
    forged = {"python": "2.7", "orjson": "0.0.1", "rocksdict": "0.3.29", "no-such-package": "1"}
    monkeypatch.setattr("millstream.spark.engine.installed_versions", lambda: forged)
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        error = events.wait("t1", "failed")
        assert isinstance(error, EnvironmentMismatchError)
        assert {name for name, _, _ in error.differences} >= {"python", "orjson", "no-such-package"}
        assert "orjson: 0.0.1 in the driver" in str(error)
        assert "not installed in the worker" in str(error)


def test_unpicklable_code_is_rejected_immediately(session: SparkSession) -> None:
    """Goal: the caller gets the error, and no job is started."""
    lock = threading.Lock()

    def main(channel: ControlChannel, attempt: Hello) -> ThreadExit:
        with lock:
            return ThreadExit("closed")

    with (
        hosting(session) as (engine, _),
        pytest.raises(NotPicklableError, match="closure variable 'lock'"),
    ):
        engine.start_thread("t1", 1, main)
    assert engine.threads == []


def test_a_given_session_is_used_and_not_stopped(session: SparkSession) -> None:
    """Goal: the given or active session is used, not stopped, and its size is known."""
    for found in (resolve_session(session, 2), resolve_session(None, 2)):
        assert found.session is session
        assert not found.release()
    assert slots(session) == 3
    assert is_local(session)
    assert session.sparkContext.pythonExec == sys.executable
    handler: Any = signal.getsignal(signal.SIGINT)
    assert handler.__module__ == "millstream.spark.sessions.session"


def test_an_interrupt_cancels_only_the_users_jobs(session: SparkSession) -> None:
    """Goal: interrupting a query in a notebook does not kill the stream threads."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        events.wait("t1", "registered")
        timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with hang_guard("the job"), pytest.raises(KeyboardInterrupt):
            session.sparkContext.parallelize([0], 1).foreach(lambda _: time.sleep(NEVER_S))
        assert engine.request("t1", SampleRequest("echo", 1)) == 1
        assert events.of("t1", "restarting") == []


@pytest.mark.extended
@on("local[2]")
def test_a_plain_local_master_restarts_a_killed_worker(session: SparkSession) -> None:
    """Goal: if Spark never retries, the engine restarts the thread as often as necessary."""
    policy = RestartPolicy(backoff_ms=50, max_backoff_ms=50)
    with hosting(session, restart_policy=policy) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        hellos = []
        for attempt in range(1, 8):
            hello: Hello = events.wait("t1", "registered", attempt)
            hellos.append(hello)
            assert engine.request("t1", SampleRequest("echo", attempt)) == attempt
            os.kill(hello.pid, signal.SIGKILL)
        events.wait("t1", "registered", 8)
        assert [hello.epoch.submission for hello in hellos] == [1, 2, 3, 4, 5, 6, 7]
        assert len(events.of("t1", "restarting")) == 7
        assert "Python worker exited unexpectedly" in events.of("t1", "restarting")[0]


@pytest.mark.extended
@on("local[2,4]", spark_python_worker_reuse="true")
def test_the_process_of_a_thread_ends_even_if_workers_are_reused(
    session: SparkSession,
) -> None:
    """Goal: if Spark reuses workers for the next task, a thread's worker is not reused."""
    with hosting(session) as (engine, events):
        pids = []
        for number in (1, 2):
            engine.start_thread("t1", 1, execute_commands)
            pids.append(events.wait("t1", "registered", number).pid)
            assert engine.stop_thread("t1", 20_000)
        wait_for(lambda: not any(map(runs, pids)), 30, "the processes have ended")
        rdd = session.sparkContext.parallelize([0], 1)
        users = {rdd.map(lambda _: os.getpid()).collect()[0] for _ in range(2)}
        assert len(users) == 1, "the test is about a session that reuses workers"
        assert users.isdisjoint(pids)


@on("local[1]")
def test_too_few_slots(session: SparkSession) -> None:
    """Goal: a thread without a slot fails with the numbers; the other one continues."""
    with hosting(session, num_threads=2) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        events.wait("t1", "registered")
        engine._timeouts = ThreadTimeouts(register_ms=3_000)
        engine.start_thread("t2", 2, execute_commands)
        error = events.wait("t2", "failed")
        assert isinstance(error, NotEnoughSlotsError)
        assert (error.slots, error.needed) == (1, 2)
        assert "1 slots" in str(error)
        assert engine.request("t1", SampleRequest("echo", 1)) == 1
        engine.start_thread("t3", 2, execute_commands)
        with hang_guard("the close, which a thread that never ran must not delay,"):
            assert engine.close(int(NEVER_S * 1_000))
        assert events.wait("t3", "exited") == ThreadExit("closed")


@on("local[1]", spark_speculation="true")
def test_speculation_is_rejected(session: SparkSession) -> None:
    """Goal: a session that would run a thread twice is rejected before anything starts."""
    with pytest.raises(SparkError, match=r"spark\.speculation"):
        SparkEngine(session, "shop", num_threads=1, on_event=print).start()


@pytest.mark.extended
@on("local[3]")
def test_a_stopped_session_ends_its_threads_with_an_error(session: SparkSession) -> None:
    """Goal: stopping the session of a running engine is a failure, not an endless restart."""
    with hosting(session) as (engine, events):
        engine.start_thread("t1", 1, execute_commands)
        hello: Hello = events.wait("t1", "registered")
        session.stop()
        error = events.wait("t1", "failed")
        assert "session was stopped" in str(error)
        wait_for(lambda: not runs(hello.pid), 30, "the processes have ended")
        with pytest.raises(SparkError, match="has been stopped"):
            SparkEngine(session, "shop", num_threads=1, on_event=print).start()


SCRIPT = """
import os, signal, sys, threading, time
from dataclasses import dataclass
import helpers
from pyspark.sql import SparkSession
from millstream.spark.engine import SparkEngine
from millstream.runtime.thread_control import Report
from millstream.spark.connection.messages import ThreadExit

@dataclass(frozen=True)
class Helped(Report):
    data: str

def main(channel, attempt):
    channel.report(Helped(helpers.describe(attempt.thread_name)))
    while not channel.lost:
        if channel.wait(100):
            for command in channel.commands():
                time.sleep(0.3)
                open(helpers.MARK, "a").write("in order\\n")
                return ThreadExit("closed")

def print_event(event):
    if event.kind == "registered":
        print("pid", event.data.pid, flush=True)
    elif event.kind == "report":
        print("report", event.data.data, flush=True)
    else:
        print(event.kind, getattr(event.data, "kind", event.data), flush=True)

stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(True))
ours, make_session = signal.getsignal(signal.SIGINT), SparkSession.__init__

def made(*args, **kwargs):
    print("heeded", signal.getsignal(signal.SIGINT) is ours, flush=True)
    make_session(*args, **kwargs)

SparkSession.__init__ = made
engine = SparkEngine(None, "shop", num_threads=2, on_event=print_event)
engine.start()
for index in (1, 2):
    engine.start_thread(f"t{index}", index, main)
while not stop:
    time.sleep(0.1)
print("orderly", engine.close(600_000), flush=True)
"""

HELPERS = """
import deeper
MARK = {mark!r}
def describe(name):
    return deeper.NAMES.get(name, name)
"""


class Application(Script):
    """A user's script with local modules, in another process."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "mark"
        scripts = folder / "scripts"
        scripts.mkdir()
        (scripts / "app.py").write_text(SCRIPT)
        (scripts / "helpers.py").write_text(HELPERS.format(mark=str(self.mark)))
        (scripts / "deeper.py").write_text("NAMES = {'t1': 'one', 't2': 'two'}\n")
        super().__init__(scripts / "app.py", home=folder / "elsewhere")

    @property
    def worker_pids(self) -> list[int]:
        return [int(line.split()[1]) for line in self.lines if line.startswith("pid")]


@pytest.mark.extended
def test_ctrl_c_closes_a_script_with_its_own_session_and_modules(tmp_path: Path) -> None:
    """Goal: a script with local modules runs, and Ctrl-C ends it in an orderly way without
    leftovers.

    Method: a real SIGINT to the script's whole process group, as a terminal sends it.
    """
    with Application(tmp_path) as script:
        for name in ("one", "two"):
            script.wait_for_line(f"report {name}", 90)
        script.signal_group(signal.SIGINT)
        assert script.wait_for_line("orderly", HANG_S) == "True"
        assert script.wait_ended(30) == 0
        wait_for(lambda: not script.group_exists(), 30, "the processes have ended")
        assert not any(map(runs, script.worker_pids))
        noise = script.errors
    assert "heeded True" in script.lines, "Ctrl-C while Spark starts would go to PySpark"
    assert len(script.worker_pids) == 2
    assert script.lines.count("exited closed") == 2
    assert script.mark.read_text() == "in order\n" * 2, "the threads were killed, not closed"
    assert len(noise.splitlines()) <= 2, noise


@pytest.mark.extended
def test_a_killed_driver_leaves_no_process(tmp_path: Path) -> None:
    """Goal: a driver that vanishes ends its JVM and workers; threads still close in an orderly
    way."""
    with Application(tmp_path) as script:
        for name in ("one", "two"):
            script.wait_for_line(f"report {name}", 90)
        script.kill()
        wait_for(lambda: not any(map(runs, script.worker_pids)), 30, "the processes have ended")
        wait_for(lambda: not script.group_exists(), 30, "the processes have ended")
    assert len(script.worker_pids) == 2
    assert script.mark.read_text() == "in order\n" * 2, "the threads were killed, not closed"


def test_missing_java_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Goal: one sentence instead of a stack trace."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr("millstream.spark.sessions.session.find_session", lambda: None)
    with pytest.raises(SparkError, match="Java 17 or later"):
        resolve_session(None, 1)

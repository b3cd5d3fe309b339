"""The worker's task in this process: it ends with data and leaves the process unchanged."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark import TaskContext
from support.broker.sample_messages import SampleReport

from millstream.errors import EnvironmentMismatchError
from millstream.runtime.thread_control import Close, Report
from millstream.spark.code.environment import EXTENSION, checked_task, installed_versions
from millstream.spark.code.shipping import ship
from millstream.spark.connection.control_client import ControlChannel
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.messages import Hello, ThreadExit, decode_value
from millstream.spark.worker.worker_logging import LoggingSetup
from millstream.spark.worker.worker_task import ThreadPlan, run_plan

KEY = b"k" * 32


class Driver:
    """The driver's side: records reports, and closes each thread that registers if requested."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self.server = ControlServer("shop", KEY, self)

    def on_registered(self, hello: Hello) -> None:
        pass

    def on_report(self, hello: Hello, report: Report) -> None:
        self.reports.append(report)


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = Driver()
    driver.server.start()
    driver.server.expect_thread("t1", 1)
    yield driver
    driver.server.close()


def plan(driver: Driver, main: Any, *, code: bytes = b"", **changes: Any) -> bytes:
    driver.server.expect_thread("t1", changes.get("epoch", 1), code or ship(main, "main"))
    fields: dict[str, Any] = {
        "application_id": "shop",
        "thread_name": "t1",
        "thread_index": 1,
        "epoch": 1,
        "control_address": driver.server.address,
        "authkey": KEY,
        "versions": installed_versions(),
        "logging": LoggingSetup(logging.INFO),
    }
    return pickle.dumps(ThreadPlan(**(fields | changes)))


def state_of_process() -> Any:
    # Threads of the control server may start and end in the meantime.
    threads = {t.name for t in threading.enumerate() if not t.name.startswith("millstream-")}
    signals = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)]
    ours = logging.getLogger("millstream")
    return threads - {"t1-control-sender"}, signals, list(ours.handlers), ours.level, list(sys.path)


def test_the_process_is_left_unchanged(driver: Driver, capsys: pytest.CaptureFixture[str]) -> None:
    """Goal: a stream thread leaves no thread, signal handler, or path entry in a process."""

    def main(channel: ControlChannel, attempt: Hello) -> ThreadExit:
        logging.getLogger("millstream.mapper").info("hello")
        logging.getLogger("millstream.mapper").debug("not at this level")
        logging.getLogger("elsewhere").info("not ours")
        channel.report(SampleReport("path", sys.path[-1]))
        return ThreadExit("closed", history=(attempt.thread_name,))

    before = state_of_process()
    ended = decode_value(run_plan(plan(driver, main, module_path=("/nowhere/modules",))))
    assert ended == ThreadExit("closed", history=("t1",))
    assert driver.reports == [SampleReport("path", "/nowhere/modules"), ended]
    assert state_of_process() == before
    written = capsys.readouterr().err
    assert "[t1] millstream.mapper: hello" in written
    assert "not" not in written


@pytest.mark.parametrize("error", [ValueError("bad"), SystemExit(3), KeyboardInterrupt()])
def test_any_exception_becomes_data(driver: Driver, error: BaseException) -> None:
    """Goal: user code cannot fail the Spark task, not even with sys.exit()."""

    def main(channel: ControlChannel, attempt: Hello) -> ThreadExit:
        raise error

    before = state_of_process()
    ended = decode_value(run_plan(plan(driver, main)))
    assert ended.kind == "error"
    assert type(ended.error) is type(error)
    assert state_of_process() == before


@pytest.mark.parametrize(
    ("attempt", "once", "runs"), [(0, True, True), (1, True, False), (1, False, True)]
)
def test_another_attempt_of_spark_is_left_to_the_driver(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, attempt: int, once: bool, runs: bool
) -> None:
    """If state is on the disks of hosts, because Spark would run it on any of them."""
    task = Mock(attemptNumber=lambda: attempt, taskAttemptId=lambda: 7)
    monkeypatch.setattr(TaskContext, "get", lambda: task)

    def main(channel: ControlChannel, attempt: Hello) -> ThreadExit:
        return ThreadExit("closed")

    ended = decode_value(run_plan(plan(driver, main, first_attempt_only=once)))
    assert ended.kind == ("closed" if runs else "lost")
    assert bool(driver.reports) is runs


def test_a_replaced_attempt_does_not_run(driver: Driver) -> None:
    """Goal: an attempt that was replaced ends before its code is unpickled."""
    replaced = plan(driver, main=None, code=b"not a pickle")
    driver.server.expect_thread("t1", 2)
    ended = decode_value(run_plan(replaced))
    assert ended.kind == "lost"
    assert "older than submission 2" in ended.reason


def test_a_signal_closes_the_thread_as_lost(driver: Driver) -> None:
    """Goal: SIGHUP of PySpark's daemon closes the thread, which counts as lost; an alarm is set."""

    def main(channel: ControlChannel, attempt: Hello) -> ThreadExit:
        os.kill(os.getpid(), signal.SIGHUP)
        while not channel.wait(100):
            pass
        assert [type(received.command) for received in channel.commands()] == [Close]
        return ThreadExit("closed", history=("closed",))

    try:
        ended = decode_value(run_plan(plan(driver, main)))
    finally:
        left_s = signal.alarm(0)
    assert ended == ThreadExit("lost", history=("closed",), reason="SIGHUP")
    assert left_s > 0, "a hung thread must not outlive its executor"


def test_a_failed_background_thread_is_logged(
    driver: Driver, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regardless of its creator: the line contains the time, the thread and the error."""

    def main(channel: ControlChannel, attempt: Hello) -> ThreadExit:
        def raise_error() -> None:
            raise ValueError("unhandled")

        background = threading.Thread(target=raise_error, name="background")
        background.start()
        background.join()
        return ThreadExit("closed")

    before = threading.excepthook
    run_plan(plan(driver, main))
    assert threading.excepthook is before
    errors = capsys.readouterr().err
    assert (
        "ERROR [t1] millstream.spark.worker.worker_task: background ended with an exception"
        in errors
    )
    assert "unhandled" in errors


def test_a_missing_module_in_the_worker(
    driver: Driver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an installed package that the executors lack is named, with the remedy."""
    (tmp_path / "packaged.py").write_text("class Thing:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import packaged  # type: ignore[import-not-found]

    payload = pickle.dumps(packaged.Thing())
    monkeypatch.undo()
    del sys.modules["packaged"]
    ended = decode_value(run_plan(plan(driver, main=None, code=payload)))
    assert isinstance(ended.error, EnvironmentMismatchError)
    assert "packaged" in str(ended.error)
    assert ended.error.differences == (("packaged", "installed", None),)


def test_the_extension_may_be_missing_but_not_differ() -> None:
    """It is needed for reading and writing records; two different versions are a mistake."""
    installed = installed_versions()
    assert EXTENSION in installed
    here = installed[EXTENSION]
    (differences,) = checked_task({**installed, EXTENSION: "0.0.9", "python": "3"}, b"")(iter([]))
    missing = [(EXTENSION, "0.0.9", here)] if here else []
    assert [each for each in differences if each[0] != "python"] == missing
    drivers = {**installed, EXTENSION: None, "python": "3"}
    (differences,) = checked_task(drivers, b"")(iter([]))
    assert [package for package, *_ in differences] == ["python"]


def test_the_workers_need_the_pyarrow_of_the_driver() -> None:
    """If the driver has none, no function in the workers uses it."""
    installed = installed_versions()
    for drivers, expected in (("1.0", [("pyarrow", "1.0", installed["pyarrow"])]), (None, [])):
        versions = {**installed, "pyarrow": drivers, "python": "3"}
        (differences,) = checked_task(versions, b"")(iter([]))
        assert [each for each in differences if each[0] != "python"] == expected


def test_versions_are_compared_before_anything_is_unpickled() -> None:
    """Goal: every difference is returned, and the plan is not unpickled."""
    versions = {**installed_versions(), "python": "3.1", "orjson": "0.1", "unheard-of": "1"}
    (differences,) = checked_task(versions, b"not a pickle")(iter([]))
    assert [package for package, _, _ in differences] == ["python", "orjson", "unheard-of"]
    assert ("unheard-of", "1", None) in differences
    with contextlib.suppress(pickle.UnpicklingError):
        checked_task(installed_versions(), b"not a pickle")(iter([]))
        pytest.fail("equal versions go on to the plan")

"""Fixtures of tests with real components: one broker (from the plugin) and one Spark session per
process.

In continuous integration, tests that the machine can run must not be skipped
(`support.strictness`).
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from support.machine.plain_session import PlainSession
from support.machine.process_logging import restored_logging
from support.machine.spark_classes import SHORT_LIVED, start_options
from support.machine.temporary import TemporaryFolder
from support.strictness import forbid_skip, is_strict

from millstream.embedded import broker_home

_plain_session = PlainSession()
_temporary = pytest.StashKey[TemporaryFolder]()


def pytest_configure(config: pytest.Config) -> None:
    """Set up the environment of the tests and of the programs that they start.

    Programs react to Ctrl-C even if the tests run in the background of a shell, whose children
    ignore it. Spark starts with a third of the work, and brokers run without the JVM's second
    compiler, which costs more processor time than it saves in their short lives. Examples of
    properties have no time limit, because other users of the processors would decide about it.
    """
    # Processes of pytest-xdist use the folder of the process that starts them.
    if not hasattr(config, "workerinput"):
        config.stash[_temporary] = TemporaryFolder()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    broker_home._JVM_OPTIONS = (*broker_home._JVM_OPTIONS, "-XX:TieredStopAtLevel=1")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", start_options())
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if tests have left temporary files, after all processes of pytest ended."""
    if _temporary in session.config.stash and session.config.stash[_temporary].unexpected():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for each in config.stash[_temporary].unexpected() if _temporary in config.stash else ():
        terminalreporter.write_line(f"The tests have left a temporary file: {each}", red=True)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _temporary in config.stash:
        config.stash[_temporary].remove()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Check skips in tests and by marks."""
    report = yield
    if is_strict():
        forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Check skips of whole modules."""
    report = yield
    if is_strict():
        forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the tests from garbage collection: each worker has all of them, and repeated scans
    take a quarter of the processor time of tests without processes."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    _plain_session.sort(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(
    nextitem: pytest.Item | None,
) -> Generator[None, object, object]:
    """Stop the plain session after the last module that uses it."""
    result = yield
    _plain_session.stop_before(nextitem)
    return result


@pytest.fixture(autouse=True)
def _same_logging() -> Iterator[None]:
    """Restore the process's logging. PySpark, for example, replaces the formatter of `caplog`."""
    with restored_logging():
        yield


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    """The plain session; see `support.machine.plain_session`."""
    return _plain_session.get()

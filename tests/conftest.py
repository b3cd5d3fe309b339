"""What tests with real parts share: one broker (from the plugin) and one Spark session a module.

In continuous integration nothing may be skipped that the machine can do (`support.strictness`).
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession
from support.machine.spark_classes import SHORT_LIVED, start_options
from support.strictness import forbid_skip, is_strict

from millstream.embedded import home


def pytest_configure() -> None:
    """Let programs that tests start heed Ctrl-C, also where the tests run in the background of a
    shell, which has its children ignore it; let Spark start with a third of the work, and brokers
    do without the JVM's second compiler, which takes more of a processor than they would in their
    short lives; and let no example of a property fail for its time, which others who use the
    processors decide."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    home._JVM_OPTIONS = (*home._JVM_OPTIONS, "-XX:TieredStopAtLevel=1")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", start_options())
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIVED)
    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What skips itself or is skipped by a mark."""
    report = yield
    if is_strict():
        forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """What skips a whole module."""
    report = yield
    if is_strict():
        forbid_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the collector of garbage pass over the tests: each worker has all of them, and looking
    through them again and again takes a quarter of what tests without processes compute."""
    gc.disable()
    collected = yield
    gc.freeze()
    gc.enable()
    return collected


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A plain `local[8]` session: no retries by Spark, workers used again for other tasks.

    Stopped after each module, because a process has one session and some modules need others.
    """
    session = (
        SparkSession.builder.master("local[8]")
        .appName("millstream-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()

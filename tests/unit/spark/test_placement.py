"""Goal: a restarted thread returns to the host of its state, or the log explains why it does
not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import wait_for

from millstream.spark.hosted_thread import ThreadPlacement

NAME = "shop-6f1c2c1e-52f0-4c4c-8a7e-0e5c1d2b3a4f-StreamThread-1"


class Jobs:
    """The part of Spark with the hosts of jobs, by tag, and of executors."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        self.executors = {"one", "two"}
        self.on_lookup: Callable[[], None] = lambda: None

    def host_of(self, tag: str) -> str | None:
        return self.at.get(tag)

    def hosts(self) -> set[str]:
        self.on_lookup()
        return set(self.executors)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def placement(jobs: Jobs) -> ThreadPlacement:
    spark: Any = jobs
    return ThreadPlacement(NAME, spark)


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname in ("INFO", "WARNING")]


def run(placement: ThreadPlacement, jobs: Jobs, tag: str, host: str) -> None:
    jobs.at[tag] = host
    placement.check(tag)


def test_a_thread_returns_to_its_state(
    placement: ThreadPlacement, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert placement.host is None
    placement.check("t-1")
    assert placement.host is None, "Spark does not report the host yet"
    run(placement, jobs, "t-1", "one")
    assert placement.host == "one"
    for _ in range(2):
        run(placement, jobs, "t-2", "one")
    assert log_lines(caplog) == ["shop-StreamThread-1 was restarted on one, where its state is"]


@pytest.mark.parametrize(
    ("executors", "why"),
    [
        ({"one", "two"}, "no task slot was free there within spark.locality.wait"),
        ({"two"}, "Spark no longer has an executor there"),
    ],
)
def test_a_restart_on_another_host_is_explained_in_the_log(
    placement: ThreadPlacement,
    jobs: Jobs,
    caplog: pytest.LogCaptureFixture,
    executors: set[str],
    why: str,
) -> None:
    """Its state is there from then on."""
    run(placement, jobs, "t-1", "one")
    jobs.executors = executors
    run(placement, jobs, "t-2", "two")
    (line,) = log_lines(caplog)
    assert line.startswith("shop-StreamThread-1 was restarted on two, not on one, where")
    assert why in line
    assert "restored from the changelogs" in line
    assert placement.host == "two"


def test_a_thread_waits_for_a_host_without_executor(placement: ThreadPlacement, jobs: Jobs) -> None:
    """Until the host returns, or the thread is no longer needed."""
    never = threading.Event()
    placement.await_host(never)
    run(placement, jobs, "t-1", "one")
    placement.await_host(never)
    jobs.executors = {"two"}
    looked_up = threading.Event()
    jobs.on_lookup = looked_up.set
    waiting = threading.Thread(target=placement.await_host, args=(never,))
    waiting.start()
    assert looked_up.wait(30)
    jobs.executors.add("one")
    wait_for(lambda: not waiting.is_alive(), 30, "the thread is placed")
    jobs.executors = set()
    over = threading.Event()
    over.set()
    placement.await_host(over)

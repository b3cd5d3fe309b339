"""Goal: a thread that is started again goes back to the host of its state, or says why not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import wait_for

from millstream.spark.placement import Placement

NAME = "shop-6f1c2c1e-52f0-4c4c-8a7e-0e5c1d2b3a4f-StreamThread-1"


class Jobs:
    """Where Spark runs jobs, by their tags, and where it has executors."""

    def __init__(self) -> None:
        self.at: dict[str, str] = {}
        self.executors = {"one", "two"}
        self.on_asked: Callable[[], None] = lambda: None

    def host_of(self, tag: str) -> str | None:
        return self.at.get(tag)

    def hosts(self) -> set[str]:
        self.on_asked()
        return set(self.executors)


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def placement(jobs: Jobs) -> Placement:
    spark: Any = jobs
    return Placement(NAME, spark)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelname in ("INFO", "WARNING")]


def run(placement: Placement, jobs: Jobs, tag: str, host: str) -> None:
    jobs.at[tag] = host
    placement.look(tag)


def test_a_thread_comes_back_to_its_state(
    placement: Placement, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert placement.host is None
    placement.look("t-1")
    assert placement.host is None, "Spark does not know yet"
    run(placement, jobs, "t-1", "one")
    assert placement.host == "one"
    for _ in range(2):
        run(placement, jobs, "t-2", "one")
    assert said(caplog) == ["shop-StreamThread-1 is back on one, where its state is"]


@pytest.mark.parametrize(
    ("executors", "why"),
    [
        ({"one", "two"}, "no task slot was free there within spark.locality.wait"),
        ({"two"}, "Spark has no executor there any more"),
    ],
)
def test_elsewhere_it_says_where_it_is_and_why_that_matters(
    placement: Placement,
    jobs: Jobs,
    caplog: pytest.LogCaptureFixture,
    executors: set[str],
    why: str,
) -> None:
    """From then on its state is there."""
    run(placement, jobs, "t-1", "one")
    jobs.executors = executors
    run(placement, jobs, "t-2", "two")
    (line,) = said(caplog)
    assert line.startswith("shop-StreamThread-1 was started again on two, not on one, where")
    assert why in line
    assert "restored from the changelogs" in line
    assert placement.host == "two"


def test_a_host_whose_executor_is_gone_is_waited_for(placement: Placement, jobs: Jobs) -> None:
    """Until it is back, or nobody wants the thread any more."""
    never = threading.Event()
    placement.await_host(never)
    run(placement, jobs, "t-1", "one")
    placement.await_host(never)
    jobs.executors = {"two"}
    asked = threading.Event()
    jobs.on_asked = asked.set
    waiting = threading.Thread(target=placement.await_host, args=(never,))
    waiting.start()
    assert asked.wait(30)
    jobs.executors.add("one")
    wait_for(lambda: not waiting.is_alive(), 30, "it is back")
    jobs.executors = set()
    over = threading.Event()
    over.set()
    placement.await_host(over)

"""Which stream threads leave an executor that is to go, and when."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.spark.departures import Departures
from millstream.spark.sessions.free_slots import FreeSlots, SlotClaim


class Jobs:
    """Spark: where jobs run, by their tags, and which executors are to go."""

    def __init__(self, *, may_lose_executors: bool = True) -> None:
        self.may_lose_executors = may_lose_executors
        self.at: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.asked = 0

    def executor_of(self, tag: str) -> str | None:
        self.asked += 1
        return self.at.get(tag)

    def is_leaving(self, executor: str) -> bool:
        return executor in self.leaving


class World:
    """Threads with one job each, on such jobs, and some slots."""

    def __init__(self, jobs: Jobs, slots: int) -> None:
        self.jobs = jobs
        self.clock = ManualClock()
        self.slots = slots
        self.threads = [Mock(running_tag=f"t-{number}") for number in (1, 2)]
        for number, thread in enumerate(self.threads, 1):
            thread.name = f"shop-StreamThread-{number}"
        spark: Any = jobs
        self.departures = Departures(spark, self._claim, self.clock)

    def _claim(self) -> SlotClaim | FreeSlots:
        if self.slots == 0:
            return FreeSlots(0)
        self.slots -= 1
        return SlotClaim("app", 1)

    def look(self) -> list[str]:
        """A second later: why each thread that was told to move was."""
        self.clock.advance(1_000)
        for thread in self.threads:
            thread.move.reset_mock()
        threads: Any = self.threads
        self.departures.look(threads)
        return [call.args[0] for thread in self.threads for call in thread.move.call_args_list]


def test_threads_leave_as_slots_are_there_for_them(caplog: pytest.LogCaptureFixture) -> None:
    """Only those of that executor; who has no slot is told of once, and moves when there is one."""
    world = World(Jobs(), slots=0)
    assert world.look() == [], "Spark does not know yet where they are"
    world.jobs.at = {"t-1": "1", "t-2": "2"}
    assert world.look() == []
    world.jobs.leaving = {"1"}
    for _ in range(3):
        assert world.look() == []
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("shop-StreamThread-1 is on executor 1, which is decommissioned, and no")
    world.slots = 2
    assert world.look() == ["its executor 1 is decommissioned."]
    assert world.slots == 1


def test_spark_is_asked_once_where_a_job_runs() -> None:
    """And not at all where nobody decommissions executors, or within the same second."""
    world = World(Jobs(), slots=1)
    world.jobs.at = {"t-1": "1", "t-2": "2"}
    for _ in range(3):
        world.look()
    assert world.jobs.asked == 2
    threads: Any = world.threads
    world.jobs.leaving = {"1"}
    world.departures.look(threads)
    assert world.slots == 1, "it has looked within this second"
    calm = World(Jobs(may_lose_executors=False), slots=1)
    calm.jobs.at, calm.jobs.leaving = {"t-1": "1"}, {"1"}
    assert calm.look() == []
    assert calm.jobs.asked == 0


def test_threads_that_do_not_run_are_left_alone() -> None:
    """They have no job, are closing, or move already."""
    world = World(Jobs(), slots=2)
    world.jobs.at, world.jobs.leaving = {"t-1": "1", "t-2": "1"}, {"1"}
    world.threads[0].running_tag = None
    assert world.look() == ["its executor 1 is decommissioned."]
    world.threads[0].move.assert_not_called()

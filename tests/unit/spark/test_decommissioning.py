"""Which stream threads leave a decommissioned executor, and when."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock
from millstream.spark.hosted_thread import DecommissionMonitor
from millstream.spark.sessions.free_slots import FreeSlots, SlotClaim


class Jobs:
    """The part of Spark with the executors of jobs, by tag, and their decommissioning."""

    def __init__(self, *, decommissioning_enabled: bool = True) -> None:
        self.decommissioning_enabled = decommissioning_enabled
        self.at: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.lookups = 0

    def executor_of(self, tag: str) -> str | None:
        self.lookups += 1
        return self.at.get(tag)

    def is_decommissioned(self, executor: str) -> bool:
        return executor in self.leaving


class World:
    """Threads with one job each, and some slots."""

    def __init__(self, jobs: Jobs, slots: int) -> None:
        self.jobs = jobs
        self.clock = ManualClock()
        self.slots = slots
        self.threads = [Mock(running_tag=f"t-{number}") for number in (1, 2)]
        for number, thread in enumerate(self.threads, 1):
            thread.name = f"shop-StreamThread-{number}"
        spark: Any = jobs
        self.departures = DecommissionMonitor(spark, self._claim, self.clock)

    def _claim(self) -> SlotClaim | FreeSlots:
        if self.slots == 0:
            return FreeSlots(0)
        self.slots -= 1
        return SlotClaim("app", 1)

    def check(self) -> list[str]:
        """Check again after a second, and return the reason for each thread that was requested
        to move."""
        self.clock.advance(1_000)
        for thread in self.threads:
            thread.move.reset_mock()
        threads: Any = self.threads
        self.departures.check(threads)
        return [call.args[0] for thread in self.threads for call in thread.move.call_args_list]


def test_threads_leave_as_slots_become_free(caplog: pytest.LogCaptureFixture) -> None:
    """Only those of that executor; a thread without a slot is reported once, and moves when
    there is a slot."""
    world = World(Jobs(), slots=0)
    assert world.check() == [], "Spark does not report their executors yet"
    world.jobs.at = {"t-1": "1", "t-2": "2"}
    assert world.check() == []
    world.jobs.leaving = {"1"}
    for _ in range(3):
        assert world.check() == []
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith(
        "shop-StreamThread-1 is on executor 1, which is being decommissioned, and no"
    )
    world.slots = 2
    assert world.check() == ["its executor 1 is being decommissioned."]
    assert world.slots == 1


def test_the_executor_of_a_job_is_looked_up_once() -> None:
    """And never without decommissioned executors, or twice within a second."""
    world = World(Jobs(), slots=1)
    world.jobs.at = {"t-1": "1", "t-2": "2"}
    for _ in range(3):
        world.check()
    assert world.jobs.lookups == 2
    threads: Any = world.threads
    world.jobs.leaving = {"1"}
    world.departures.check(threads)
    assert world.slots == 1, "the last check was within this second"
    calm = World(Jobs(decommissioning_enabled=False), slots=1)
    calm.jobs.at, calm.jobs.leaving = {"t-1": "1"}, {"1"}
    assert calm.check() == []
    assert calm.jobs.lookups == 0


def test_threads_that_do_not_run_are_left_alone() -> None:
    """They have no job, are closing, or are already moving."""
    world = World(Jobs(), slots=2)
    world.jobs.at, world.jobs.leaving = {"t-1": "1", "t-2": "1"}, {"1"}
    world.threads[0].running_tag = None
    assert world.check() == ["its executor 1 is being decommissioned."]
    world.threads[0].move.assert_not_called()

"""Two instances of one application, each a driver process with its own Spark session."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.machine.leftovers import runs
from support.machine.scripts import Script
from support.running.instances import Instances, now
from support.running.word_count import RUNNING
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka


def tasks_of(script: Script) -> list[str]:
    """The tasks that an instance runs, once it is RUNNING."""
    report = now(script)
    return list(report["active"]) if report.get("state") == "RUNNING" else []


def worker_of(script: Script) -> int:
    """The process of its only stream thread."""
    (pid,) = now(script)["pids"]
    return int(pid)


def wait_shared(one: Script, other: Script) -> None:
    wait_for(
        lambda: (
            len(tasks_of(one)) == len(tasks_of(other)) == 4
            and set(tasks_of(one)).isdisjoint(tasks_of(other))
        ),
        120,
        f"the tasks are shared: {one.lines[-3:]}, {other.lines[-3:]}",
    )


@pytest.mark.slow
def test_the_other_instance_takes_over_from_a_killed_driver(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Goal: instances share the tasks; when one fails the other takes over all of them without
    losing records.

    Method: SIGKILL, first to the driver with all its processes, as in a machine failure; then,
    after its restart, to the driver alone, whose JVM and worker must end by themselves. There is
    continuous input.
    """
    instances = Instances(kafka, tmp_path)
    application = instances.application
    application.write(1_000)
    every_task = [f"{part}_{number}" for part in (0, 1) for number in range(4)]
    with instances.start("other") as other, instances.start("one") as one:
        wait_shared(one, other)
        application.check()
        with application.continuous_input():
            worker = worker_of(one)
            with application.fault():
                one.signal_group(signal.SIGKILL)
                wait_for(lambda: not runs(worker), 30, "the instance has ended")
            wait_for(lambda: tasks_of(other) == every_task, 60, "the other has all tasks")
        application.check(90)

        with instances.start("one") as one_again:
            wait_shared(one_again, other)
            with application.continuous_input():
                worker = worker_of(one_again)
                one_again.signal(signal.SIGKILL)
                # The worker commits before it ends: no id may be repeated.
                wait_for(lambda: tasks_of(other) == every_task, 60, "the other has all tasks")
                wait_for(lambda: not runs(worker), 45, "the orphaned worker has ended")
                wait_for(lambda: not one_again.group_exists(), 30, "all other processes have ended")
            application.check(90)
            assert tasks_of(other) == every_task

        other.signal(signal.SIGINT)
        assert other.wait_ended(30) == 0
        name = application.application_id
        begun, runs_now, closing, ended = (
            line for line in other.errors.splitlines() if line.startswith("millstream: ")
        )
        assert f"is starting {name}: " in begun
        assert f"{name} is RUNNING after " in runs_now
        assert "on Spark local[" in runs_now
        assert "task" in runs_now
        assert closing == f"millstream: SIGINT: closing {name}; repeat to kill its threads"
        assert ended == f"millstream: {name} stopped, everything committed"


@pytest.mark.extended
def test_two_drivers_cannot_share_a_state_directory(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the second one immediately gets an error that suggests another directory; the first
    one is unaffected."""
    instances = Instances(kafka, tmp_path)
    state = tmp_path / "state"
    with instances.application.streams(spark, state_dir=str(state)) as first:
        with instances.start("state") as second:
            assert second.wait_ended(30) == 1
            last = second.errors.splitlines()[-1]
        first.wait_for_state("RUNNING", RUNNING)
        assert last.startswith("millstream.errors.LockError")
        assert str(state) in last
        assert f"process {os.getpid()}" in last
        assert "needs its own state.dir" in last

"""Two instances, or two hosts, of one application with standbys: state is in place before it is
needed."""

from __future__ import annotations

import signal
import uuid
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.machine.scripts import Script
from support.running.instances import (
    COUNTING,
    Instances,
    counting,
    end_of,
    is_running,
    last_copied,
    reported,
)
from support.running.thread_run import ThreadRun
from support.running.topologies.identified import Identified
from support.waiting import wait_for

from millstream.runtime.client_process import WorkerHost
from millstream.runtime.states.thread_states import TaskState
from millstream.testing import EmbeddedKafka


def shared(one: Script, other: Script) -> bool:
    """Both are running, and each counts one half."""
    active = counting(one), counting(other)
    halves = len(active[0]) == len(active[1]) == 2 and sorted(active[0] + active[1]) == COUNTING
    return halves and is_running(one) and is_running(other)


def mirrored(one: Script, other: Script) -> bool:
    """Each has standbys of the other's tasks."""
    return shared(one, other) and all(
        counting(script) == counting(other_script, "standby")
        for script, other_script in ((one, other), (other, one))
    )


def test_threads_of_one_driver_on_two_hosts_have_standbys_for_each_other(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Goal: hosts share the driver, but not the state. So an application on one driver has
    standbys, each on another host than its task.

    Method: two threads of one driver that report different hosts, each with its own disk.
    """
    application = Identified(kafka, tmp_path)
    application.write(100)

    def thread(name: str) -> ThreadRun:
        config = application.config(
            state_dir=str(tmp_path / name), commit_interval_ms=100, num_standby_replicas=1
        )
        return ThreadRun(
            application.topology(), config, driver=uuid.UUID(int=1), host=WorkerHost(name)
        )

    def counted(thread: ThreadRun, *states: TaskState) -> list[str]:
        tasks = [str(task) for task, state in thread.tasks.items() if state in states]
        return sorted(task for task in tasks if task in COUNTING)

    def mirrors(one: ThreadRun, two: ThreadRun) -> bool:
        active = [counted(each, TaskState.RUNNING) for each in (one, two)]
        copied = [counted(each, TaskState.STANDBY) for each in (two, one)]
        return sorted(active[0] + active[1]) == COUNTING and active == copied and all(active)

    with thread("one") as one, thread("two") as two:
        wait_for(lambda: mirrors(one, two), 90, "each has standbys of the other's tasks")
        application.write(100)
        application.check()
    folders = [tmp_path / name / application.application_id for name in ("one", "two")]
    kept = [(folder / "kafka-streams-process-metadata").read_text() for folder in folders]
    assert kept[0] != kept[1]


# Without standbys it is slow, and mostly covered by test_two_instances.
@pytest.mark.extended
@pytest.mark.parametrize("standbys", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_standbys_take_over_from_a_killed_instance(
    kafka: EmbeddedKafka, tmp_path: Path, standbys: int
) -> None:
    """Goal: with a standby, a takeover restores only records that the standby has not read yet,
    none if it was idle; without one everything is restored. In either case no id is lost or
    repeated.

    Method: both instances work; SIGKILL to one, with all its processes, when the standbys have
    caught up; the restore listener of the other one reports the number of restored records.
    """
    instances = Instances(kafka, tmp_path, num_standby_replicas=standbys)
    application = instances.application
    application.write(1_000)
    with ExitStack() as running:
        one = running.enter_context(instances.start("one"))
        wait_for(lambda: counting(one) == COUNTING, 120, "one instance has all tasks")
        # Not earlier, so that the other instance has never had state of the first one's tasks.
        other = running.enter_context(instances.start("other"))
        ready = mirrored if standbys else shared
        wait_for(lambda: ready(one, other), 120, "the tasks are shared")
        application.write(500)
        application.check()
        lost = [int(task.partition("_")[2]) for task in counting(one)]
        (changelog,) = application.changelog_topics
        ends = {number: end_of(application.bootstrap, changelog, number) for number in lost}
        if standbys:
            wait_for(
                lambda: all(last_copied(other, number) == ends[number] - 1 for number in lost),
                60,
                "the standbys have caught up",
            )
        before, suspended = len(reported(other, "restored")), len(reported(other, "suspended"))
        one.signal_group(signal.SIGKILL)
        wait_for(
            lambda: counting(other) == COUNTING and is_running(other),
            60,
            "the other instance has all tasks",
        )
        restored = dict(reported(other, "restored")[before:])
        assert restored == (dict.fromkeys(lost, 0) if standbys else ends)
        if standbys:
            ended = sorted(reported(other, "suspended")[suspended:])
            assert ended == [[number, "PROMOTED"] for number in lost]
        application.write(500)
        # Everything was committed before the kill, so nothing is repeated either.
        application.check()
        other.signal(signal.SIGINT)
        assert other.wait_ended(30) == 0

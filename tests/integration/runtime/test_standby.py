"""Two instances, or two hosts, of one application with standbys: state is where it is needed,
beforehand."""

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
    told,
)
from support.running.thread_run import ThreadRun
from support.running.topologies.identified import Identified
from support.waiting import wait_for

from millstream.runtime.host import Host
from millstream.runtime.states import TaskState
from millstream.testing import EmbeddedKafka


def shared(one: Script, other: Script) -> bool:
    """Both run, and each counts the half."""
    active = counting(one), counting(other)
    halves = len(active[0]) == len(active[1]) == 2 and sorted(active[0] + active[1]) == COUNTING
    return halves and is_running(one) and is_running(other)


def mirrored(one: Script, other: Script) -> bool:
    """Each has copies of what the other one counts."""
    return shared(one, other) and all(
        counting(script) == counting(beside, "standby")
        for script, beside in ((one, other), (other, one))
    )


def test_the_threads_of_one_driver_on_two_hosts_keep_copies_for_each_other(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Goal: a host is a client: what it shares with other hosts is the driver, not the state. So
    one application has standbys, each on another host than its task.

    Method: two threads of one driver, which believe to be on hosts of their own, each with a disk.
    """
    application = Identified(kafka, tmp_path)
    application.write(100)

    def thread(name: str) -> ThreadRun:
        return ThreadRun(
            application.topology(),
            kafka.bootstrap_servers,
            tmp_path / name,
            application.application_id,
            driver=uuid.UUID(int=1),
            host=Host(name),
            num_standby_replicas=1,
        )

    def counted(thread: ThreadRun, *states: TaskState) -> list[str]:
        tasks = [str(task) for task, state in thread.tasks.items() if state in states]
        return sorted(task for task in tasks if task in COUNTING)

    def mirrors(one: ThreadRun, two: ThreadRun) -> bool:
        active = [counted(each, TaskState.RUNNING) for each in (one, two)]
        copied = [counted(each, TaskState.STANDBY) for each in (two, one)]
        return sorted(active[0] + active[1]) == COUNTING and active == copied and all(active)

    with thread("one") as one, thread("two") as two:
        wait_for(lambda: mirrors(one, two), 90, "each has copies of what the other one counts")
        application.write(100)
        application.check()
    folders = [tmp_path / name / application.application_id for name in ("one", "two")]
    kept = [(folder / "kafka-streams-process-metadata").read_text() for folder in folders]
    assert kept[0] != kept[1]


# Without standbys it is among what takes long: test_two_instances tells most of it.
@pytest.mark.parametrize("standbys", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_when_an_instance_is_killed_its_standbys_go_on_at_once(
    kafka: EmbeddedKafka, tmp_path: Path, standbys: int
) -> None:
    """Goal: with a standby, taking over restores only what the copy has not read yet, nothing when
    it was idle; without one everything is restored. No id is lost or repeated either way.

    Method: both instances work; SIGKILL to one, with all its processes, when the copies have read
    everything; the restore listener of the other one says how many records it restored.
    """
    instances = Instances(kafka, tmp_path, num_standby_replicas=standbys)
    application = instances.application
    application.write(1_000)
    with ExitStack() as running:
        one = running.enter_context(instances.start("one"))
        wait_for(lambda: counting(one) == COUNTING, 120, "one has all")
        # Only now, so that nothing of what the first one goes on to count was ever here.
        other = running.enter_context(instances.start("other"))
        ready = mirrored if standbys else shared
        wait_for(lambda: ready(one, other), 120, "the work is shared")
        application.write(500)
        application.check()
        lost = [int(task.partition("_")[2]) for task in counting(one)]
        (changelog,) = application.changelog_topics
        ends = {number: end_of(application.bootstrap, changelog, number) for number in lost}
        if standbys:
            wait_for(
                lambda: all(last_copied(other, number) == ends[number] - 1 for number in lost),
                60,
                "the copies have read everything",
            )
        before, suspended = len(told(other, "restored")), len(told(other, "suspended"))
        one.signal_group(signal.SIGKILL)
        wait_for(
            lambda: counting(other) == COUNTING and is_running(other),
            60,
            "the other one counts everything",
        )
        restored = dict(told(other, "restored")[before:])
        assert restored == (dict.fromkeys(lost, 0) if standbys else ends)
        if standbys:
            ended = sorted(told(other, "suspended")[suspended:])
            assert ended == [[number, "PROMOTED"] for number in lost]
        application.write(500)
        # Everything was committed before the kill: nothing is repeated either.
        application.check()
        other.signal(signal.SIGINT)
        assert other.wait_ended(30) == 0

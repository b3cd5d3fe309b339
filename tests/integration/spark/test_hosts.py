"""One application whose threads run on several hosts of a standalone cluster on this machine:
each host has its own address, environment and disk."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.machine.standalone import Standalone
from support.running.instances import COUNTING
from support.running.topologies.identified import Identified
from support.waiting import wait_for

from millstream import KafkaStreams, ThreadMetadata
from millstream.testing import EmbeddedKafka

HOSTS = ("127.0.0.2", "127.0.0.3")
#: Two slots on each host are not enough for all threads, so each host has some.
THREADS, SLOTS = 3, 2


def clients(streams: KafkaStreams) -> dict[str, str]:
    """The client of each running thread, by the name of the thread."""
    threads = streams.metadata_for_local_threads()
    return {
        each.thread_name: each.client
        for each in threads
        if each.client is not None and each.thread_state == "RUNNING"
    }


def places(streams: KafkaStreams, *, standby: bool) -> dict[str, str]:
    """The client of each stateful task, or of its standby."""

    def tasks(thread: ThreadMetadata) -> list[str]:
        return [task.task_id for task in (thread.standby_tasks if standby else thread.active_tasks)]

    return {
        task: each.client
        for each in streams.metadata_for_local_threads()
        if each.client is not None
        for task in tasks(each)
        if task in COUNTING
    }


def is_mirrored(streams: KafkaStreams) -> bool:
    """Whether each stateful task has a standby on another host."""
    assert streams.error is None, streams.error
    active, standbys = places(streams, standby=False), places(streams, standby=True)
    return (
        sorted(active) == sorted(standbys) == COUNTING
        and len(set(clients(streams).values())) == len(HOSTS)
        and all(active[task] != standbys[task] for task in COUNTING)
    )


def kept_by(disks: Mapping[str, Path], application: str) -> dict[str, str]:
    """The host of each client, according to the state on the disks."""
    return {
        (disk / application / "kafka-streams-process-metadata").read_text(): host
        for host, disk in disks.items()
    }


@pytest.mark.slow
def test_each_host_is_a_client_of_one_application(
    kafka: EmbeddedKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: with `num_standby_replicas=1` the standbys of an application are on the other host; a
    failed thread returns to the host of its state; if a host fails, the other one takes over. No id
    is lost.

    Method: SIGKILL to the worker of a thread, then to all processes of a host.
    """
    caplog.set_level("INFO", "millstream")
    disks = {host: tmp_path / f"disk-{host}" for host in HOSTS}
    environments = {host: {"DISK": str(disk)} for host, disk in disks.items()}
    os.environ["DISK"] = str(tmp_path / "driver")
    application = Identified(kafka, tmp_path, num_stream_threads=THREADS)
    application.write(1_000)
    with (
        Standalone(tmp_path, environments, SLOTS) as cluster,
        cluster.session() as session,
        application.streams(session, state_dir="${DISK}", num_standby_replicas=1) as streams,
    ):
        wait_for(lambda: is_mirrored(streams), 180, "each task has a standby on the other host")
        application.check(90)
        assert set(kept_by(disks, application.application_id).values()) == set(HOSTS)

        before = clients(streams)
        failed_host = streams.metadata_for_local_threads()[0]
        with application.continuous_input(), application.fault():
            os.kill(failed_host.pid or 0, signal.SIGKILL)
            wait_for(
                lambda: "was restarted on 127.0.0." in caplog.text,
                120,
                "the thread is running again",
            )
            wait_for(
                lambda: clients(streams) == before and is_mirrored(streams),
                120,
                "the thread runs on its old host, and the standbys are in place",
            )
        application.check(90)

        with application.continuous_input(), application.fault():
            cluster.kill(HOSTS[0])
            wait_for(
                lambda: (
                    sorted(places(streams, standby=False)) == COUNTING
                    and len(set(places(streams, standby=False).values())) == 1
                ),
                120,
                "the other host has all tasks",
            )
        application.check(120)
        assert streams.error is None

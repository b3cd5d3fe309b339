"""The driver is killed, and its threads on a cluster end in an orderly way."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from support.broker.topics import group_members
from support.machine.standalone import Standalone
from support.running.instances import COUNTING, Instances, counting, is_running, reported
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

#: Longer than the test: everything committed was committed by closing.
LONG_INTERVAL_MS = 600_000


@pytest.mark.slow
def test_threads_of_a_killed_driver_commit_and_leave_the_group(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Nothing is lost or repeated without an explicit close, and the next driver restores
    nothing: the state is on the executors' disks."""
    with Standalone(tmp_path / "work", {"127.0.0.1": {}}, slots=4) as cluster:
        instances = Instances(
            kafka,
            tmp_path,
            master=cluster.master,
            num_stream_threads=2,
            commit_interval_ms=LONG_INTERVAL_MS,
            consumer={"session.timeout.ms": 45_000},
            caching=False,
        )
        application = instances.application
        with instances.start("one") as script:
            wait_for(lambda: is_running(script), 90, "the instance is running")
            application.write(1_000)
            wait_for(
                lambda: application.ends == 2_000, 90, "all records are in the repartition topic"
            )
            script.signal_group(signal.SIGKILL)
            wait_for(
                lambda: group_members(application.bootstrap, application.application_id) == 0,
                # Long before the members' sessions time out.
                30,
                "the threads have left",
            )
        with instances.start("one") as script:
            wait_for(
                lambda: is_running(script) and counting(script) == COUNTING,
                90,
                "the instance is running",
            )
            application.write(500)
            wait_for(
                lambda: not application.account().never_output,
                60,
                "the remaining records are output",
            )
            assert all(number == 0 for _, number in reported(script, "restored"))
            script.signal(signal.SIGTERM)
            assert script.wait_ended(60) == 0
    assert application.check(30).repeated == 0

"""SIGTERM to all processes of an application, as in a shutdown of its machine."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from support.broker.topics import group_members
from support.machine.leftovers import descendants, runs
from support.machine.scripts import Script
from support.running.instances import Instances, is_running
from support.waiting import HANG_S, wait_for

from millstream.testing import EmbeddedKafka

#: Longer than the test: everything committed was committed by closing.
LONG_INTERVAL_MS = 600_000
#: It takes fifteen seconds on an idle machine.
START_S = 180


def processes(script: Script) -> dict[str, list[int]]:
    """The processes of an instance by kind; the workers' daemon is one of the Python processes."""
    found: dict[str, list[int]] = {"driver": [script.pid], "jvm": [], "workers": []}
    for pid in descendants(script.pid):
        is_java = Path(f"/proc/{pid}/comm").read_text().strip() == "java"
        found["jvm" if is_java else "workers"].append(pid)
    return found


def terminate(pids: list[int]) -> None:
    for pid in pids:
        # It may have ended after another one already.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


@pytest.mark.extended
@pytest.mark.parametrize(
    "order",
    [
        "all at once",
        *(
            pytest.param(order, marks=pytest.mark.slow)
            for order in (
                "jvm, driver, workers",
                "workers, jvm, driver",
                "driver, workers, jvm",
                "workers, driver, jvm",
                "jvm, workers, driver",
            )
        ),
    ],
)
def test_nothing_is_lost_or_repeated_in_any_order_of_signals(
    kafka: EmbeddedKafka, tmp_path: Path, order: str
) -> None:
    """Work is committed, the group is left immediately, and `run` succeeds.

    Detects a driver that receives reports of its threads only through the JVM, which may end first.
    """
    instances = Instances(
        kafka, tmp_path, commit_interval_ms=LONG_INTERVAL_MS, num_stream_threads=2, caching=False
    )
    application = instances.application
    application.write(500)
    with instances.start("one") as script:
        wait_for(lambda: is_running(script), START_S, lambda: f"it runs: {script.errors[-4_000:]}")
        wait_for(lambda: application.ends == 1_000, 60, "all records are in the repartition topic")
        application.write(500)
        wait_for(
            lambda: application.ends == 2_000, 60, "the new records are in the repartition topic"
        )
        found = processes(script)
        if order == "all at once":
            script.signal_group(signal.SIGTERM)
        else:
            for kind in order.split(", "):
                terminate(found[kind])
                time.sleep(0.15)
        code = script.wait_ended(HANG_S)
        assert (code, "everything committed" in script.errors) == (0, True), script.errors[-6_000:]
        assert group_members(application.bootstrap, application.application_id) == 0
        if order == "all at once":
            assert "[spark]" not in script.errors, "the JVM ends without warnings"
        wait_for(lambda: not script.group_exists(), 15, "no process is left")
        wait_for(lambda: not any(map(runs, found["jvm"])), 15, "the JVM has ended with its driver")
    with instances.start("one") as script:
        # No process may remain: one that Python is still starting would be killed by the signal.
        wait_for(
            lambda: is_running(script), START_S, lambda: f"runs again: {script.errors[-4_000:]}"
        )
        wait_for(
            lambda: not application.account().never_output,
            60,
            "the remaining records are processed",
        )
        script.signal(signal.SIGTERM)
        assert script.wait_ended(30) == 0
    assert application.check(30).repeated == 0

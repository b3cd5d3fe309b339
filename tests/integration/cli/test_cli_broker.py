"""`millstream broker` and `millstream doctor` as separate programs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from support.machine.scripts import Program

MILLSTREAM = str(Path(sys.executable).with_name("millstream"))


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.extended)]
)
def test_the_broker_runs_until_it_is_stopped(ending: signal.Signals) -> None:
    """It prints its address once the topics exist, and exits successfully on Ctrl-C and SIGTERM."""
    options = ["--port", "0", "--topic", "clicks:3", "--property", "num.io.threads=2"]
    with Program(MILLSTREAM, "broker", *options) as program:
        address = program.wait_for_line("bootstrap.servers=")
        metadata = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(
            timeout=20
        )
        assert len(metadata.topics["clicks"].partitions) == 3
        program.signal(ending)
        assert program.wait_ended(30) == 0
        assert "Traceback" not in program.errors


@pytest.mark.slow
def test_the_demo_succeeds(tmp_path: Path) -> None:
    """Broker, Spark and a thousand orders, from any folder; nothing is left behind."""
    done = subprocess.run(
        [MILLSTREAM, "demo", "--orders", "1000", "--threads", "1", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["orders"], document["wrong"]) == (1_000, [])
    assert sum(each["orders"] for each in document["totals"].values()) == 1_000
    assert list(tmp_path.iterdir()) == []


def test_doctor_finds_no_problem() -> None:
    """A machine that runs these tests meets all requirements."""
    done = subprocess.run(
        [MILLSTREAM, "doctor"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("ok      ") == len(done.stdout.splitlines()) == 12
    assert "C extension" in done.stdout


@pytest.mark.slow
def test_several_brokers_take_consecutive_ports() -> None:
    """The addresses of all brokers are printed, and a topic has three replicas."""
    options = ("--port", "0", "--brokers", "3", "--topic", "clicks:2")
    with Program(MILLSTREAM, "broker", *options) as program:
        servers = program.wait_for_line("bootstrap.servers=", 60)
        assert len(servers.split(",")) == 3
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        partitions = admin.list_topics("clicks", timeout=20).topics["clicks"].partitions
        assert [len(partition.replicas) for partition in partitions.values()] == [3, 3]

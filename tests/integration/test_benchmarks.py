"""The parts of `make bench` work; their speed is not checked here."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import marks
import programs
import pytest
import workload
from conformance.oracle.process import OracleUnavailable
from programs import PEER, Run
from support.broker.topics import fill, latest, unique
from support.machine.java_streams import JavaProgram
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.extended

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench.py"
TIMEOUT_S = 300


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["stores"], "commit, per change"),
        (["metrics"], "count"),
        (["scale"], "20"),
        (["scaling", "--lines", "depth,keys,tasks,entry-memory"], "as counted by the cache"),
        (["restore"], "Millstream"),
        pytest.param(["scaling"], "total", marks=pytest.mark.slow),
        pytest.param(["throughput"], "wordcount", marks=pytest.mark.slow),
        pytest.param(["guarantees", "--jobs", "rekeyed"], "Millstream", marks=pytest.mark.slow),
        pytest.param(["latency", "--rates", "200"], "count", marks=pytest.mark.slow),
        pytest.param(["failover"], "Millstream", marks=pytest.mark.slow),
        pytest.param(["queries"], "99 of 100 within", marks=pytest.mark.slow),
        pytest.param(["snapshots"], "Kafka source and SQL", marks=pytest.mark.slow),
        pytest.param(["async"], "http 1 x 20", marks=pytest.mark.slow),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_benchmark_runs_and_checks_its_results(
    kafka: EmbeddedKafka, arguments: list[str], end: str
) -> None:
    """Goal: benchmarks that are rarely run stay intact.

    Method: each part with few records and without Kafka Streams. It checks its own output, and its
    last line with numbers is the median of its last program or operation.
    """
    ran = subprocess.run(
        [
            sys.executable,
            str(BENCH),
            "--smoke",
            "--programs",
            "ours",
            "--records",
            "2000",
            "--bootstrap-servers",
            kafka.bootstrap_servers,
            "--only",
            *arguments,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stdout[-2_000:] + ran.stderr[-2_000:]
    lines = [line for line in ran.stdout.splitlines() if line]
    assert end in lines[-1], lines


@pytest.mark.parametrize("name", programs.JOBS)
def test_each_workload_exists_in_both_languages(name: str) -> None:
    """Goal: each workload has a class for Kafka Streams."""
    assert workload.find(name).description.endswith(".")
    class_name = "".join(word.capitalize() for word in name.split("_"))
    assert (PEER / "src" / "main" / "java" / "workloads" / f"{class_name}.java").is_file()


@pytest.mark.slow
def test_the_peer_on_kafka_streams_counts(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: the Java program for comparison compiles, runs, and counts correctly."""
    run = Run(
        program="java",
        job="count",
        round=1,
        application_id=unique("peer"),
        bootstrap_servers=kafka.bootstrap_servers,
        input_topic=unique("peer-in"),
        output_topic=unique("peer-out"),
        records=300,
        folder=tmp_path,
    )
    for topic in (run.input_topic, run.output_topic):
        kafka.create_topic(topic)
    keys = [b"user-%d" % (number % 7) for number in range(run.records)]
    fill(run.bootstrap_servers, run.input_topic, [(key, b"{}") for key in keys])
    expected = {key: count.to_bytes(8, "big") for key, count in Counter(keys).items()}
    try:
        sources = PEER / "src" / "main" / "java"
        workloads = sorted(sources.glob("workloads/*.java"))
        peer = JavaProgram(sources / "Peer.java", *run.arguments(), more=workloads)
    except OracleUnavailable as why:
        pytest.skip(str(why))
    with peer:
        wait_for(
            lambda: not peer.is_running or "last" in marks.read(run.marks),
            120,
            "the program has finished",
        )
        assert peer.is_running, peer.errors
        peer.signal(signal.SIGTERM)
        assert peer.wait_ended(60) == 128 + signal.SIGTERM
    assert latest(run.bootstrap_servers, run.output_topic) == expected
    assert marks.read(run.marks).keys() >= {"running", "first", "last"}

"""The parts of `make bench` still work; how fast anything is decides nothing here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from millstream.testing import EmbeddedKafka

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench.py"
TIMEOUT_S = 300


@pytest.mark.parametrize(
    ("arguments", "end"),
    [
        (["stores"], "commit, a change"),
        (["restore"], "millstream"),
        pytest.param(["throughput", "--jobs", "window"], "millstream", marks=pytest.mark.slow),
        pytest.param(["failover"], "millstream", marks=pytest.mark.slow),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_part_runs_and_finds_its_results_right(
    kafka: EmbeddedKafka, arguments: list[str], end: str
) -> None:
    """Goal: a benchmark that nobody has run for a while is not broken.

    Method: each part with few records and without Kafka Streams. It checks its own outputs, and
    its last line with numbers is the median of the program or operation that comes last.
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

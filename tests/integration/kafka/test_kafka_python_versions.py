"""The group member on the lowest kafka-python that is supported; all other tests take the locked.

Its inner parts are used, of which a release may change anything. The lowest one is installed into a
folder that other processes look into first.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from millstream.kafka.kafka_python_parts import OLDEST
from millstream.testing import EmbeddedKafka

TESTS = Path(__file__).parents[2]
LOWEST = ".".join(map(str, OLDEST))
#: What pip says where it can reach no index.
NO_NETWORK = re.compile(r"NewConnectionError|NameResolutionError|ConnectTimeout|ProxyError")


@pytest.fixture(scope="module")
def lowest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lowest kafka-python and nothing else."""
    folder = tmp_path_factory.mktemp("lowest")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--retries", "1"]
    done = subprocess.run(
        [*command, "--target", str(folder), f"kafka-python=={LOWEST}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if NO_NETWORK.search(done.stderr):
        pytest.skip(f"kafka-python {LOWEST} cannot be fetched: there is no network")
    assert done.returncode == 0, done.stderr
    return folder


def run(lowest: Path, arguments: Sequence[str], timeout_s: float) -> str:
    """What Python prints with that folder first on its path."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (lowest, TESTS)))},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_lowest_version_joins_commits_and_leaves(lowest: Path, kafka: EmbeddedKafka) -> None:
    """Goal: the lower bound in pyproject.toml is one with which a group works."""
    kafka.create_topic("lowest-kafka-python", partitions=4)
    said = run(
        lowest, ["support.broker.member_round", kafka.bootstrap_servers, "lowest-kafka-python"], 120
    )
    told = json.loads(said.splitlines()[-1])
    assert told["version"] == LOWEST
    assert Path(told["file"]).is_relative_to(lowest)


@pytest.mark.slow
def test_the_lowest_version_does_all_that_the_locked_one_does(lowest: Path) -> None:
    """Goal: outages, stalls and changes of topics go as with the locked version. `make lowest`"""
    files = [
        "tests/integration/kafka/test_member.py",
        "tests/integration/kafka/test_member_failures.py",
    ]
    said = run(lowest, ["pytest", "-q", "-p", "no:cacheprovider", *files], 900)
    assert "passed" in said or "100%" in said

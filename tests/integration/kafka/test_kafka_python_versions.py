"""The group member on the lowest kafka-python that is supported; all other tests take the locked.

Its inner parts are used, of which a release may change anything.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.machine.other_versions import installed, run

from millstream.kafka.kafka_python_parts import OLDEST
from millstream.testing import EmbeddedKafka

LOWEST = ".".join(map(str, OLDEST))


@pytest.fixture(scope="module")
def lowest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lowest kafka-python and nothing else."""
    return installed(f"kafka-python=={LOWEST}", tmp_path_factory.mktemp("lowest"))


def test_the_lowest_version_joins_commits_and_leaves(lowest: Path, kafka: EmbeddedKafka) -> None:
    """Goal: the lower bound in pyproject.toml is one with which a group works."""
    kafka.create_topic("lowest-kafka-python", partitions=4)
    program = ["-m", "support.broker.member_round"]
    said = run(lowest, [*program, kafka.bootstrap_servers, "lowest-kafka-python"], 120)
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
    said = run(lowest, ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files], 900)
    assert "passed" in said or "100%" in said

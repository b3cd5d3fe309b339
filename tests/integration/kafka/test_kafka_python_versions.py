"""The group member on the lowest supported kafka-python; other tests use the locked version.

The member uses private parts of kafka-python, which any release may change.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.machine.other_versions import installed, run

from millstream.kafka.kafka_python_compat import OLDEST
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.extended

LOWEST = ".".join(map(str, OLDEST))


@pytest.fixture(scope="module")
def lowest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lowest kafka-python and nothing else."""
    return installed(f"kafka-python=={LOWEST}", tmp_path_factory.mktemp("lowest"))


def test_the_lowest_version_joins_commits_and_leaves(lowest: Path, kafka: EmbeddedKafka) -> None:
    """Goal: a group works with the lower bound of pyproject.toml."""
    kafka.create_topic("lowest-kafka-python", partitions=4)
    program = ["-m", "support.broker.member_round"]
    output = run(lowest, [*program, kafka.bootstrap_servers, "lowest-kafka-python"], 120)
    report = json.loads(output.splitlines()[-1])
    assert report["version"] == LOWEST
    assert Path(report["file"]).is_relative_to(lowest)


@pytest.mark.slow
def test_the_lowest_version_passes_the_member_tests(lowest: Path) -> None:
    """Goal: outages, stalls and topic changes as with the locked version. Run by `make lowest`."""
    files = [
        "tests/integration/kafka/test_member.py",
        "tests/integration/kafka/test_member_failures.py",
    ]
    output = run(lowest, ["-m", "pytest", "-q", "-p", "no:cacheprovider", *files], 900)
    assert "passed" in output or "100%" in output

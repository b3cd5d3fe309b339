"""The oldest Spark that is supported; all other tests take the locked one. `make lowest`

4.1.1 stands for 4.1: the Kafka connector of 4.1.0 could not be had where this was tried.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.machine.other_versions import installed, run

pytestmark = pytest.mark.slow

OLDEST = "4.1.1"
#: Threads on Spark, hosts, what is shipped, DataFrame functions, stores and tables as DataFrames.
FILES = [
    "tests/integration/spark/test_spark_engine.py",
    "tests/integration/spark/test_free_slots.py",
    "tests/integration/spark/test_shipping.py",
    "tests/integration/spark/test_hosts.py",
    "tests/integration/structured/test_dataframe_stages.py",
    "tests/integration/structured/test_plans.py",
    "tests/integration/lake",
]
#: Kills at every step of a batch take as long as all others, and are not about the version.
LEFT_OUT = "--deselect=tests/integration/lake/test_lake_kills.py"


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the oldest Spark and nothing else."""
    return installed(f"pyspark=={OLDEST}", tmp_path_factory.mktemp("oldest"), timeout_s=900)


def test_the_oldest_spark_does_what_the_locked_one_does(oldest: Path) -> None:
    """Goal: the lower bound in pyproject.toml is one with which all works that is not said to need
    Spark 4.2, as real-time mode is."""
    said = run(oldest, ["-c", "import pyspark; print(pyspark.__version__)"], 60)
    assert said.strip() == OLDEST
    said = run(oldest, ["-m", "pytest", "-q", "-p", "no:cacheprovider", LEFT_OUT, *FILES], 3_000)
    assert "passed" in said or "100%" in said

"""The oldest supported Spark; all other tests use the locked version. Run by `make lowest`.

4.1.1 represents 4.1: the Kafka connector of 4.1.0 was not available for this test.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.machine.other_versions import installed, run

pytestmark = pytest.mark.slow

OLDEST = "4.1.1"
#: Threads on Spark, hosts, shipped code, DataFrame functions, stores and tables as DataFrames.
FILES = [
    "tests/integration/spark/test_spark_engine.py",
    "tests/integration/spark/test_free_slots.py",
    "tests/integration/spark/test_shipping.py",
    "tests/integration/spark/test_hosts.py",
    "tests/integration/dataframes/test_dataframe_stages.py",
    "tests/integration/dataframes/test_plans.py",
    "tests/integration/lake",
]
#: Kills at every step of a batch take as long as all other tests, and do not depend on the version.
DESELECT = "--deselect=tests/integration/lake/test_lake_kills.py"


@pytest.fixture(scope="module")
def oldest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the oldest Spark and nothing else."""
    return installed(f"pyspark=={OLDEST}", tmp_path_factory.mktemp("oldest"), timeout_s=900)


def test_the_oldest_spark_passes_the_tests(oldest: Path) -> None:
    """Goal: everything works with the lower bound of pyproject.toml, except for documented
    features that need Spark 4.2, such as real-time mode."""
    output = run(oldest, ["-c", "import pyspark; print(pyspark.__version__)"], 60)
    assert output.strip() == OLDEST
    output = run(oldest, ["-m", "pytest", "-q", "-p", "no:cacheprovider", DESELECT, *FILES], 3_000)
    assert "passed" in output or "100%" in output

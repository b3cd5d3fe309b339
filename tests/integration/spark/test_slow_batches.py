"""A group is stable although every batch takes longer than a second; `make soak` tests it for
longer.

test_member_failures tests the member alone in half the time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.running.slow_batches import run_slow_batches

from millstream.testing import EmbeddedKafka


@pytest.mark.slow
def test_no_unnecessary_rebalance(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    changes, processed = run_slow_batches(kafka, spark, tmp_path, seconds=10)
    assert changes == []
    assert processed > 0

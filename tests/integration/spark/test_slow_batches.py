"""Members settle although every batch takes longer than a second; `make soak` watches for long.

Of the member alone, test_member_failures tells the same in half the time.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.running.slow_batches import run_slow_batches

from millstream.testing import EmbeddedKafka


@pytest.mark.slow
def test_no_rebalance_without_a_cause(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    changes, processed = run_slow_batches(kafka, spark, tmp_path, seconds=10)
    assert changes == []
    assert processed > 0

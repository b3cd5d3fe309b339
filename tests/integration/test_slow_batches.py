"""Members settle although every batch takes longer than a second; `make soak` watches for long."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from support.slow_batches import run_slow_batches

from millstream.testing import EmbeddedKafka


def test_no_rebalance_without_a_cause(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    changes, processed = run_slow_batches(kafka, spark, tmp_path, seconds=10)
    assert changes == []
    assert processed > 0

"""Tests that take minutes: `make soak`, for MILLSTREAM_SOAK_SECONDS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.running.slow_batches import run_slow_batches

from millstream.testing import EmbeddedKafka

_SECONDS = float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))


@pytest.mark.slow
def test_a_stable_group_does_not_rebalance(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Two threads with batches of over a second and constant load keep their assignment."""
    changes, processed = run_slow_batches(kafka, spark, tmp_path, seconds=_SECONDS)
    assert changes == []
    assert processed > _SECONDS / 2

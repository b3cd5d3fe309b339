"""What tests with real parts share: one broker (from the plugin) and one Spark session a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A plain `local[8]` session: no retries by Spark, workers used again for other tasks.

    Stopped after each module, because a process has one session and some modules need others.
    """
    session = (
        SparkSession.builder.master("local[8]")
        .appName("millstream-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()

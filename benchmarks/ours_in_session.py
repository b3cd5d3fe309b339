"""Runs a workload on Millstream in an existing Spark session."""

from __future__ import annotations

import ours
from pyspark.sql import SparkSession


def main() -> None:
    builder = SparkSession.builder.master("local[4]").appName("bench-in-session")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    # Existing sessions have usually been used before.
    session.range(1_000).count()
    # Uses the existing session.
    ours.main()
    session.stop()


if __name__ == "__main__":
    main()

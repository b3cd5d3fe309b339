"""A workload on Millstream, in a Spark session of the program's own that is up before."""

from __future__ import annotations

import ours
from pyspark.sql import SparkSession


def main() -> None:
    builder = SparkSession.builder.master("local[4]").appName("bench-in-session")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    # Whoever has a session has used it.
    session.range(1_000).count()
    # Takes the session that is there.
    ours.main()
    session.stop()


if __name__ == "__main__":
    main()

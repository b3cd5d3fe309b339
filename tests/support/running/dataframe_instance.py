"""An instance of an application with a DataFrame function, with its own driver and Spark.

python dataframe_instance.py <bootstrap> <name> <state folder> <checkpoint folder> <kind>

The kind is `exactly-once`, by batches, or `real-time`, at least once.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame

from millstream import (
    KafkaStreams,
    StreamsBuilder,
    StreamsConfig,
    Topology,
    Trigger,
)
from millstream.serdes import LONG, STRING
from support.running.instance_script import SHORT_SESSIONS, run_instance


def lengths(rows: DataFrame) -> DataFrame:
    """The length of each value."""
    return rows.selectExpr("key", "CAST(length(value) AS BIGINT) AS value", "timestamp")


def topology(name: str, trigger: Trigger) -> Topology:
    """Sums up the lengths of words by key."""
    builder = StreamsBuilder()
    results = builder.stream(f"{name}-in", key=STRING, value=STRING).transform_dataframe(
        lengths, value=LONG, name="lengths", trigger=trigger
    )
    results.to(f"{name}-lengths", key=STRING, value=LONG)
    sums = results.group_by_key().reduce(lambda one, other: one + other, store="sums")
    sums.to_stream().to(f"{name}-sums", key=STRING, value=LONG)
    return builder.build()


def main() -> None:
    bootstrap, name, state, checkpoints, kind = sys.argv[1:]
    in_real_time = kind == "real-time"
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        state_dir=state,
        dataframe_checkpoint_dir=checkpoints,
        processing_guarantee="at_least_once" if in_real_time else "exactly_once_v2",
        num_stream_threads=1,
        commit_interval_ms=200,
        consumer=SHORT_SESSIONS,
    )
    trigger = Trigger.real_time() if in_real_time else Trigger.processing_time()
    streams = KafkaStreams(topology(name, trigger), config)
    run_instance(streams)


if __name__ == "__main__":
    main()

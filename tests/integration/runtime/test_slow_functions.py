"""Slow user functions on a real broker: every guarantee makes progress and commits."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import committed_lag, fill, unique
from support.running.thread_run import run_to_end
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2, KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

#: Less than the total time of 128 records, and much more than the time of one.
LIMIT_MS = 2_000
LIMITS: dict[str, dict[str, Any]] = {
    "at_least_once": {
        "consumer": {
            "max.poll.interval.ms": LIMIT_MS,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
        }
    },
    EXACTLY_ONCE_V2: {"producer": {"transaction.timeout.ms": LIMIT_MS}},
}


@pytest.mark.parametrize("guarantee", LIMITS)
def test_slow_functions_are_called_once_and_committed(
    kafka: EmbeddedKafka, tmp_path: Path, guarantee: str
) -> None:
    """Downstream of a store and upstream of a repartition topic, from the first batch on."""
    name, calls = unique("slow"), []

    def slow(value: str) -> str:
        calls.append(value)
        time.sleep(0.08)
        return value

    kafka.create_topic(f"{name}-in")
    builder = StreamsBuilder()
    seen = builder.table(f"{name}-in", key=STRING, value=STRING, store="seen").to_stream()
    moved = seen.map_values(slow).select_key(lambda key, value: value)
    moved.group_by_key(key=STRING, value=STRING).count(store="counts")
    values = [f"v{number}" for number in range(40)]
    fill(kafka.bootstrap_servers, f"{name}-in", [(v.encode(), v.encode()) for v in values])
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=kafka.bootstrap_servers,
        state_dir=str(tmp_path),
        processing_guarantee=guarantee,
        statestore_cache_max_bytes=0,
        commit_interval_ms=100,
        **LIMITS[guarantee],
    )
    outcome = run_to_end(builder.build(), config, [f"{name}-in"]).outcome
    assert outcome.error is None
    assert sorted(calls) == sorted(values)


@pytest.mark.slow
def test_a_function_that_becomes_slow_is_aborted_and_commits_continue(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Under exactly-once: a large batch is aborted within half of the transaction timeout."""
    name = unique("sudden")
    kafka.create_topic(f"{name}-in")
    kafka.create_topic(f"{name}-out")
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=kafka.bootstrap_servers,
        state_dir=str(tmp_path),
        processing_guarantee=EXACTLY_ONCE_V2,
    )
    records = [(b"k", b"quick")] * 20_000 + [(b"k", b"slow")] * 40
    fill(kafka.bootstrap_servers, f"{name}-in", records)
    with KafkaStreams(_suddenly_slow(name), config, spark) as streams:
        streams.wait_for_state("RUNNING", timedelta(seconds=60))
        wait_for(
            lambda: committed_lag(kafka.bootstrap_servers, name, f"{name}-in") == 0,
            90,
            "everything is processed",
        )
        assert streams.metadata_for_local_threads()[0].uncommitted_ms is None


def _suddenly_slow(name: str) -> Topology:
    def function(value: str) -> str:
        if value == "slow":
            time.sleep(0.5)
        return value

    builder = StreamsBuilder()
    builder.stream(f"{name}-in", key=STRING, value=STRING).map_values(function).to(
        f"{name}-out", key=STRING, value=STRING
    )
    return builder.build()

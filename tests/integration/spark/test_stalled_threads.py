"""A thread that hangs in user code is detected, with the position of the hang."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import fill, group_members, unique
from support.waiting import wait_for

from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.extended


def test_the_driver_names_task_node_and_record_of_a_hung_thread(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves the group in the meantime, and rejoins when it continues."""
    name, hangs = unique("hangs"), tmp_path / "hangs"
    hangs.touch()

    def hang(value: str) -> str:
        while value == "slow" and hangs.exists():
            time.sleep(0.05)
        return value

    kafka.create_topic(f"{name}-in")
    kafka.create_topic(f"{name}-out")
    builder = StreamsBuilder()
    builder.stream(f"{name}-in", key=STRING, value=STRING).map_values(hang, name="hanging").to(
        f"{name}-out", key=STRING, value=STRING
    )
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=kafka.bootstrap_servers,
        state_dir=str(tmp_path),
        consumer={
            "max.poll.interval.ms": 1_500,
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
        },
    )
    fill(kafka.bootstrap_servers, f"{name}-in", [(b"k", b"quick"), (b"k", b"slow")])
    with (
        caplog.at_level(logging.WARNING, logger="millstream"),
        KafkaStreams(builder.build(), config, spark) as streams,
    ):
        stall = wait_for(
            lambda: streams.metadata_for_local_threads()[0].stall, 60, "the stall is reported"
        )
        assert stall.silent_ms >= 1_500
        assert stall.place == f"task 0_0, node hanging, {name}-in-0 offset 1"
        assert any("in hang: time.sleep(0.05)" in line for line in stall.stack)
        assert streams.metrics().total("stalled-ms") == stall.silent_ms
        assert f"it hangs in {stall.place}" in caplog.text
        wait_for(
            lambda: group_members(kafka.bootstrap_servers, name) == 0,
            30,
            "the thread has left the group",
        )
        hangs.unlink()
        wait_for(
            lambda: streams.metadata_for_local_threads()[0].stall is None,
            30,
            "the end of the stall is reported",
        )
        streams.wait_for_state("RUNNING", timedelta(seconds=30))
        assert "makes progress again" in caplog.text
        assert streams.metrics().total("stalled-ms") == 0

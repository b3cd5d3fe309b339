"""Threads that come and go with the load: `num_stream_threads=(least, most)`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker.restored import Restored
from support.meanwhile import meanwhile
from support.running.word_count import RUNNING, WordCount
from support.waiting import stays, wait_for

from millstream import KafkaStreams
from millstream.testing import EmbeddedKafka

#: A thread cannot do more than 250 lines a second, whatever the machine is.
A_LINE_S = 0.004
LINES_PER_S = 250
QUICK = {
    "elastic_lag_target_ms": 1_000,
    "elastic_cooldown_ms": 3_000,
    "metrics_sample_window_ms": 1_000,
}


def slowly(line: str) -> list[str]:
    time.sleep(A_LINE_S)
    return line.split()


def running(streams: KafkaStreams) -> int:
    """How many threads run, with tasks; 0 while others begin or end."""
    threads = streams.metadata_for_local_threads()
    at_work = [each for each in threads if each.active_tasks and each.thread_state == "RUNNING"]
    return len(at_work) if len(at_work) == len(threads) else 0


def told(streams: KafkaStreams, name: str) -> float:
    return streams.metrics().total(name, "millstream-elastic-metrics")


def follow(streams: KafkaStreams, wanted: Callable[[int], bool], what: str) -> None:
    """Wait until that many threads run."""
    wait_for(
        lambda: wanted(running(streams)),
        120,
        lambda: f"{what}: {running(streams)}, {streams.metrics().named('last-decision')!r}",
    )


def test_a_thread_comes_for_a_backlog_and_goes_when_it_is_worked_off(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Every word is counted once, and no task that moves waits for its state: it is on the disk of
    its host, up to what is written."""
    application = WordCount(
        kafka, tmp_path, partitions=2, split=slowly, num_stream_threads=(1, 2), **QUICK
    )
    restored = Restored()
    application.write_lines(6 * LINES_PER_S)
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)
    with streams:
        follow(streams, lambda number: number == 2, "a thread has come")
        follow(streams, lambda number: number == 1, "it has gone again")
        assert application.is_exact()
        assert told(streams, "threads-added-total") == told(streams, "threads-removed-total") == 1
        assert told(streams, "threads-withdrawn-total") == 0
    assert restored.total == 0


@pytest.mark.slow
def test_threads_follow_a_load_that_triples_and_falls_again(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Within the bounds, without a thread that goes while the load is high, and without a record
    that waits for cold state."""
    application = WordCount(
        kafka, tmp_path, partitions=8, split=slowly, num_stream_threads=(1, 4), **QUICK
    )
    restored, most = Restored(), 0
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)

    def is_exact() -> bool:
        nonlocal most
        most = max(most, len(streams.metadata_for_local_threads()))
        return application.is_exact()

    with streams:
        streams.wait_for_state("RUNNING", RUNNING)
        with meanwhile(lambda: application.write_lines(12), 0.1):
            wait_for(lambda: told(streams, "threads-wanted") == 1, 60, "one is enough")
            assert not stays(lambda: running(streams) > 1, 10), "nor does another one come"
        with meanwhile(lambda: application.write_lines(36), 0.1):
            follow(streams, lambda number: number >= 2, "threads have come")
            wait_for(
                lambda: streams.metrics().total("records-lag") < LINES_PER_S, 120, "no backlog"
            )
            removed = told(streams, "threads-removed-total")
            assert stays(lambda: told(streams, "threads-removed-total") == removed == 0, 15)
        with meanwhile(lambda: application.write_lines(12), 0.1):
            follow(streams, lambda number: number == 1, "they have gone")
        wait_for(is_exact, 120, "every word is counted")
        assert told(streams, "threads-most") == 4
    assert restored.total == 0

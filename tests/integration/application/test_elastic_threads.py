"""Threads that come and go with the load: `num_stream_threads=(least, most)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker.restored import Restored
from support.meanwhile import meanwhile
from support.running.word_count import RUNNING, WordCount
from support.waiting import stays, wait_for

from millstream import KafkaStreams
from millstream.testing import EmbeddedKafka

#: A thread cannot do more than 100 lines a second, whatever the machine is.
A_LINE_S = 0.01
LINES_PER_S = 100
#: What one thread can do with room to spare: it commits, too.
A_LITTLE = 40
QUICK = {
    "elastic_lag_target_ms": 1_000,
    "elastic_cooldown_ms": 1_000,
    "metrics_sample_window_ms": 1_000,
}


def slowly(line: str) -> list[str]:
    time.sleep(A_LINE_S)
    return line.split()


@contextmanager
def load(application: WordCount, lines_per_s: int) -> Iterator[None]:
    """So many lines a second are written, however long it takes to write some."""
    began, written = time.monotonic(), 0

    def write() -> None:
        nonlocal written
        due = int((time.monotonic() - began) * lines_per_s) - written
        application.write_lines(due)
        written += due

    with meanwhile(write, 0.2):
        yield


def running(streams: KafkaStreams) -> int:
    """How many threads run, with tasks; 0 while others begin or end."""
    threads = streams.metadata_for_local_threads()
    at_work = [each for each in threads if each.active_tasks and each.thread_state == "RUNNING"]
    return len(at_work) if len(at_work) == len(threads) else 0


def told(streams: KafkaStreams, name: str) -> float:
    return streams.metrics().total(name, "millstream-elastic-metrics")


def lag(streams: KafkaStreams) -> float:
    return streams.metrics().total("records-lag")


def follow(streams: KafkaStreams, wanted: Callable[[int], bool], what: str) -> None:
    """Wait until that many threads run."""
    wait_for(
        lambda: wanted(running(streams)),
        120,
        lambda: f"{what}: {running(streams)}, {streams.metrics().named('last-decision')[0].value}",
    )


def test_a_thread_comes_for_a_load_and_goes_when_it_is_over(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Every word is counted once, and no task that moves waits for its state: it is on the disk of
    its host, up to what is written."""
    application = WordCount(
        kafka, tmp_path, partitions=2, split=slowly, num_stream_threads=(1, 2), **QUICK
    )
    restored = Restored()
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)
    with streams:
        streams.wait_for_state("RUNNING", RUNNING)
        with load(application, 2 * LINES_PER_S):
            follow(streams, lambda number: number == 2, "a thread has come")
        wait_for(application.is_exact, 120, "every word is counted")
        follow(streams, lambda number: number == 1, "it has gone again")
        assert told(streams, "threads-added-total") == told(streams, "threads-removed-total") > 0
        assert told(streams, "threads-withdrawn-total") == 0
    assert restored.total == 0


@pytest.mark.slow
def test_threads_follow_a_load_that_triples_and_falls_again(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Within the bounds, never with fewer threads than the load takes, without threads that come
    and go under one load, and without a record that waits for cold state."""
    application = WordCount(
        kafka,
        tmp_path,
        partitions=8,
        split=slowly,
        num_stream_threads=(1, 4),
        # A thread that commits sixteen tasks five times a second has half of its time for lines.
        commit_interval_ms=1_000,
        **{**QUICK, "elastic_lag_target_ms": 4_000},
    )
    restored, seen = Restored(), [0]
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)
    with (
        streams,
        meanwhile(lambda: seen.append(len(streams.metadata_for_local_threads())), 0.2),
    ):
        streams.wait_for_state("RUNNING", RUNNING)
        with load(application, A_LITTLE):
            assert stays(lambda: running(streams) <= 1, 10), "one is enough"
        with load(application, 3 * A_LITTLE):
            follow(streams, lambda number: number >= 2, "threads have come")
            wait_for(lambda: lag(streams) < LINES_PER_S, 120, "the backlog is worked off")
            added = told(streams, "threads-added-total")
            # More may have come for the backlog than the load takes, and go.
            assert stays(lambda: len(streams.metadata_for_local_threads()) >= 2, 20), "it takes two"
            assert told(streams, "threads-added-total") == added, "those that stay are enough"
        with load(application, A_LITTLE):
            follow(streams, lambda number: number == 1, "they have gone")
        wait_for(application.is_exact, 120, "every word is counted")
    assert max(seen) <= 4
    assert restored.total == 0

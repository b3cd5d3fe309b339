"""Threads that are added and removed with the load: `num_stream_threads=(min, max)`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.background import background
from support.broker.restore_counts import RestoreCounts
from support.running.word_count import RUNNING, WordCount
from support.waiting import stays, wait_for

from millstream import KafkaStreams
from millstream.testing import EmbeddedKafka

#: A thread can process at most 100 lines per second, on any machine.
LINE_S = 0.01
LINES_PER_S = 100
#: A load that one thread can easily carry, including commits.
LOW_LINES_PER_S = 40
QUICK = {
    "elastic_lag_target_ms": 1_000,
    "elastic_cooldown_ms": 1_000,
    "metrics_sample_window_ms": 1_000,
}


def split_slowly(line: str) -> list[str]:
    time.sleep(LINE_S)
    return line.split()


@contextmanager
def load(application: WordCount, lines_per_s: int) -> Iterator[None]:
    """Write this many lines per second, even if some writes are slow."""
    began, written = time.monotonic(), 0

    def write() -> None:
        nonlocal written
        due = int((time.monotonic() - began) * lines_per_s) - written
        application.write_lines(due)
        written += due

    with background(write, 0.2):
        yield


def running(streams: KafkaStreams) -> int:
    """The number of running threads with tasks; 0 while other threads start or end."""
    threads = streams.metadata_for_local_threads()
    with_tasks = [each for each in threads if each.active_tasks and each.thread_state == "RUNNING"]
    return len(with_tasks) if len(with_tasks) == len(threads) else 0


def scaling_metric(streams: KafkaStreams, name: str) -> float:
    return streams.metrics().total(name, "millstream-elastic-metrics")


def lag(streams: KafkaStreams) -> float:
    return streams.metrics().total("records-lag")


def follow(streams: KafkaStreams, is_expected: Callable[[int], bool], state: str) -> None:
    """Wait until the number of threads satisfies the condition."""
    wait_for(
        lambda: is_expected(running(streams)),
        120,
        lambda: f"{state}: {running(streams)}, {streams.metrics().named('last-decision')[0].value}",
    )


@pytest.mark.extended
def test_a_thread_is_added_for_a_load_and_removed_afterwards(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Every word is counted once, and no moved task restores state: it is up to date on the disk
    of its host."""
    application = WordCount(
        kafka, tmp_path, partitions=2, split=split_slowly, num_stream_threads=(1, 2), **QUICK
    )
    restored = RestoreCounts()
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)
    with streams:
        streams.wait_for_state("RUNNING", RUNNING)
        with load(application, 2 * LINES_PER_S):
            follow(streams, lambda number: number == 2, "a thread is added")
        wait_for(application.is_exact, 120, "every word is counted")
        follow(streams, lambda number: number == 1, "the thread is removed")
        assert (
            scaling_metric(streams, "threads-added-total")
            == scaling_metric(streams, "threads-removed-total")
            > 0
        )
        assert scaling_metric(streams, "threads-withdrawn-total") == 0
    assert restored.total == 0


@pytest.mark.slow
def test_threads_follow_a_load_that_triples_and_falls(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Within the limits, never with too few threads for the load, without oscillation under a
    constant load, and without records that wait for a restoration."""
    application = WordCount(
        kafka,
        tmp_path,
        partitions=8,
        split=split_slowly,
        num_stream_threads=(1, 4),
        # A thread that commits sixteen tasks five times per second has only half of its time for
        # lines.
        commit_interval_ms=1_000,
        **{**QUICK, "elastic_lag_target_ms": 4_000},
    )
    restored, seen = RestoreCounts(), [0]
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)
    with (
        streams,
        background(lambda: seen.append(len(streams.metadata_for_local_threads())), 0.2),
    ):
        streams.wait_for_state("RUNNING", RUNNING)
        with load(application, LOW_LINES_PER_S):
            assert stays(lambda: running(streams) <= 1, 10), "one thread is enough"
        with load(application, 3 * LOW_LINES_PER_S):
            follow(streams, lambda number: number >= 2, "threads are added")
            wait_for(lambda: lag(streams) < LINES_PER_S, 120, "the backlog is processed")
            added = scaling_metric(streams, "threads-added-total")
            # More threads may be added for the backlog than for the load, and removed again.
            assert stays(lambda: len(streams.metadata_for_local_threads()) >= 2, 20), (
                "two threads are necessary"
            )
            assert scaling_metric(streams, "threads-added-total") == added, (
                "the remaining threads are enough"
            )
        with load(application, LOW_LINES_PER_S):
            follow(streams, lambda number: number == 1, "the threads are removed")
        wait_for(application.is_exact, 120, "every word is counted")
    assert max(seen) <= 4
    assert restored.total == 0

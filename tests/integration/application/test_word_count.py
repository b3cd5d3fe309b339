"""Word count on Spark and a real broker, from lines to exact counts, stopped, restarted, killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.restore_counts import RestoreCounts
from support.broker.topics import committed_lag, read_all
from support.running.applications import values
from support.running.instances import end_of
from support.running.topologies.identified import Identified
from support.running.word_count import RUNNING, WordCount
from support.waiting import wait_for

from millstream import KafkaStreams
from millstream.testing import EmbeddedKafka


@contextmanager
def running(app: WordCount, spark: SparkSession, **settings: Any) -> Iterator[Any]:
    """Run the application until the end of the block; it must close in time."""
    streams = app.streams(spark, **settings)
    restored = RestoreCounts()
    streams.set_global_state_restore_listener(restored)
    streams.start()
    try:
        streams.wait_for_state("RUNNING", RUNNING)
        yield streams, restored
    finally:
        assert streams.close(timedelta(seconds=30))


def wait_exact(app: WordCount, timeout_s: float = 60) -> None:
    wait_for(app.is_exact, timeout_s, "every count is exact")


@pytest.mark.parametrize("kind", ["rocksdb", pytest.param("in_memory", marks=pytest.mark.slow)])
def test_counts_are_exact_and_survive_a_restart(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    app = WordCount(kafka, tmp_path, kind=kind)
    app.write_lines(5_000)
    with running(app, spark) as (streams, _):
        wait_exact(app)
        owned = {
            task.task_id
            for thread in streams.metadata_for_local_threads()
            for task in thread.active_tasks
        }
        assert owned == {f"{part}_{number}" for part in (0, 1) for number in range(4)}
    app.write_lines(3_000)
    with running(app, spark) as (_, restored):
        wait_exact(app)
        if kind == "rocksdb":
            # Everything was committed with its changelog offset: nothing is missing.
            assert restored.total == 0
        else:
            assert restored.total > 0


@pytest.mark.extended
def test_an_application_without_retries_runs_and_commits(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Detects `task.timeout.ms=0` as the timeout of a request, which would fail every request."""
    app = WordCount(kafka, tmp_path, task_timeout_ms=0)
    app.write_lines(500)
    with running(app, spark) as (streams, _):
        wait_exact(app)
        wait_for(lambda: lag(app) == 0, 30, "everything is committed")
        assert streams.error is None


@pytest.mark.slow
def test_a_lost_state_directory_is_restored_from_the_changelog(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    app = WordCount(kafka, tmp_path / "first")
    app.write_lines(4_000)
    with running(app, spark):
        wait_exact(app)
    logged = len(read_all(app.bootstrap, app.changelog_topic))
    app.write_lines(1_000)
    with running(app, spark, state_dir=str(tmp_path / "second")) as (_, restored):
        wait_exact(app)
        assert restored.total == logged


@pytest.mark.extended
def test_only_the_missing_tail_is_restored(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """A second state directory lacks the records that were logged while the first one was in
    use."""
    app = WordCount(kafka, tmp_path / "first")
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    app.write_lines(2_000)
    with running(app, spark, state_dir=first):
        wait_exact(app)
    before = len(read_all(app.bootstrap, app.changelog_topic))
    app.write_lines(2_000)
    with running(app, spark, state_dir=second) as (_, restored):
        wait_exact(app)
        assert restored.total == before
    after = len(read_all(app.bootstrap, app.changelog_topic))
    assert after > before
    app.write_lines(500)
    with running(app, spark, state_dir=first) as (_, restored):
        wait_exact(app)
        assert restored.total == after - before


@pytest.mark.extended
def test_damaged_state_is_rebuilt(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Files that RocksDB cannot read cause a restoration of that task, and lose no count."""
    app = WordCount(kafka, tmp_path)
    app.write_lines(2_000)
    with running(app, spark):
        wait_exact(app)
    damaged = tmp_path / app.application_id / "1_2" / "rocksdb" / app.store
    for path in damaged.glob("MANIFEST-*"):
        path.write_bytes(path.read_bytes()[:7])
    logged = end_of(app.bootstrap, app.changelog_topic, 2)
    app.write_lines(500)
    with running(app, spark) as (streams, restored):
        wait_exact(app)
        assert restored.total == logged
        wait_for(
            lambda: streams.metrics().total("state-rebuilt-total") == 1,
            10,
            "the metric counts it",
        )


def forks_once(children: Path) -> Callable[[str], str]:
    """Create a function that returns its argument, and forks a long-lived child in each process.

    Its files in the folder contain the ids of the children.
    """

    def fork(value: str) -> str:
        note = children / str(os.getpid())
        if not note.exists():
            note.touch()
            child = os.fork()
            if child == 0:
                time.sleep(600)
                os._exit(0)
            note.write_text(str(child))
        return value

    children.mkdir()
    return fork


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Path]:
    """A folder with the ids of processes that are killed at the end."""
    yield tmp_path / "children"
    for note in (tmp_path / "children").iterdir():
        with suppress(ProcessLookupError):
            os.kill(int(note.read_text()), signal.SIGKILL)


@pytest.mark.extended
def test_a_killed_worker_is_replaced_and_no_record_is_lost(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, children: Path
) -> None:
    """SIGKILL in a session that never retries: the driver submits the thread again.

    Children that the worker's user code has forked survive: they keep neither its locks, so that
    others can take over its tasks, nor its connections, so that its end is detected.
    """
    app = Identified(kafka, tmp_path, mapper=forks_once(children))
    app.write(3_000)

    def both_have_a_child() -> bool:
        app.write(100)
        return len(list(children.iterdir())) == 2

    streams = app.streams(spark)
    with streams:
        streams.wait_for_state("RUNNING", RUNNING)
        wait_for(app.has_output, 30, "there is some output")
        wait_for(both_have_a_child, 60, "each worker has a child")
        victim = pids(streams)[0]
        with app.fault():
            app.write(3_000)
            os.kill(victim, signal.SIGKILL)
            wait_for(lambda: streams.state.name == "REBALANCING", 30, "the loss is detected")
            streams.wait_for_state("RUNNING", timedelta(seconds=90))
        app.write(1_000)
        app.check(90)
        assert victim not in pids(streams)
        assert len(pids(streams)) == 2


@pytest.mark.extended
def test_repartition_topics_are_purged(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Committed records of a repartition topic are deleted; internal topics have their configs."""
    app = WordCount(kafka, tmp_path)
    app.write_lines(1_000)
    with running(app, spark, repartition_purge_interval_ms=200):
        wait_exact(app)
        wait_for(lambda: not read_all(app.bootstrap, app.repartition_topic), 30, "purged")


@pytest.mark.slow
def test_pause_and_resume(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    app = WordCount(kafka, tmp_path)
    with running(app, spark) as (streams, _):
        app.write_lines(100)
        wait_exact(app)
        streams.pause()
        assert streams.is_paused
        wait_for(lambda: 0 not in values(streams, "paused"), 10, "paused")
        before = app.found()
        app.write_lines(100)
        assert lag(app) == 100
        assert app.found() == before
        streams.resume()
        wait_exact(app)


def lag(app: WordCount) -> int:
    """The number of uncommitted lines."""
    return committed_lag(app.bootstrap, app.application_id, app.lines)


def pids(streams: KafkaStreams) -> list[int]:
    """The processes of the stream threads."""
    return [thread.pid for thread in streams.metadata_for_local_threads() if thread.pid]

"""Exactly once, on Spark and a real broker: whoever is killed, paused or stopped, whatever was
written is told once to those who read committed records, and the stores know nothing else."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.restored import Restored
from support.running.topologies.identified import Identified
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2, KafkaStreams
from millstream.testing import EmbeddedKafka

RUNNING = timedelta(seconds=90)
#: Two sub-topologies with four partitions each.
TASKS = 8


@pytest.fixture(params=["rocksdb", pytest.param("in_memory", marks=pytest.mark.slow)])
def application(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Identified:
    """It commits so rarely that there is much to lose."""
    return Identified(
        kafka,
        tmp_path,
        kind=request.param,
        processing_guarantee=EXACTLY_ONCE_V2,
        commit_interval_ms=500,
    )


@contextmanager
def running(
    application: Identified, spark: SparkSession, **settings: Any
) -> Iterator[KafkaStreams]:
    """The application, RUNNING, with input that goes on all the while."""
    with application.streams(spark, **settings) as streams, application.arriving():
        streams.wait_for_state("RUNNING", RUNNING)
        wait_for(application.has_told, 60, "first ids")
        yield streams


def pids(streams: KafkaStreams) -> list[int]:
    """The processes of the stream threads."""
    return [thread.pid for thread in streams.metadata_for_local_threads() if thread.pid]


def is_replaced(streams: KafkaStreams, victim: int) -> bool:
    """Whether another process has taken the place of this one."""
    return victim not in pids(streams) and len(pids(streams)) == 2


def has_all_tasks(streams: KafkaStreams, but: int) -> bool:
    """Whether all tasks are active in the other process."""
    (other,) = [each for each in streams.metadata_for_local_threads() if each.pid != but]
    return len(other.active_tasks) == TASKS


def goes_on(application: Identified) -> None:
    """Wait until what is written from now on is told."""
    before = application.committed
    wait_for(lambda: application.committed > before + 200, 90, "it goes on")


@pytest.mark.slow
def test_stopped_and_started_again(application: Identified, spark: SparkSession) -> None:
    with running(application, spark):
        goes_on(application)
    with running(application, spark):
        goes_on(application)
    with application.streams(spark):
        application.check(90)


def test_killed_workers_repeat_nothing(application: Identified, spark: SparkSession) -> None:
    """Nor is anything that they had on disk thrown away."""
    restored = Restored()
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)
    with streams, application.arriving():
        streams.wait_for_state("RUNNING", RUNNING)
        for turn in range(3):
            goes_on(application)
            victim = pids(streams)[turn % 2]
            os.kill(victim, signal.SIGKILL)
            wait_for(partial(is_replaced, streams, victim), 90, "another one is there")
    with application.streams(spark):
        application.check(90)


def test_a_zombie_writes_nothing(application: Identified, spark: SparkSession) -> None:
    """A worker that stands still for longer than its session, and then goes on with what it had in
    its hands, which others have done meanwhile."""
    with running(application, spark) as streams:
        zombie = pids(streams)[0]
        os.kill(zombie, signal.SIGSTOP)
        try:
            wait_for(lambda: has_all_tasks(streams, zombie), 60, "the group goes on")
            before = application.committed
            wait_for(lambda: application.committed > before + 500, 90, "others do its work")
        finally:
            os.kill(zombie, signal.SIGCONT)
        goes_on(application)
    with application.streams(spark):
        application.check(90)

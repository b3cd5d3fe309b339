"""Exactly-once on Spark and a real broker: if processes are killed, paused or stopped,
read-committed consumers get each record once, and the stores reflect nothing else."""

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
from support.broker.restore_counts import RestoreCounts
from support.running.topologies.identified import Identified
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2, KafkaStreams
from millstream.testing import EmbeddedKafka

RUNNING = timedelta(seconds=90)
#: Two sub-topologies with four partitions each.
TASKS = 8


@pytest.fixture(params=["rocksdb", pytest.param("in_memory", marks=pytest.mark.slow)])
def application(kafka: EmbeddedKafka, tmp_path: Path, request: pytest.FixtureRequest) -> Identified:
    """It commits so rarely that there is much uncommitted work."""
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
    """Run the application with continuous input."""
    with application.streams(spark, **settings) as streams, application.continuous_input():
        streams.wait_for_state("RUNNING", RUNNING)
        wait_for(application.has_output, 60, "there is some output")
        yield streams


def pids(streams: KafkaStreams) -> list[int]:
    """The processes of the stream threads."""
    return [thread.pid for thread in streams.metadata_for_local_threads() if thread.pid]


def is_replaced(streams: KafkaStreams, victim: int) -> bool:
    """Whether another process has replaced this one."""
    return victim not in pids(streams) and len(pids(streams)) == 2


def has_all_tasks(streams: KafkaStreams, except_pid: int) -> bool:
    """Whether all tasks are active in the other process."""
    (other,) = [each for each in streams.metadata_for_local_threads() if each.pid != except_pid]
    return len(other.active_tasks) == TASKS


def await_progress(application: Identified) -> None:
    """Wait until new input is output."""
    before = application.committed
    wait_for(lambda: application.committed > before + 200, 90, "new input is output")


@pytest.mark.slow
def test_restarts_repeat_nothing(application: Identified, spark: SparkSession) -> None:
    with running(application, spark):
        await_progress(application)
    with running(application, spark):
        await_progress(application)
    with application.streams(spark):
        application.check(90)


@pytest.mark.extended
def test_killed_workers_repeat_nothing(application: Identified, spark: SparkSession) -> None:
    """Nor is any of their state on disk discarded."""
    restored = RestoreCounts()
    streams = application.streams(spark)
    streams.set_global_state_restore_listener(restored)
    with streams, application.continuous_input():
        streams.wait_for_state("RUNNING", RUNNING)
        for turn in range(3):
            await_progress(application)
            victim = pids(streams)[turn % 2]
            os.kill(victim, signal.SIGKILL)
            wait_for(partial(is_replaced, streams, victim), 90, "the process is replaced")
    with application.streams(spark):
        application.check(90)


@pytest.mark.extended
def test_a_zombie_writes_nothing(application: Identified, spark: SparkSession) -> None:
    """A worker is paused for longer than its session, and then continues with records that
    others have processed in the meantime."""
    with running(application, spark) as streams:
        zombie = pids(streams)[0]
        os.kill(zombie, signal.SIGSTOP)
        try:
            wait_for(lambda: has_all_tasks(streams, zombie), 60, "the group continues")
            before = application.committed
            wait_for(
                lambda: application.committed > before + 500, 90, "other threads have its tasks"
            )
        finally:
            os.kill(zombie, signal.SIGCONT)
        await_progress(application)
    with application.streams(spark):
        application.check(90)

"""The end of a subscription's thread on a real broker, and tasks that its retry topic rejects."""

from __future__ import annotations

import random
import string
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import murmur2
from support.broker.topics import committed_lag, fill, read_all, unique
from support.running.thread_run import ThreadRun, thread_config
from support.waiting import NEVER_S, hang_guard, wait_for

from millstream.parallel import ProcessingContext, Properties, Retry
from millstream.serdes import STRING
from millstream.subscriptions.api.subscription import subscription_topology
from millstream.subscriptions.subscription_plan import OnError, SubscriptionPlan
from millstream.subscriptions.task_processors import ProcessorChain
from millstream.subscriptions.tasks.task_extraction import TaskReader
from millstream.testing import EmbeddedKafka

_WAIT_S = 30
#: Too large for the retry topic, even compressed.
_LARGE = "".join(random.Random(1).choices(string.ascii_letters, k=40_000))
_CONCURRENCY = 8


def run(
    kafka: EmbeddedKafka,
    folder: Path,
    name: str,
    processor: Any,
    retry: Retry | None = None,
    on_error: OnError = "fail",
    **properties: Any,
) -> ThreadRun:
    given = Properties(**properties)
    plan = SubscriptionPlan(
        "sub", ProcessorChain.of(processor), TaskReader(STRING), given, retry, on_error
    )
    topology = subscription_topology(plan, name, None)
    interval_ms = properties.get("commit_interval_ms", 100)
    config = thread_config(kafka.bootstrap_servers, folder, name, commit_interval_ms=interval_ms)
    return ThreadRun(topology, config)


@pytest.mark.parametrize(
    ("properties", "done"),
    [
        pytest.param(
            {"processing_shutdown_timeout_ms": int(NEVER_S * 1_000)}, 6, marks=pytest.mark.extended
        ),
        ({}, 2),
        ({"processor_termination_timeout_ms": 100}, 0),
    ],
)
def test_closing_waits_according_to_the_initial_properties(
    kafka: EmbeddedKafka, tmp_path: Path, properties: dict[str, Any], done: int
) -> None:
    """It waits for all tasks, for running tasks, or for almost none; completed tasks are
    committed."""
    name = unique("closing")
    kafka.create_topic(name)
    keys = _keys_of_different_units()
    fill(kafka.bootstrap_servers, name, [(keys[n % 2], b"%d" % n) for n in range(6)])
    begun = threading.Semaphore(0)

    def wait(context: ProcessingContext, task: str) -> None:
        begun.release()
        time.sleep(2)

    thread = run(kafka, tmp_path, name, wait, partition_concurrency=_CONCURRENCY, **properties)
    with ExitStack() as guards, thread:
        for _ in range(2):
            assert begun.acquire(timeout=_WAIT_S)
        # The thread starts with small batches.
        wait_for(lambda: thread.in_flight == 6, _WAIT_S, "all tasks are in flight")
        guards.enter_context(hang_guard("the close"))
    assert committed_lag(kafka.bootstrap_servers, name, name) == 6 - done


@pytest.mark.parametrize("commit_interval_ms", [20, 60_000])
@pytest.mark.parametrize("concurrency", [1, _CONCURRENCY])
def test_a_close_at_the_last_attempt_writes_dead_letters_before_offsets(
    kafka: EmbeddedKafka, tmp_path: Path, concurrency: int, commit_interval_ms: int
) -> None:
    """Each task with a committed offset has its dead letter, whenever the last commit was:
    detects a dead letter that was only in the producer."""
    name, count = unique("last"), 20
    for topic in (name, f"{name}-retry", f"{name}-dead"):
        kafka.create_topic(topic)
    fill(kafka.bootstrap_servers, name, [(b"%d" % n, b"%d" % n) for n in range(count)])
    last: list[str] = []

    def fail(context: ProcessingContext, task: str) -> None:
        if context.metadata.retry_count == 2:
            last.append(task)
        raise RuntimeError("no")

    retry = Retry(
        backoff=timedelta(milliseconds=20), max_attempts=3, dead_letter_topic=f"{name}-dead"
    )
    properties = {
        "partition_concurrency": concurrency,
        "commit_interval_ms": commit_interval_ms,
        "processing_shutdown_timeout_ms": 20_000,
    }
    with run(kafka, tmp_path, name, fail, retry, "retry", **properties):
        wait_for(lambda: len(last) == count, _WAIT_S, "each task had its last attempt")
    dead = [value for _, value in read_all(kafka.bootstrap_servers, f"{name}-dead")]
    assert sorted(dead, key=str) == sorted((b"%d" % n for n in range(count)), key=str)
    assert committed_lag(kafka.bootstrap_servers, name, f"{name}-retry") == 0


def test_a_task_too_large_for_the_retry_topic_is_retried_locally(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Decaton commits the task, and it is lost."""
    name, calls = _with_small_retry_topic(kafka), []

    def fail(context: ProcessingContext, task: str) -> None:
        calls.append(task)
        if calls.count(task) < 3:
            raise RuntimeError("no")

    retry = Retry(backoff=timedelta(milliseconds=300))
    with run(kafka, tmp_path, name, fail, retry, "retry"):
        wait_for(lambda: calls.count(_LARGE) == 3, _WAIT_S, "the task is retried until it succeeds")
        wait_for(lambda: lag(kafka, name) == 0, _WAIT_S, "everything is committed")
    retried = [value for _, value in read_all(kafka.bootstrap_servers, f"{name}-retry")]
    assert _LARGE.encode() not in retried


def test_a_task_too_large_for_the_retry_topic_can_be_dropped(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    name, calls = _with_small_retry_topic(kafka), []

    def fail(context: ProcessingContext, task: str) -> None:
        calls.append(task)
        if context.metadata.retry_count == 0:
            raise RuntimeError("no")

    retry = Retry(backoff=timedelta(milliseconds=1), on_send_failure="drop")
    with run(kafka, tmp_path, name, fail, retry, "retry"):
        wait_for(lambda: lag(kafka, name) == 0, _WAIT_S, "everything is committed")
    assert calls.count(_LARGE) == 1, "the retry topic accepted the task"


def test_a_task_too_large_for_the_retry_topic_can_fail_the_thread(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    name = _with_small_retry_topic(kafka)

    def fail(context: ProcessingContext, task: str) -> None:
        raise RuntimeError("no")

    retry = Retry(backoff=timedelta(milliseconds=1), on_send_failure="fail")
    with run(kafka, tmp_path, name, fail, retry, "retry") as thread:
        error = thread.wait_for_failure()
    assert f"was rejected by topic '{name}-retry'" in str(error)
    assert lag(kafka, name) > 0


def _keys_of_different_units() -> list[bytes]:
    by_unit = {murmur2(b"s:%d" % n, _CONCURRENCY): b"%d" % n for n in range(20)}
    return list(by_unit.values())


def _with_small_retry_topic(kafka: EmbeddedKafka) -> str:
    name = unique("large")
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-retry", config={"max.message.bytes": "10000"})
    fill(kafka.bootstrap_servers, name, [(b"a", b"small"), (b"b", _LARGE.encode())])
    return name


def lag(kafka: EmbeddedKafka, name: str) -> int:
    return committed_lag(kafka.bootstrap_servers, name, name)

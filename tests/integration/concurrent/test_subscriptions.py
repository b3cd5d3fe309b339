"""Subscriptions on a real broker: in threads of the test, in processes, and on Spark."""

from __future__ import annotations

import json
import logging
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import BrokerTopics, committed_lag, fill, read_all, unique
from support.running.parallel_application import ParallelInstances
from support.running.topologies.subscribed import run_subscription
from support.running.topologies.work_log import WorkLog, read_work
from support.waiting import stays, wait_for

from millstream import StreamsUncaughtExceptionHandlerResponse
from millstream.parallel import (
    Completion,
    ExponentialBackoff,
    ProcessingContext,
    ProcessorSubscription,
    Properties,
    PropertiesFile,
    Retry,
    SubscriptionConfig,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

RUNNING = timedelta(seconds=90)
CLOSED = timedelta(seconds=30)
TASKS = 40


class Mailer:
    """A subscription and its topics.

    Args:
        kafka: the broker.
        folder: for its files.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("mailer")
        self.retries, self.dead = f"{self.name}-retry", f"{self.name}-dead"
        self.bootstrap = kafka.bootstrap_servers
        self.folder = folder
        BrokerTopics(self.bootstrap).create({self.name: 2, self.retries: 2, self.dead: 1})

    def write(self, count: int = TASKS, first: int = 0) -> None:
        """Write this many tasks with 10 keys."""
        tasks = range(first, first + count)
        fill(self.bootstrap, self.name, [(b"%d" % (n % 10), b"%d" % n) for n in tasks])

    def subscription(self, processor: Any, **given: Any) -> ProcessorSubscription:
        """The subscription, not started."""
        threads = given.pop("num_threads", 1)
        config = SubscriptionConfig(
            self.name,
            self.bootstrap,
            num_threads=threads,
            state_dir=str(self.folder),
            consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
        )
        given.setdefault("properties", Properties(partition_concurrency=4, commit_interval_ms=100))
        return ProcessorSubscription(
            "mailer", topics=self.name, processor=processor, value=STRING, config=config, **given
        )

    @property
    def lag(self) -> int:
        """The number of uncommitted tasks."""
        return committed_lag(self.bootstrap, self.name, self.name)


@pytest.fixture
def mailer(kafka: EmbeddedKafka, tmp_path: Path) -> Mailer:
    """Empty topics."""
    return Mailer(kafka, tmp_path)


# --- retries, dead letters, failures ---


def test_retries_with_backoff_and_dead_letters(mailer: Mailer) -> None:
    """Goal: a failed task is retried after its backoff and no earlier, as often as the policy
    permits; then it is in the dead-letter topic, with the reason. Other tasks are executed once."""
    mailer.write()
    tried: dict[str, list[tuple[int, float]]] = defaultdict(list)

    def send(context: ProcessingContext, task: str) -> None:
        tried[task].append((context.metadata.retry_count, time.time()))
        if int(task) % 8 == 0:
            raise ValueError(f"no address {task}")

    backoff = ExponentialBackoff(timedelta(milliseconds=200), most=timedelta(seconds=1))
    retry = Retry(backoff=backoff, max_attempts=3, dead_letter_topic=mailer.dead)
    ran = run_subscription(mailer.subscription(send, retry=retry), [mailer.name, mailer.retries])
    assert ran.outcome.error is None
    failing = {str(n) for n in range(0, TASKS, 8)}
    assert {task for task, tries in tried.items() if len(tries) == 3} == failing
    assert {task for task, tries in tried.items() if len(tries) == 1} == {
        str(n) for n in range(TASKS)
    } - failing
    for task in failing:
        counts = [count for count, _ in tried[task]]
        times = [at for _, at in tried[task]]
        assert counts == [0, 1, 2]
        assert times[1] - times[0] >= 0.19
        assert times[2] - times[1] >= 0.39
    dead = read_all(mailer.bootstrap, mailer.dead)
    assert sorted(dead) == sorted((b"%d" % (int(t) % 10), t.encode()) for t in failing)


def test_a_task_can_request_a_retry(mailer: Mailer) -> None:
    """Goal: `context.retry()` has the effect of an error under a retry policy, from `async`
    code."""
    mailer.write()
    done: list[tuple[str, int]] = []

    async def send(context: ProcessingContext, task: str) -> None:
        if int(task) % 2 and context.metadata.retry_count < 2:
            context.retry()
        else:
            done.append((task, context.metadata.retry_count))

    retry = Retry(backoff=timedelta(milliseconds=50))
    ran = run_subscription(mailer.subscription(send, retry=retry), [mailer.name, mailer.retries])
    assert ran.outcome.error is None
    assert sorted(done) == sorted((str(n), 2 * (n % 2)) for n in range(TASKS))


@pytest.mark.parametrize("concurrency", [pytest.param(1, marks=pytest.mark.extended), 4])
@pytest.mark.parametrize("on_error", ["fail", "skip", "retry"])
def test_a_failing_processor(
    mailer: Mailer, on_error: str, concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: each task was processed, skipped with a log line, or is a dead letter; or the thread
    has failed, and the next thread repeats this task, but none before it."""
    mailer.write()
    bad = {"7", "23"}
    done: Counter[str] = Counter()
    repaired = False

    def send(_: ProcessingContext, task: str) -> None:
        if task in bad and not repaired:
            raise ValueError("no address")
        done[task] += 1

    def again() -> ProcessorSubscription:
        retry = Retry(backoff=timedelta(0), max_attempts=2, dead_letter_topic=mailer.dead)
        properties = Properties(partition_concurrency=concurrency, commit_interval_ms=50)
        return mailer.subscription(
            send,
            properties=properties,
            on_error=on_error,
            retry=retry if on_error == "retry" else None,
        )

    topics = [mailer.name, mailer.retries] if on_error == "retry" else [mailer.name]
    with caplog.at_level(logging.WARNING):
        ran = run_subscription(again(), topics)
    good = {str(n) for n in range(TASKS)} - bad
    dead = {(task or b"").decode() for _, task in read_all(mailer.bootstrap, mailer.dead)}
    if on_error == "fail":
        assert "no address" in str(ran.outcome.error)
        assert mailer.lag > 0
        repaired = True
        ran = run_subscription(again(), topics)
        assert ran.outcome.error is None
        assert set(done) == good | bad
        assert not dead
        return
    assert ran.outcome.error is None
    assert done == Counter(good)
    assert dead == (bad if on_error == "retry" else set())
    lines = [line for line in caplog.messages if "no address" in line]
    assert bool(lines) == (on_error == "skip")


def test_completed_by_another_thread(mailer: Mailer) -> None:
    """Goal: a deferred task is in flight until its completion, by any of the methods, and later
    completed tasks are not committed before it."""
    mailer.write()
    held: list[Completion] = []
    done: list[str] = []
    early: list[int] = []

    def later(completion: Completion, task: str) -> None:
        done.append(task)
        completion.complete()

    def send(context: ProcessingContext, task: str) -> None:
        completion = context.defer_completion(timeout=timedelta(seconds=30))
        if task == "0":
            held.append(completion)
        else:
            threading.Thread(target=later, args=(completion, task)).start()

    def finish() -> None:
        wait_for(lambda: len(done) == TASKS - 1, 30, "all other tasks are completed")
        early.append(mailer.lag)
        held.pop().complete()

    finishing = threading.Thread(target=finish)
    finishing.start()
    ran = run_subscription(mailer.subscription(send), [mailer.name])
    finishing.join()
    assert ran.outcome.error is None
    assert early[0] > 0, "the first task of its partition was not completed"
    assert sorted(done) == sorted(str(n) for n in range(1, TASKS))


# --- processes ---


@pytest.mark.extended
def test_one_instance_closes_and_the_other_takes_over(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: two instances share the partitions; when one starts and when one closes with tasks in
    flight, no task is lost, no key is processed concurrently, and committed tasks are not repeated.

    Method: real processes; SIGTERM to one of them. An instance that drains causes no repetitions.
    """
    running = ParallelInstances(
        kafka,
        tmp_path,
        "coroutines",
        partitions=4,
        keys=40,
        alone=True,
        most_ms=40,
        properties={"partition_concurrency": 20, "commit_interval_ms": 100},
    )
    records = running.records
    records.write(200)
    with running.start("one") as one, records.watch_commits(running.name) as snapshots:
        wait_for(lambda: running.done() > 50, 60, "the first instance makes progress")
        with running.start("other") as other:
            with records.continuous_input(30, least=1_000):
                wait_for(
                    lambda: processed_tasks(tmp_path / "other") > 100,
                    60,
                    "both instances have partitions",
                )
                alone = processed_tasks(tmp_path / "one")
                wait_for(lambda: processed_tasks(tmp_path / "one") > alone, 60, "cooperatively")
                one.signal(signal.SIGTERM)
                assert one.wait_ended(30) == 0, one.errors
                ended = processed_tasks(tmp_path / "one")
            wait_for(lambda: running.left == 0, 60, "everything is committed")
            assert processed_tasks(tmp_path / "one") == ended
            other.signal(signal.SIGTERM)
            assert other.wait_ended(30) == 0, other.errors
    running.check(snapshots)
    assert snapshots


def processed_tasks(folder: Path) -> int:
    """The number of tasks processed by the processes of a folder."""
    return sum(map(len, read_work(folder).values()))


# --- Spark ---


@contextmanager
def started(subscription: ProcessorSubscription) -> Iterator[ProcessorSubscription]:
    """The running subscription; it must close in time at the end."""
    subscription.set_uncaught_exception_handler(
        lambda _: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
    )
    subscription.start()
    try:
        subscription.wait_for_state("RUNNING", RUNNING)
        yield subscription
    finally:
        assert subscription.close(CLOSED)


def logging_processor(folder: Path) -> Callable[[ProcessingContext, str], None]:
    """A processor that logs its tasks in files, because it runs in Spark's processes."""
    log = WorkLog(folder, "spark")

    def send(context: ProcessingContext, task: str) -> None:
        key = (context.key or b"").decode()
        log.began(key, int(task))
        log.ended(key, int(task))

    return send


@pytest.mark.extended
def test_properties_change_on_all_threads(
    mailer: Mailer, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: changed properties take effect on each running thread, and on a thread that replaces a
    killed one.

    Method: nothing is processed at a rate of 0; a restarted thread with the initial rate would
    process tasks.
    """
    subscription = mailer.subscription(logging_processor(tmp_path), num_threads=2, spark=spark)
    with started(subscription):
        mailer.write()
        wait_for(lambda: mailer.lag == 0, 60, "all tasks are processed")
        subscription.update_properties(processing_rate_per_partition=0)
        pids = [each.pid for each in threads_of(subscription)]
        victim = pids[0]
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        wait_for(lambda: victim not in [t.pid for t in threads_of(subscription)], 60, "replaced")
        subscription.wait_for_state("RUNNING", RUNNING)
        before = processed_tasks(tmp_path)
        mailer.write(first=TASKS)
        assert stays(lambda: processed_tasks(tmp_path) == before, 2), (
            "tasks were processed at a rate of 0"
        )
        assert mailer.lag == TASKS
        subscription.update_properties(processing_rate_per_partition=-1, partition_concurrency=7)
        assert subscription.properties.partition_concurrency == 7
        wait_for(lambda: mailer.lag == 0, 60, "all tasks are processed again")
    assert processed_tasks(tmp_path) == 2 * TASKS


@pytest.mark.extended
def test_closing_reports_unfinished_tasks(
    mailer: Mailer, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the result of a close shows that tasks are left, which the next start processes.

    Method: tasks that are deferred and never completed.
    """
    kept: list[Any] = []
    begun = tmp_path / "begun"

    def keep(context: ProcessingContext, task: str) -> None:
        kept.append(context.defer_completion())
        begun.touch()

    subscription = mailer.subscription(keep, spark=spark)
    mailer.write()
    subscription.start()
    try:
        wait_for(begun.exists, 60, "a task has started")
    finally:
        assert not subscription.close(CLOSED)
    assert not subscription.close(CLOSED)
    assert mailer.lag == TASKS


def threads_of(subscription: ProcessorSubscription) -> Any:
    """The threads of a subscription."""
    return subscription._streams.metadata_for_local_threads()


@pytest.mark.extended
def test_changes_of_a_properties_file_are_applied(
    mailer: Mailer, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: properties of a file take precedence over those of the code, before and after a
    change; and a rate limit applies within a partition."""
    file = tmp_path / "properties.json"
    file.write_text(json.dumps({"processing.rate.per.partition": 0}))
    subscription = mailer.subscription(
        logging_processor(tmp_path),
        properties=Properties(processing_rate_per_partition=1_000, commit_interval_ms=100),
        properties_file=PropertiesFile(file, timedelta(milliseconds=100)),
        spark=spark,
    )
    mailer.write()
    with started(subscription):
        assert stays(lambda: processed_tasks(tmp_path) == 0, 1.5), "the file's rate is 0"
        file.write_text(json.dumps({"processing.rate.per.partition": 10}))
        wait_for(lambda: processed_tasks(tmp_path) > 0, 30, "the file is read again")
        began, first = time.monotonic(), processed_tasks(tmp_path)
        wait_for(lambda: mailer.lag == 0, 60, "all tasks are processed")
        took_s = time.monotonic() - began
    done = [each for tasks in read_work(tmp_path).values() for each in tasks]
    assert len(done) == TASKS
    # One partition has at least half of them, and up to a second's worth may be processed at once.
    assert took_s > (TASKS / 2 - first - 10) / 10 - 0.5


@pytest.mark.slow
def test_run_ends_on_a_signal(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: `run()` with its own Spark session processes tasks; on SIGTERM it completes started
    tasks, commits, and exits with 0, although more tasks are pending."""
    running = ParallelInstances(
        kafka,
        tmp_path,
        "coroutines",
        partitions=2,
        keys=20,
        most_ms=20,
        properties={
            "partition_concurrency": 5,
            "max_pending_records": 20,
            "processing_shutdown_timeout_ms": 10_000,
        },
    )
    running.records.write(20_000)
    with running.start("one") as one:
        wait_for(lambda: running.done() > 200, 120, lambda: f"it works: {one.errors[-2_000:]}")
        one.signal(signal.SIGTERM)
        assert one.wait_ended(60) == 0, one.errors
    done = [each for tasks in running.work().values() for each in tasks]
    assert running.left > 0, "more tasks are pending"
    assert len(done) == 20_000 - running.left, "exactly the processed tasks are committed"
    assert all(each.ended_ns is not None for each in done)

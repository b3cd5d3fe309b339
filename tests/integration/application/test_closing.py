"""Starting and closing: commits, released resources, errors, and allowed calls."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import committed_lag, fill, group_members, read_all, unique
from support.machine.leftovers import nothing_left
from support.running.applications import processed
from support.running.topologies.identified import Identified
from support.running.word_count import RUNNING, WordCount
from support.waiting import HANG_S, hang_guard, wait_for

from millstream import (
    IllegalStateError,
    KafkaStreams,
    ProcessingError,
    Processor,
    Record,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StreamsUncaughtExceptionHandlerResponse,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

REPLACE_THREAD = StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
CLOSING = timedelta(seconds=HANG_S)


class MappingApplication:
    """An application that maps the records of one topic with a function."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path, function: Any, **settings: Any) -> None:
        self.bootstrap = kafka.bootstrap_servers
        self.topic, self.out = unique("in"), unique("out")
        kafka.create_topic(self.topic, 2)
        kafka.create_topic(self.out)
        self.function = function
        self.config = StreamsConfig(
            **{
                "application_id": unique("copying"),
                "bootstrap_servers": self.bootstrap,
                "state_dir": str(folder),
                "commit_interval_ms": 100,
                "consumer": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
                **settings,
            }
        )

    def streams(self, spark: SparkSession) -> KafkaStreams:
        builder = StreamsBuilder()
        (
            builder.stream(self.topic, key=STRING, value=STRING)
            .map_values(self.function, name="map")
            .to(self.out, key=STRING, value=STRING)
        )
        return KafkaStreams(builder.build(), self.config, spark)

    def write(self, *values: str) -> None:
        fill(self.bootstrap, self.topic, ((b"k", value.encode()) for value in values))

    def output_values(self) -> list[str]:
        return [(value or b"").decode() for _, value in read_all(self.bootstrap, self.out)]

    @property
    def lag(self) -> int:
        return committed_lag(self.bootstrap, self.config.application_id, self.topic)


def test_close_commits_and_releases_everything(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: nothing is repeated after a close, and the next start is possible immediately.

    Method: the commit interval is too long for a commit before the close.
    """
    application = WordCount(kafka, tmp_path, commit_interval_ms=600_000)
    changes: list[tuple[str, str]] = []
    with nothing_left():
        streams = application.streams(spark)
        streams.set_state_listener(lambda new, old: changes.append((old.name, new.name)))
        streams.start()
        with pytest.raises(IllegalStateError, match="can be started only once"):
            streams.start()
        with pytest.raises(IllegalStateError, match="not while"):
            streams.clean_up()
        # Until then, tasks move, which commits them.
        wait_for(lambda: tasks_of_threads(streams) == [4, 4], 60, "the tasks are spread")
        streams.wait_for_state("RUNNING", RUNNING)
        application.write_lines(300)
        wait_for(lambda: processed(streams) >= 300 + 8 * 300, 60, "everything is processed")
        assert lag(application) == 300
        assert streams.close(CLOSING)
        # A locked directory or a remaining member would delay this start.
        again = application.streams(spark)
        again.start()
        assert lag(application) == 0
        assert application.is_exact()
        again.wait_for_state("RUNNING", RUNNING)
        assert again.close(CLOSING)
        assert again.close(CLOSING), "a second close is no error"
        assert streams.close(CLOSING)
    assert group_members(application.bootstrap, application.application_id) == 0
    assert application.is_exact()
    records = len(read_all(application.bootstrap, application.counts))
    assert records == len(application.expected), "records were counted twice"
    path = [new for _, new in changes]
    assert changes[0] == ("CREATED", "REBALANCING")
    assert changes[-2:] == [
        ("RUNNING", "PENDING_SHUTDOWN"),
        ("PENDING_SHUTDOWN", "NOT_RUNNING"),
    ]
    assert set(path[1:-2]) <= {"RUNNING", "REBALANCING"}
    assert path[-3] == "RUNNING"
    with pytest.raises(IllegalStateError, match="NOT_RUNNING"):
        streams.start()
    with pytest.raises(IllegalStateError, match="before start"):
        streams.set_state_listener(print)
    streams.clean_up()
    assert not (tmp_path / application.application_id).exists()


@pytest.mark.extended
def test_close_without_leaving_the_group(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the membership stays until the session times out: there is no rebalance in the
    meantime."""
    application = MappingApplication(kafka, tmp_path, str)
    group = application.config.application_id
    streams = application.streams(spark)
    streams.start()
    streams.wait_for_state("RUNNING", RUNNING)
    assert streams.close(CLOSING, leave_group=False)
    assert group_members(application.bootstrap, group) == 1
    wait_for(
        lambda: group_members(application.bootstrap, group) == 0, 30, "the session has timed out"
    )


@pytest.mark.parametrize(
    "moment",
    [
        "starting",
        "submitted",
        *(pytest.param(moment, marks=pytest.mark.extended) for moment in ("registered", "joining")),
    ],
)
def test_close_at_any_moment_of_the_start(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, moment: str
) -> None:
    """Goal: in every phase of the start, closing is orderly and quick, and releases everything."""
    application = WordCount(kafka, tmp_path)
    application.write_lines(100)
    streams = application.streams(spark)
    changes: list[str] = []
    streams.set_state_listener(lambda new, _: changes.append(new.name))
    with nothing_left():
        starting = threading.Thread(target=streams.start)
        starting.start()
        if moment == "starting":
            wait_for(lambda: bool(changes), 10, "the start has begun")
        elif moment == "submitted":
            starting.join()
        elif moment == "registered":
            wait_for(
                lambda: any(t.pid for t in streams.metadata_for_local_threads()),
                60,
                "a worker has started",
            )
        else:
            joining = {"STARTING", "PARTITIONS_ASSIGNED", "RUNNING"}
            wait_for(
                lambda: not joining.isdisjoint(thread_states(streams)),
                60,
                "a thread joins the group",
            )
        assert streams.close(CLOSING)
        starting.join(30)
        assert not starting.is_alive()
    assert changes[0] == "REBALANCING"
    assert changes[-2:] == ["PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert streams.error is None
    assert group_members(application.bootstrap, application.application_id) == 0


def test_close_in_a_signal_handler_during_the_start(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: a script that closes in a signal handler, at any point of `start`, does not hang."""
    streams = WordCount(kafka, tmp_path).streams(spark)
    before = signal.signal(signal.SIGUSR1, lambda *_: streams.close(CLOSING))
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    try:
        with nothing_left():
            timer.start()
            streams.start()
            streams.wait_for_state("NOT_RUNNING", CLOSING)
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_close_without_a_start(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: no Spark session is started for it; and it cannot be started any more."""
    streams = WordCount(kafka, tmp_path).streams()
    assert streams.close()
    assert streams.state.name == "NOT_RUNNING"
    with pytest.raises(IllegalStateError, match="NOT_RUNNING"):
        streams.start()


def test_run_on_another_thread_than_the_main_thread(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: rejected with a reason, instead of Python's error about signals."""
    streams = WordCount(kafka, tmp_path).streams()
    with ThreadPoolExecutor(1) as pool, pytest.raises(IllegalStateError, match="main thread"):
        pool.submit(streams.run).result(30)
    assert streams.state.name == "CREATED"


@pytest.mark.extended
def test_close_during_a_rebalance(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: a close during a rebalance commits completed work: no id is lost or repeated."""
    application = Identified(kafka, tmp_path)
    one, other = (
        application.streams(spark, state_dir=str(tmp_path / name)) for name in ("one", "other")
    )
    changes: list[str] = []
    one.set_state_listener(lambda new, _: changes.append(new.name))
    with nothing_left():
        one.start()
        wait_for(lambda: tasks_of_threads(one) == [4, 4], 60, "the tasks are spread")
        one.wait_for_state("RUNNING", RUNNING)
        application.write(500)
        changes.clear()
        with other:
            wait_for(lambda: "REBALANCING" in changes, 60, "a rebalance has begun")
            application.write(500)
            assert one.close(CLOSING)
            assert one.error is None
            wait_for(lambda: sum(tasks_of_threads(other)) == 8, 60, "the other has all tasks")
            application.check()


@pytest.mark.extended
def test_a_thread_that_does_not_close_in_time_is_killed(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: close respects its timeout regardless of user code; interrupted work is repeated."""
    began_file = tmp_path / "began"

    def hang_once(value: str) -> str:
        if value == "hang" and not began_file.exists():
            began_file.touch()
            time.sleep(300)
        return value

    application = MappingApplication(kafka, tmp_path, hang_once)
    application.write("one", "hang", "two")
    with nothing_left():
        streams = application.streams(spark)
        streams.start()
        wait_for(began_file.exists, 60, "the function hangs")
        with hang_guard("the close"):
            assert not streams.close(timedelta(seconds=1))
        assert streams.state.name == "NOT_RUNNING"
    with application.streams(spark):
        # The first one was sent before, in a batch of its own, and is not committed.
        wait_for(
            lambda: application.output_values()[-3:] == ["one", "hang", "two"],
            60,
            "the rest is processed",
        )
        wait_for(lambda: application.lag == 0, 30, "committed")


@pytest.mark.extended
@pytest.mark.parametrize("threads", [1, 2])
def test_a_failed_thread_is_replaced(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, threads: int
) -> None:
    """Goal: with REPLACE_THREAD the application continues by itself; every record is processed."""
    died = tmp_path / "died"

    def fail_once(value: str) -> str:
        if value == "poison" and not died.exists():
            died.touch()
            raise ValueError("fails once")
        return value

    errors: list[StreamsError] = []

    def replace(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
        errors.append(error)
        return REPLACE_THREAD

    application = MappingApplication(kafka, tmp_path, fail_once, num_stream_threads=threads)
    with nothing_left():
        streams = application.streams(spark)
        streams.set_uncaught_exception_handler(replace)
        with streams:
            streams.wait_for_state("RUNNING", RUNNING)
            before = {t.thread_name for t in streams.metadata_for_local_threads()}
            application.write("one", "poison", "two")
            wait_for(
                lambda: application.output_values()[-3:] == ["one", "poison", "two"],
                60,
                "all records are processed",
            )
            wait_for(lambda: application.lag == 0, 30, "committed")
            wait_for(
                lambda: len(thread_states(streams)) == threads, 60, "the replacement is running"
            )
            streams.wait_for_state("RUNNING", RUNNING)
            assert {t.thread_name for t in streams.metadata_for_local_threads()} == before
            assert streams.error is None
    (error,) = errors
    assert isinstance(error, ProcessingError)
    assert isinstance(error.__cause__, ValueError)
    assert streams.state.name == "NOT_RUNNING"


class HangsAfterFailing(Processor[str, str, str, str]):
    """Fails on the first attempt to process one record, and then hangs in `close`."""

    def __init__(self, failed: Path) -> None:
        self._failed = failed
        self._has_failed = False

    def process(self, record: Record[str, str]) -> None:
        if record.value == "poison" and not self._failed.exists():
            self._failed.touch()
            self._has_failed = True
            raise ValueError("fails once")
        self.context.forward(record)

    def close(self) -> None:
        if self._has_failed:
            threading.Event().wait()


@pytest.mark.extended
def test_a_failed_thread_that_hangs_in_close_is_killed_and_replaced(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: REPLACE_THREAD does not depend on user code in `close`."""
    application = MappingApplication(kafka, tmp_path, str)
    builder = StreamsBuilder()
    (
        builder.stream(application.topic, key=STRING, value=STRING)
        .process(lambda: HangsAfterFailing(tmp_path / "failed"))
        .to(application.out, key=STRING, value=STRING)
    )
    streams = KafkaStreams(builder.build(), application.config, spark)
    streams.set_uncaught_exception_handler(lambda _: REPLACE_THREAD)
    streams._supervisor.failure_policy.failed_close_timeout_ms = 2_000
    with nothing_left(), streams:
        streams.wait_for_state("RUNNING", RUNNING)
        application.write("one", "poison", "two")
        wait_for(
            lambda: application.output_values()[-3:] == ["one", "poison", "two"],
            90,
            "all records are processed",
        )
        wait_for(lambda: application.lag == 0, 30, "committed")
        streams.wait_for_state("RUNNING", RUNNING)
        assert streams.error is None


def fail_always(value: str) -> str:
    """A user function."""
    raise ValueError(f"rejects {value}")


@pytest.mark.extended
@pytest.mark.parametrize("handler", ["raises", "closes"])
def test_failing_and_closing_exception_handlers(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, handler: str
) -> None:
    """Goal: a failing handler closes the application; a handler may close the application
    itself."""
    application = MappingApplication(kafka, tmp_path, fail_always, num_stream_threads=2)
    application.write("one")
    streams = application.streams(spark)
    errors: list[StreamsError] = []

    def handle(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
        errors.append(error)
        if handler == "closes":
            streams.close(CLOSING)
            return REPLACE_THREAD
        raise RuntimeError("the handler failed")

    streams.set_uncaught_exception_handler(handle)
    final = "NOT_RUNNING" if handler == "closes" else "ERROR"
    with nothing_left():
        streams.start()
        streams.wait_for_state(final, RUNNING)
    assert len(errors) == 1
    if handler == "raises":
        assert streams.error is errors[0]


class Listener:
    """A restore listener that fails in one of its methods."""

    def __init__(self, at: str) -> None:
        self._at = at

    def on_restore_start(self, *_: Any) -> None:
        self._maybe_fail("start")

    def on_batch_restored(self, *_: Any) -> None:
        self._maybe_fail("batch")

    def on_restore_end(self, *_: Any) -> None:
        self._maybe_fail("end")

    def _maybe_fail(self, at: str) -> None:
        if at == self._at:
            raise KeyError("the listener failed")


@pytest.mark.extended
def test_a_failing_restore_listener(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: this is an error of the application, not of user code in its threads.

    As in Kafka Streams it ends the thread; with REPLACE_THREAD the application continues.
    """
    application = WordCount(kafka, tmp_path)
    application.write_lines(100)
    with application.streams(spark):
        wait_for(application.is_exact, 60, "counted")
    streams = application.streams(spark, state_dir=str(tmp_path / "other"))
    streams.set_global_state_restore_listener(Listener("end"))
    with nothing_left():
        streams.start()
        with pytest.raises(StreamsError, match="restore listener failed on 'end'") as raised:
            streams.wait_for_state("NOT_RUNNING", RUNNING)
    assert streams.state.name == "ERROR"
    assert isinstance(raised.value.__cause__, KeyError)
    assert "store 'counts'" in str(raised.value)
    assert raised.value.topic == application.changelog_topic

    streams = application.streams(spark, state_dir=str(tmp_path / "third"))
    streams.set_global_state_restore_listener(Listener("start"))
    errors: list[StreamsError] = []

    def replace(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
        errors.append(error)
        return REPLACE_THREAD

    streams.set_uncaught_exception_handler(replace)
    with streams:
        application.write_lines(100)
        wait_for(application.is_exact, 60, "counted")
        assert streams.error is None
    assert errors


def tasks_of_threads(streams: KafkaStreams) -> list[int]:
    """The number of tasks of each thread."""
    assert streams.error is None, streams.error
    return [len(thread.active_tasks) for thread in streams.metadata_for_local_threads()]


def thread_states(streams: KafkaStreams) -> list[str]:
    return [thread.thread_state for thread in streams.metadata_for_local_threads()]


def lag(application: WordCount) -> int:
    """The number of uncommitted lines."""
    return committed_lag(application.bootstrap, application.application_id, application.lines)

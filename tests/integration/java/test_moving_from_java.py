"""Instances of Kafka Streams and of Millstream in one group, under load: tasks move from Java to
Python and back without an interruption, with every kind of store and join, and with either as
the leader."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance.oracle.process import OracleUnavailable
from pyspark.sql import SparkSession
from support.machine.java_streams import END_TIMEOUT_S, SOURCES, START_TIMEOUT_S, JavaProgram
from support.running.topologies.moving import AGGREGATE_OUTPUTS, Moving, moving_topology
from support.waiting import wait_for

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2, KafkaStreams, StreamsConfig
from millstream.testing import EmbeddedKafka

#: Restoring from changelogs of both, and rebalances of six seconds.
MOVED_S = 120
COMMIT_MS = 200


class Shared:
    """Its instances in both languages, each with its own state directory."""

    def __init__(
        self, app: Moving, guarantee: str, spark: SparkSession, folder: Path, undo: ExitStack
    ) -> None:
        self.app = app
        self._guarantee = guarantee
        self._spark = spark
        self._folder = folder
        self._undo = undo
        self._instances = 0

    def _state_dir(self) -> str:
        self._instances += 1
        return str(self._folder / f"instance-{self._instances}")

    def java(self) -> JavaProgram:
        """Start another instance of Kafka Streams."""
        settings = {
            "application.id": self.app.id,
            "bootstrap.servers": self.app.bootstrap,
            "state.dir": self._state_dir(),
            "commit.interval.ms": COMMIT_MS,
            "processing.guarantee": self._guarantee,
            "num.standby.replicas": 1,
            "replication.factor": 1,
            "consumer.auto.offset.reset": "earliest",
            "consumer.session.timeout.ms": 6_000,
            "consumer.heartbeat.interval.ms": 1_000,
        }
        pairs = [f"{key}={value}" for key, value in settings.items()]
        try:
            program = JavaProgram(SOURCES / "Moving.java", self.app.id, *pairs)
        except OracleUnavailable as why:
            pytest.skip(str(why))
        self._undo.enter_context(program)
        program.wait_for_line("RUNNING", START_TIMEOUT_S)
        return program

    def python(self) -> KafkaStreams:
        """Start another instance of Millstream."""
        config = StreamsConfig(
            application_id=self.app.id,
            bootstrap_servers=self.app.bootstrap,
            state_dir=self._state_dir(),
            commit_interval_ms=COMMIT_MS,
            processing_guarantee=self._guarantee,
            num_standby_replicas=1,
            consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
        )
        streams = KafkaStreams(moving_topology(self.app.id), config, self._spark)
        streams.start()
        self._undo.callback(streams.close, timedelta(seconds=30))
        streams.wait_for_state("RUNNING", timedelta(seconds=START_TIMEOUT_S))
        return streams


def java_tasks(program: JavaProgram) -> set[str]:
    """The active tasks of an instance of Kafka Streams."""
    before = len(program.lines)
    program.write_line("")
    wait_for(
        lambda: any(line.startswith("TASKS") for line in program.lines[before:]),
        30,
        "it reports its tasks",
    )
    return set(program.lines[-1].split()[1:])


def python_tasks(streams: KafkaStreams) -> set[str]:
    """The active tasks of an instance of Millstream."""
    threads = streams.metadata_for_local_threads()
    return {str(task.task_id) for thread in threads for task in thread.active_tasks}


def end(program: JavaProgram) -> None:
    """Close an instance of Kafka Streams."""
    program.end_input()
    program.wait_for_line("CLOSED", END_TIMEOUT_S)
    assert program.wait_ended(END_TIMEOUT_S) == 0


def await_progress(app: Moving) -> None:
    """Wait until new input is output."""
    after = app.written
    wait_for(lambda: app.written > after + 40, 30, "more input is written")
    wait_for(
        lambda: str(after + 20) in app.id_counts({"seen"})["seen"],
        60,
        f"{app.id} outputs id {after + 20}",
    )


@contextmanager
def shared(
    kafka: EmbeddedKafka, guarantee: str, spark: SparkSession, folder: Path
) -> Iterator[Shared]:
    """An application without instances, and continuous input."""
    with ExitStack() as undo:
        yield Shared(Moving(kafka), guarantee, spark, folder, undo)


def check(app: Moving, guarantee: str) -> None:
    """Check that no id is lost, and that exactly-once outputs none twice."""
    app.wait_complete()
    if guarantee == EXACTLY_ONCE_V2:
        assert app.repeated() == {}
    assert app.written > 500
    assert set(app.id_counts()) > set(AGGREGATE_OUTPUTS)


def wait_shared(one: Callable[[], set[str]], other: Callable[[], set[str]], why: str) -> None:
    """Wait until each of two instances has active tasks, and no task is active in both."""

    def is_shared() -> bool:
        in_python, in_java = one(), other()
        return bool(in_python) and bool(in_java) and not in_python & in_java

    wait_for(is_shared, MOVED_S, lambda: f"{why}: {one()} and {other()}")


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE_V2, AT_LEAST_ONCE])
def test_work_moves_to_python_and_back(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, guarantee: str
) -> None:
    """Java alone, both led by Java, Python alone, both led by Python, Java alone."""
    with shared(kafka, guarantee, spark, tmp_path) as both:
        app = both.app
        with app.continuous_input():
            first = both.java()
            await_progress(app)
            in_python = both.python()
            wait_shared(lambda: java_tasks(first), lambda: python_tasks(in_python), "Java leads")
            await_progress(app)
            end(first)
            await_progress(app)
            second = both.java()
            wait_shared(lambda: java_tasks(second), lambda: python_tasks(in_python), "ours leads")
            await_progress(app)
            assert in_python.close(timedelta(seconds=30))
            await_progress(app)
        app.close_windows()
        check(app, guarantee)
        end(second)
        check(app, guarantee)


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", [EXACTLY_ONCE_V2, AT_LEAST_ONCE])
@pytest.mark.parametrize("killed", ["java", "python"])
def test_one_is_killed_and_the_other_takes_over(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, guarantee: str, killed: str
) -> None:
    """The standbys of one language take over from the other, and uncommitted work is repeated."""
    with shared(kafka, guarantee, spark, tmp_path) as both:
        app = both.app
        with app.continuous_input():
            in_java = both.java()
            in_python = both.python()
            wait_shared(lambda: java_tasks(in_java), lambda: python_tasks(in_python), "both work")
            await_progress(app)
            if killed == "java":
                in_java.signal_group(signal.SIGKILL)
            else:
                _kill(in_python)
            await_progress(app)
        app.close_windows()
        check(app, guarantee)


def _kill(streams: Any) -> None:
    for thread in streams.metadata_for_local_threads():
        os.kill(thread.pid, signal.SIGKILL)

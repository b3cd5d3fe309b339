"""One instance fails and requests that all instances shut down (KIP-671)."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance.oracle.process import OracleUnavailable
from pyspark.sql import SparkSession
from support.broker.topics import fill, group_members, unique
from support.machine.java_streams import SOURCES, JavaProgram
from support.machine.leftovers import nothing_left
from support.running.topologies.interop import topology as interop_topology
from support.waiting import wait_for

from millstream import (
    KafkaStreams,
    ProcessingError,
    ShutdownRequestedError,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StreamsUncaughtExceptionHandlerResponse,
    Topology,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.extended

RUNNING = timedelta(seconds=60)
PARTITIONS = 6


def careful(value: str) -> str:
    if value == "poison":
        raise ValueError("it is poison")
    return value


class ShutdownRequestingInstance:
    """An instance whose handler requests a shutdown of all instances.

    Args:
        topology: of the application.
        spark: the session.
        settings: of the application.
    """

    def __init__(self, topology: Topology, spark: SparkSession, **settings: Any) -> None:
        self.failures: list[StreamsError] = []
        self.streams = KafkaStreams(topology, StreamsConfig(**settings), spark)
        self.streams.set_uncaught_exception_handler(self._shut_all_down)

    def _shut_all_down(self, error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
        self.failures.append(error)
        return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_APPLICATION

    @property
    def tasks(self) -> int:
        threads = self.streams.metadata_for_local_threads()
        return sum(len(each.active_tasks) for each in threads)


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_all_instances_end_in_error_and_name_the_requester(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path, threads: int
) -> None:
    """With two threads the other thread sends the request; with one thread, a replacement sends
    it, and must not process the record at which its predecessor failed."""
    name = unique("all-down")
    kafka.create_topic(f"{name}-in", PARTITIONS)
    builder = StreamsBuilder()
    builder.stream(f"{name}-in", key=STRING, value=STRING).map_values(careful).for_each(
        lambda *_: None
    )
    topology = builder.build()
    with nothing_left(), ExitStack() as stack:
        instances = [
            ShutdownRequestingInstance(
                topology,
                spark,
                application_id=name,
                bootstrap_servers=kafka.bootstrap_servers,
                state_dir=str(tmp_path / place),
                num_stream_threads=threads,
            )
            for place in ("one", "other")
        ]
        for instance in instances:
            stack.enter_context(instance.streams)
        wait_for(lambda: [each.tasks for each in instances] == [3, 3], 60, "the tasks are shared")
        fill(kafka.bootstrap_servers, f"{name}-in", [(b"k", b"poison")])
        for instance in instances:
            instance.streams.wait_for_state("ERROR", timedelta(seconds=60))
    (failed,) = [each for each in instances if each.failures]
    (other,) = [each for each in instances if not each.failures]
    assert len(failed.failures) == 1
    assert isinstance(failed.streams.error, ProcessingError)
    assert isinstance(other.streams.error, ShutdownRequestedError)
    # The names of threads, and of their members, begin with the name of the instance.
    message = str(other.streams.error)
    assert message.startswith("The member")
    assert f" {name}-" in message
    assert "-consumer-" in message
    assert group_members(kafka.bootstrap_servers, name) == 0


class FailingListener:
    """A listener for restorations and standbys that fails."""

    def on_restore_start(self, *_: Any) -> None:
        raise ValueError("the listener failed")

    on_update_start = on_restore_start

    def on_batch_restored(self, *_: Any) -> None: ...

    on_restore_end = on_batch_loaded = on_update_suspended = on_batch_restored


@pytest.mark.slow
def test_an_instance_in_java_shuts_down_as_well(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """With either language as the leader of the group."""
    name = unique("mixed")
    topics = [f"{name}-{each}" for each in ("records", "answers", "words")]
    for topic in topics:
        kafka.create_topic(topic, 2)
    fill(kafka.bootstrap_servers, topics[0], [(b"%d" % n, b"some words") for n in range(100)])
    settings = {
        "application.id": name,
        "bootstrap.servers": kafka.bootstrap_servers,
        "state.dir": str(tmp_path / "java"),
        "commit.interval.ms": "200",
        "replication.factor": "1",
        "consumer.auto.offset.reset": "earliest",
    }
    pairs = [f"{key}={value}" for key, value in settings.items()]
    try:
        program = JavaProgram(SOURCES / "Interop.java", *topics, *pairs)
    except OracleUnavailable as why:
        pytest.skip(str(why))
    with program:
        program.wait_for_line("RUNNING", 120)
        python = ShutdownRequestingInstance(
            interop_topology(*topics),
            spark,
            application_id=name,
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=str(tmp_path / "python"),
        )
        python.streams.set_global_state_restore_listener(FailingListener())
        python.streams.set_standby_update_listener(FailingListener())
        with python.streams:
            program.wait_for_line("STATE ERROR", 90)
            python.streams.wait_for_state("ERROR", timedelta(seconds=60))
    assert "the listener failed" in str(python.streams.error)

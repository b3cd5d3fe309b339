"""Failures end in one clear error, soon, and leave nothing running."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import BrokerTopics, committed_lag, fill, latest, unique
from support.machine.leftovers import nothing_left
from support.machine.scripts import Script
from support.running.word_count import RUNNING, WordCount
from support.waiting import HANG_S, hang_guard, wait_for

from millstream import (
    BrokerUnavailableError,
    ConfigError,
    CopartitionError,
    KafkaStreams,
    LogAndContinueExceptionHandler,
    MissingSourceTopicError,
    ProcessingError,
    ProductionError,
    SerializationError,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    TopologyError,
    UnknownTopicError,
)
from millstream.clock import SystemClock
from millstream.errors import AccessDeniedError
from millstream.runtime.start.cluster_checks import ClusterChecks
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka


class Caught:
    """The error that ended an application."""

    def __init__(self) -> None:
        self.errors: list[StreamsError] = []

    @property
    def error(self) -> StreamsError:
        (error,) = self.errors
        return error

    @property
    def text(self) -> str:
        return str(self.error)


@contextmanager
def ends_soon(*applications: KafkaStreams) -> Iterator[Caught]:
    """Run applications in the block; all of them must end in ERROR, soon, and release
    everything.

    Applications that wait for the end of a fault use up `delivery.timeout.ms`, twice the limit.
    """
    caught = Caught()
    with nothing_left(), hang_guard("the failure"):
        yield caught
    assert {each.state.name for each in applications} == {"ERROR"}
    for each in applications:
        assert each.error in caught.errors
        assert each.metadata_for_local_threads() == []
        # Later callers get the same error.
        with pytest.raises(StreamsError) as again:
            each.wait_for_state("RUNNING", timedelta(seconds=5))
        assert again.value is each.error
        assert each.close()


def run(streams: KafkaStreams, kind: type[StreamsError]) -> Caught:
    """Run an application that ends by itself in an error of exactly this class."""
    with ends_soon(streams) as caught:
        with pytest.raises(StreamsError) as raised:
            streams.run()
        caught.errors.append(raised.value)
    assert type(caught.error) is kind, caught.text
    return caught


def is_logged(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    return text in caplog.text


def config(kafka: EmbeddedKafka | str, folder: Path, **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        **{
            "application_id": unique("errors"),
            "bootstrap_servers": kafka if isinstance(kafka, str) else kafka.bootstrap_servers,
            "state_dir": str(folder),
            "num_stream_threads": 2,
            "commit_interval_ms": 200,
            "consumer": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
            **settings,
        }
    )


def copy_topology(topic: str, out: str, **source: Any) -> StreamsBuilder:
    """A builder of a topology that copies a topic of strings."""
    builder = StreamsBuilder()
    (
        builder.stream(topic, key=STRING, value=source.get("value", STRING), name="read")
        .map_values(source.get("mapper", str), name="map")
        .to(out, key=STRING, value=STRING)
    )
    return builder


def test_a_wrong_address(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: no broker listens, or there is no such host: both are reported soon, with the address.

    It may be an outage, so the application waits for `task.timeout.ms`; one line per second reports
    the reason, and nothing else.
    """
    topology = copy_topology("in", "out").build()
    with socket.socket() as taken:
        # Bound but not listening: a released port could be taken by another program.
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        addresses = [f"127.0.0.1:{port}", f"no-such-host.invalid:{port}"]
        applications = [
            KafkaStreams(topology, config(each, tmp_path, task_timeout_ms=6_000), spark)
            for each in addresses
        ]
        with ends_soon(*applications) as caught, ThreadPoolExecutor() as pool:
            for starting in [pool.submit(each.start) for each in applications]:
                with pytest.raises(BrokerUnavailableError) as raised:
                    starting.result(60)
                caught.errors.append(raised.value)
    for error, address in zip(caught.errors, addresses, strict=True):
        assert address in str(error)
        assert "within 6 s" in str(error)
        assert "Check bootstrap_servers" in str(error)
        lines = [text for text in caplog.messages if address in text]
        assert any(
            "waiting for a broker" in line and "for 2 s, at most 6 s" in line for line in lines
        ), lines
        assert all("waiting for a broker" in line for line in lines), lines


@pytest.mark.extended
def test_the_start_waits_for_an_unavailable_broker(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: an instance that is started during an outage runs when the outage is over."""
    topic = unique("in")
    with EmbeddedKafka() as own, ThreadPoolExecutor() as pool:
        own.create_topic(topic)
        own.kill()
        builder = StreamsBuilder()
        builder.stream(topic, key=STRING, value=STRING).for_each(print)
        streams = KafkaStreams(builder.build(), config(own, tmp_path), spark)
        closed_early = KafkaStreams(builder.build(), config(own, tmp_path), spark)
        starting = pool.submit(streams.start)
        giving_up = pool.submit(closed_early.start)
        for each in (streams, closed_early):
            name = f"{each._config.application_id}: waiting for a broker"
            wait_for(partial(is_logged, caplog, name), 30, name)
        assert closed_early.close(timedelta(seconds=5))
        giving_up.result(5)
        assert not starting.done()
        own.start()
        starting.result(60)
        streams.wait_for_state("RUNNING", RUNNING)
        assert streams.close()


@pytest.mark.parametrize("existing", ["in", "out", ""])
def test_missing_topics(
    kafka: EmbeddedKafka, tmp_path: Path, existing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: all missing topics are named immediately, before Spark is started."""
    monkeypatch.setattr("millstream.application.supervisor.SparkEngine", None)
    topics = {name: unique(f"missing-{name}") for name in ("in", "out")}
    missing = {name: topic for name, topic in topics.items() if name != existing}
    if existing:
        kafka.create_topic(topics[existing])
    streams = KafkaStreams(
        copy_topology(topics["in"], topics["out"]).build(), config(kafka, tmp_path)
    )
    caught = run(streams, MissingSourceTopicError if "in" in missing else UnknownTopicError)
    assert caught.error.topic == next(iter(missing.values()))
    for topic in missing.values():
        assert f"'{topic}'" in caught.text
    assert topics.get(existing, "none of these") not in caught.text
    assert "Create the topics" in caught.text


def test_a_topic_that_appears_during_the_check_is_not_missing(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Goal: an answer of a broker without metadata of a new topic does not count."""
    topic, out = unique("in"), unique("out")
    kafka.create_topic(out)
    checks = ClusterChecks(
        copy_topology(topic, out).build(), config(kafka, tmp_path), SystemClock(), lambda: False
    )
    with ThreadPoolExecutor() as pool:
        checking = pool.submit(checks.run)
        time.sleep(0.5)
        assert not checking.done()
        kafka.create_topic(topic)
        checking.result(30)


def test_table_topics_without_compaction(
    kafka: EmbeddedKafka,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: one warning names the topics of tables whose old records Kafka deletes, and no
    others."""
    names = {name: unique(name) for name in ("stream", "table", "global", "compacted", "mixed")}
    builder = StreamsBuilder()
    builder.stream(names["stream"])
    for name in ("table", "compacted", "mixed"):
        builder.table(names[name], key=STRING, value=STRING)
    builder.global_table(names["global"], key=STRING, value=STRING, store="global")
    policies = {"compacted": "compact", "mixed": "compact,delete"}
    for name, topic in names.items():
        kafka.create_topic(topic, config={"cleanup.policy": policies.get(name, "delete")})
    ClusterChecks(builder.build(), config(kafka, tmp_path), SystemClock(), lambda: False).run()
    warnings = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    first, second = sorted((names["table"], names["global"]))
    assert f"reads '{first}', '{second}' as tables" in warnings[0]
    assert f"--topic {first} --add-config cleanup.policy=compact" in warnings[0]

    # A user without the right to read topic configs gets no warning.
    def denied(*_: object) -> dict[str, dict[str, str | None]]:
        raise AccessDeniedError("Reading topic configs failed: denied.")

    caplog.clear()
    monkeypatch.setattr(
        "millstream.runtime.start.cluster_checks.PermissionsAdmin.topic_configs", denied
    )
    ClusterChecks(builder.build(), config(kafka, tmp_path), SystemClock(), lambda: False).run()
    assert not [each for each in caplog.records if each.levelname == "WARNING"]


def test_topics_that_are_not_copartitioned(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: reported before Spark is started, with both counts and the name of the join."""
    monkeypatch.setattr("millstream.application.supervisor.SparkEngine", None)
    one, other = unique("one"), unique("other")
    kafka.create_topic(one, 2)
    kafka.create_topic(other, 3)
    builder = StreamsBuilder()
    table = builder.table(other, key=STRING, value=STRING)
    stream = builder.stream(one, key=STRING, value=STRING)
    stream.join(table, lambda left, right: left + right).for_each(print)
    caught = run(KafkaStreams(builder.build(), config(kafka, tmp_path)), CopartitionError)
    assert f"'{one}' has 2" in caught.text
    assert f"'{other}' has 3" in caught.text
    assert "test_clear_errors.py:" in caught.text


@pytest.mark.extended
def test_an_output_topic_that_is_deleted(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: a record that can never be written is not waited for."""
    topic, out = unique("in"), unique("out")
    kafka.create_topic(topic, 2)
    kafka.create_topic(out)
    settings = config(kafka, tmp_path)
    streams = KafkaStreams(copy_topology(topic, out).build(), settings, spark)
    with ends_soon(streams) as caught:
        streams.start()
        BrokerTopics(kafka.bootstrap_servers).delete(out)
        fill(kafka.bootstrap_servers, topic, [(b"k", b"v")])
        with pytest.raises(ProductionError) as raised:
            streams.wait_for_state("NOT_RUNNING", timedelta(seconds=HANG_S))
        caught.errors.append(raised.value)
    assert caught.error.topic == out
    assert out in caught.text
    assert committed_lag(kafka.bootstrap_servers, settings.application_id, topic) == 1


def test_a_missing_serde(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    """Goal: rejected before anything starts; the error names the node and its location."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, name="orders").to("out", key=STRING, value=STRING)
    with nothing_left(), pytest.raises(ConfigError) as raised:
        KafkaStreams(builder.build(), config(kafka, tmp_path), spark)
    text = str(raised.value)
    assert "no value serde" in text
    assert raised.value.node == "orders"
    assert "test_clear_errors.py:" in text
    assert "default_value_serde" in text


def test_a_record_that_cannot_be_decoded(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the error names topic, partition, offset and node; earlier records are committed.

    With the handler that continues, only this record is skipped.
    """
    topic, out = unique("in"), unique("out")
    kafka.create_topic(topic)
    kafka.create_topic(out)
    good = [(b"k%d" % number, LONG.serialize("", number)) for number in range(20)]
    fill(kafka.bootstrap_servers, topic, [*good[:7], (b"k", b"poison"), *good[7:]])
    topology = copy_topology(topic, out, value=LONG).build()
    settings = config(kafka, tmp_path)
    caught = run(KafkaStreams(topology, settings, spark), SerializationError)
    error = caught.error
    assert (error.topic, error.partition, error.offset) == (topic, 0, 7)
    assert error.node == "read"
    assert "LogAndContinueExceptionHandler" in caught.text

    settings = settings.replace(deserialization_exception_handler=LogAndContinueExceptionHandler())
    with KafkaStreams(topology, settings, spark) as streams:
        streams.wait_for_state("RUNNING", RUNNING)
        wait_for(
            lambda: len(latest(kafka.bootstrap_servers, out)) == 20,
            60,
            "the other records are written",
        )
        wait_for(
            lambda: not committed_lag(kafka.bootstrap_servers, settings.application_id, topic),
            30,
            "everything is committed",
        )
        assert streams.state.name == "RUNNING"
        assert streams.error is None


def divide(value: str) -> str:
    """A user function."""
    return str(1 / (len(value) - 6))


def test_exceptions_of_user_code(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> None:
    """Goal: the error names the record and the node; its cause is the user's exception with its
    traceback."""
    topic, out = unique("in"), unique("out")
    kafka.create_topic(topic)
    kafka.create_topic(out)
    values = [b"fine", b"fine", b"poison", b"fine"]
    fill(kafka.bootstrap_servers, topic, [(b"k", value) for value in values])
    topology = copy_topology(topic, out, mapper=divide).build()
    caught = run(KafkaStreams(topology, config(kafka, tmp_path), spark), ProcessingError)
    error = caught.error
    assert (error.topic, error.partition, error.offset) == (topic, 0, 2)
    assert error.node == "map"
    assert re.fullmatch(r"\S*test_clear_errors\.py:\d+", error.declared_at or "")
    assert (error.declared_at or "") in caught.text
    assert "division by zero" in caught.text
    assert "processing_exception_handler" in caught.text
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert "in divide" in "\n".join(error.__notes__)
    assert "ProcessingError" not in "\n".join(error.__notes__), "the error is logged twice"


def test_an_internal_topic_with_a_wrong_partition_count(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: reported before Spark is started, with both counts and the remedy."""
    monkeypatch.setattr("millstream.application.supervisor.SparkEngine", None)
    application = WordCount(kafka, tmp_path, partitions=3)
    kafka.create_topic(application.repartition_topic, 5)
    caught = run(application.streams(), TopologyError)
    assert caught.error.topic == application.repartition_topic
    assert f"'{application.repartition_topic}'" in caught.text
    assert "expected 3, actual 5" in caught.text
    assert "Reset the application" in caught.text


TOO_FEW_SLOTS = """
import sys, time
from pyspark.sql import SparkSession
from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING

def main():
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = StreamsBuilder()
    builder.stream(sys.argv[2], key=STRING, value=STRING).for_each(print)
    settings = StreamsConfig(
        application_id="few", bootstrap_servers=sys.argv[1], num_stream_threads=2,
        state_dir=sys.argv[3],
    )
    streams = KafkaStreams(builder.build(), settings, spark.getOrCreate())
    began = time.monotonic()
    try:
        streams.run()
    finally:
        print("state", streams.state.name, flush=True)
        print("took", time.monotonic() - began, flush=True)

main()
"""


@pytest.mark.extended
def test_too_few_slots(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: a session that can never run all threads is rejected, with the numbers.

    Method: a script, because a process has one session; the error ends it, with exit code 1.
    """
    topic = unique("in")
    kafka.create_topic(topic)
    app = tmp_path / "app.py"
    app.write_text(TOO_FEW_SLOTS)
    arguments = (kafka.bootstrap_servers, topic, str(tmp_path / "state"))
    with Script(app, *arguments, home=tmp_path / "home") as script:
        assert float(script.wait_for_line("took", 90)) < HANG_S
        assert script.wait_ended(30) == 1
        assert script.lines[0] == "state ERROR"
        last = script.errors.splitlines()[-1]
        assert last.startswith("millstream.errors.NotEnoughSlotsError")
        assert "local[1] has 1 task slots" in last
        assert "each of the 2 stream threads" in last
        wait_for(lambda: not script.group_exists(), 30, "its processes have ended")

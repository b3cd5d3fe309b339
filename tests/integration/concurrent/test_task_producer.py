"""Tasks on a real broker: written by Millstream and by Decaton 9.5, read by both."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from decaton import DecatonUnavailable, command
from support.broker.topics import unique
from support.waiting import gather

from millstream.clock import ManualClock
from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    IllegalStateError,
    ProductionError,
    SerializationError,
)
from millstream.kafka.clients.record_columns import message_columns
from millstream.parallel import DecatonMetadata, DecatonTask, PutResult, TaskProducer
from millstream.serdes import BYTES, JSON, STRING
from millstream.subscriptions.tasks.task_extraction import TaskReader
from millstream.testing import EmbeddedKafka

DECATON = Path(__file__).parents[2] / "java" / "DecatonTasks.java"
TIMEOUT_S = 90
UNREACHABLE = "localhost:1"


def messages(kafka: EmbeddedKafka, topic: str, count: int, partition: int = 0) -> list[Message]:
    """The first records of a partition, once they are written."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        return gather(lambda: consumer.consume(count, 1), lambda found: len(found) >= count)
    finally:
        consumer.close()


def tasks(
    kafka: EmbeddedKafka, topic: str, count: int, reader: TaskReader
) -> list[tuple[bytes | None, DecatonTask[Any] | None]]:
    """The keys and tasks of a topic's only partition."""
    [(place, columns)] = message_columns(messages(kafka, topic, count)).items()
    found = reader.read(place, columns)
    assert found.failures == {}
    return list(zip(columns.keys, found.tasks, strict=True))


def producer(kafka: EmbeddedKafka, topic: str, **options: Any) -> TaskProducer:
    options = {"value": STRING, "instance_id": "python", **options}
    return TaskProducer(
        topic, application_id="millstream", bootstrap_servers=kafka.bootstrap_servers, **options
    )


def java(*arguments: str) -> str:
    """The output of the program on Decaton."""
    try:
        line = command(DECATON, *arguments, options=("-XX:+UseSerialGC", "-Xmx256m"))
    except DecatonUnavailable as why:
        pytest.skip(str(why))
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_tasks_are_compatible_with_decaton(kafka: EmbeddedKafka) -> None:
    """Goal: an application can move from Decaton to Millstream, or back, with its topics, even in
    the old format.

    Method: Decaton's client writes and Millstream reads; Millstream's producer writes, and
    Decaton's subscription reads.
    """
    count = 6
    theirs, theirs_old, ours, ours_old = (
        unique(name) for name in ("theirs", "theirs-old", "ours", "ours-old")
    )
    for topic in (theirs, theirs_old, ours, ours_old):
        kafka.create_topic(topic, 1)
    servers = kafka.bootstrap_servers
    java("write", servers, theirs, theirs_old, str(count))
    for topic, old in ((theirs, False), (theirs_old, True)):
        assert tasks(kafka, topic, count, TaskReader(STRING, legacy_parse_fallback=old)) == [
            (
                b"key-%d" % number,
                DecatonTask(
                    DecatonMetadata(
                        1_000 + number, "decaton", "java", 0, number if number % 2 else 0
                    ),
                    f"task-{number}",
                    b"task-%d" % number,
                ),
            )
            for number in range(count)
        ]
    expected = set()
    for topic, old in ((ours, False), (ours_old, True)):
        with producer(kafka, topic, old_format=old) as writer:
            for number in range(count):
                due = number or None
                writer.put(f"key-{number}", f"täsk-{number}", timestamp_ms=9, scheduled_time_ms=due)
                fields = (
                    topic,
                    f"key-{number}",
                    f"täsk-{number}",
                    "9",
                    "millstream",
                    "python",
                    "0",
                )
                expected.add((*fields, str(number)))
    printed = java("read", servers, ours, ours_old, str(count))
    assert {tuple(line.split("\t")) for line in printed.splitlines()} == expected


def test_a_put_returns_the_position(kafka: EmbeddedKafka) -> None:
    """Partition and offset, and the record with all its metadata."""
    topic = unique("position")
    kafka.create_topic(topic, 2)
    unsent = DecatonMetadata(1).to_bytes()
    clock = ManualClock(5_000)
    with producer(kafka, topic, value=JSON, clock=clock) as writer:
        puts = [
            writer.put(None, {"n": 1}, partition=1, headers=[("dt_meta", unsent), ("trace", b"7")]),
            writer.put(b"\xff", {"n": 2}, partition=1, timestamp_ms=3, scheduled_time_ms=4),
        ]
        assert [put.result(30) for put in puts] == [
            PutResult(topic, 1, 0),
            PutResult(topic, 1, 1),
        ]
    first, second = messages(kafka, topic, 2, partition=1)
    assert (first.key(), first.value()) == (None, b'{"n":1}')
    now = DecatonMetadata(5_000, "millstream", "python")
    assert first.headers() == [("trace", b"7"), ("dt_meta", now.to_bytes())]
    # The record's timestamp is the client's, regardless of the task's.
    assert first.timestamp()[1] > 1_600_000_000_000
    due = DecatonMetadata(3, "millstream", "python", scheduled_time_ms=4)
    assert (second.key(), second.headers()) == (b"\xff", [("dt_meta", due.to_bytes())])


def test_many_threads_put(kafka: EmbeddedKafka) -> None:
    """Each thread's tasks are in order and complete, including those beyond the queue's
    capacity."""
    topic = unique("threads")
    kafka.create_topic(topic, 1)
    each, threads = 2_000, 4
    puts: list[Future[PutResult]] = []
    with producer(kafka, topic, settings={"buffer.memory": 64 * 1024}) as writer:

        def work(name: int) -> None:
            puts.extend(writer.put(str(name), f"{number}") for number in range(each))

        workers = [threading.Thread(target=work, args=(name,)) for name in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(TIMEOUT_S)
        assert writer.flush(timedelta(seconds=TIMEOUT_S))
        assert all(put.done() for put in puts)
    assert {put.result().offset for put in puts} == set(range(each * threads))
    found = tasks(kafka, topic, each * threads, TaskReader(STRING))
    for name in range(threads):
        own = [task.value for key, task in found if task and key == b"%d" % name]
        assert own == [str(number) for number in range(each)]


def test_rejected_tasks_fail_their_futures(kafka: EmbeddedKafka) -> None:
    """Immediately, or by the broker; other tasks are written."""
    topic = unique("refused")
    kafka.create_topic(topic, 1)
    with producer(kafka, topic, value=BYTES) as writer:
        large = writer.put("a", bytes(2_000_000))
        nowhere = writer.put("a", b"", partition=7)
        fine = writer.put("a", b"")
        with pytest.raises(ProductionError, match=r"max\.request\.size") as raised:
            large.result(30)
        assert raised.value.topic == topic
        with pytest.raises(ProductionError, match="no such partition") as raised:
            nowhere.result(30)
        assert raised.value.partition == 7
        assert fine.result(30).offset == 0


def test_a_callback_may_put_but_not_wait(kafka: EmbeddedKafka) -> None:
    """A chain of tasks works; waiting for itself raises an error instead of causing a deadlock."""
    topic = unique("chained")
    kafka.create_topic(topic, 1)
    seen: Future[tuple[Future[PutResult], list[str]]] = Future()

    def then(_: Future[PutResult]) -> None:
        refused = []
        for wait in (writer.flush, writer.close):
            try:
                wait()
            except IllegalStateError as error:
                refused.append(error.message)
        seen.set_result((writer.put("a", "second"), refused))

    with producer(kafka, topic) as writer:
        writer.put("a", "first").add_done_callback(then)
        second, refused = seen.result(30)
        assert second.result(30).offset == 1
    assert len(refused) == 2


UNCLOSED = """
import sys
from millstream.parallel import TaskProducer
from millstream.serdes import STRING
producer = TaskProducer(
    sys.argv[2], application_id="a", bootstrap_servers=sys.argv[1], value=STRING,
    settings={"linger.ms": 500},
)
producer.put("a", "last")
"""


@pytest.mark.extended
def test_a_program_may_end_without_closing(kafka: EmbeddedKafka) -> None:
    """Detects tasks that are lost at the exit of the process."""
    topic = unique("unclosed")
    kafka.create_topic(topic, 1)
    line = [sys.executable, "-c", UNCLOSED, kafka.bootstrap_servers, topic]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    [record] = messages(kafka, topic, 1)
    assert record.value() == b"last"


def test_no_task_is_lost_silently_without_a_broker() -> None:
    """Detects futures that stay pending forever: after `close` all have a result."""
    writer = TaskProducer("t", application_id="a", bootstrap_servers=UNREACHABLE, value=STRING)
    put = writer.put("a", "b")
    assert not put.cancel()
    assert not writer.flush(timedelta(milliseconds=10))
    assert not writer.close(timedelta(milliseconds=50))
    assert not writer.close()
    assert not writer.flush()
    with pytest.raises(
        ProductionError, match=r"not acknowledged within .* before the producer was closed"
    ):
        put.result(0)
    with pytest.raises(IllegalStateError, match="closed"):
        writer.put("a", "b")
    assert [each.name for each in threading.enumerate() if "task-producer" in each.name] == []


def test_a_full_queue_is_waited_for_and_reported() -> None:
    """The wait takes at most `max.block.ms`; the task is not sent later."""
    settings: Mapping[str, Any] = {"buffer.memory": 1_024, "max.block.ms": 50}
    writer = TaskProducer(
        "t", application_id="a", bootstrap_servers=UNREACHABLE, value=BYTES, settings=settings
    )
    puts = [writer.put("a", bytes(600)) for _ in range(3)]
    with pytest.raises(BrokerUnavailableError, match=r"max\.block\.ms"):
        puts[2].result(0)
    assert not puts[0].done()
    writer.close(timedelta(0))


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        ({"task": None}, SerializationError, "None is not a task"),
        ({"key": "\n"}, SerializationError, "printable ASCII"),
        ({"task": 5}, SerializationError, "cannot serialize 5"),
        ({"timestamp_ms": 1 << 63}, SerializationError, "64 bits"),
        ({"partition": -1}, TypeError, "at least 0"),
        ({"headers": {"a": "b"}}, TypeError, "headers"),
    ],
)
def test_unwritable_tasks_raise_an_error_immediately(
    arguments: dict[str, Any], error: type[Exception], problem: str
) -> None:
    """At the call, not in a future that is never checked."""
    writer = TaskProducer("t", application_id="a", bootstrap_servers=UNREACHABLE, value=STRING)
    with writer, pytest.raises(error, match=problem):
        writer.put(**{"key": "a", "task": "b", **arguments})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"no.such.setting": 1}, "no.such.setting"),
        ({"transactional.id": "t"}, "transactional.id"),
        ({"linger.ms": -7}, "linger.ms is -7, but must be at least 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        TaskProducer(
            "t", application_id="a", bootstrap_servers=UNREACHABLE, value=STRING, settings=settings
        )

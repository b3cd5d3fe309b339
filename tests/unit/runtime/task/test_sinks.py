"""Sinks: serialization, dynamic topics and partitions, and records that cannot be written."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from millstream.errors import ProcessingError, SerializationError
from millstream.operators.record_batch import Batch, Origin
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.task.sinks import RecordContext, Sink, SinkBuffer
from millstream.serdes import LONG, STRING, Serde

TASK = TaskId(0, 1)
H = (("h", b"1"),)


class Sent(NamedTuple):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers


class FakeCollector:
    """A collector that keeps its records; every topic has three partitions."""

    def __init__(self) -> None:
        self.calls = 0
        self.sent: list[Sent] = []

    def partition_count(self, topic: str) -> int:
        return 3

    def send_many(
        self,
        topic: str,
        partitions: Any,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
    ) -> None:
        self.calls += 1
        columns = (
            [None] * len(keys) if partitions is None else partitions,
            keys,
            values,
            timestamps,
            [()] * len(keys) if headers is None else headers,
        )
        self.sent += [Sent(topic, *row) for row in zip(*columns, strict=True)]

    def send_with_handler(self, *columns: Any) -> None:
        """Like `send_many`: no write fails here."""
        self.send_many(*columns[:-1])


class Errors:
    """Skips unwritable records or fails, and keeps the records."""

    def __init__(self, skip: bool) -> None:
        self.skip = skip
        self.skipped: list[tuple[Any, Any]] = []
        self.drops: list[tuple[int, str]] = []

    def dropped(self, count: int, why: str) -> None:
        self.drops.append((count, why))

    def unwritable(self, batch: Batch, index: int, error: Exception) -> bool:
        self.skipped.append((batch.keys[index], batch.values[index]))
        return self.skip


class Run:
    """Runs one sink."""

    def __init__(
        self,
        topic: Any = "out",
        *,
        key: Serde[Any] = STRING,
        partitioner: Any = None,
        skip: bool = True,
        sink_buffer: SinkBuffer | None = None,
        topics: FakeCollector | None = None,
    ) -> None:
        self.topics = topics or FakeCollector()
        self.errors = Errors(skip)
        self.sink = Sink(
            "sink", TASK, topic, key, LONG, partitioner, self.topics, sink_buffer, self.errors
        )

    def send(self, *records: tuple[Any, Any], order: Any = None, **origin: Any) -> list[Sent]:
        """Send (key, value) records with their index as timestamp and offset, and return the
        output."""
        size = len(records)
        place = Origin(TopicPartition("in", 4), range(size), origin.get("headers"))
        keys, values = [k for k, _ in records], [v for _, v in records]
        batch = Batch(keys, values, list(range(size)), range(size), place, order)
        self.sink.process(batch, None)  # type: ignore[arg-type]
        return self.topics.sent


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def test_records_are_serialized_and_sent_at_once() -> None:
    run = Run()
    sent = run.send(("a", 1), (None, None), headers=[H, ()])
    assert sent == [
        ("out", None, b"a", number(1), 0, H),
        ("out", None, None, None, 1, ()),
    ]
    assert run.topics.calls == 1


def test_topic_function_receives_the_record_and_its_origin() -> None:
    seen: list[tuple[Any, Any, RecordContext]] = []

    def topic(key: Any, value: Any, context: RecordContext) -> str:
        seen.append((key, value, context))
        return "even" if value % 2 == 0 else "odd"

    sent = Run(topic).send(("a", 1), ("b", 2), ("c", 3), headers=[(), H, ()])
    assert [(each.topic, each.key) for each in sent] == [
        ("odd", b"a"),
        ("odd", b"c"),
        ("even", b"b"),
    ]
    assert [each.headers for each in sent] == [(), (), H]
    key, value, context = seen[1]
    assert (key, value, context.timestamp, context.headers) == ("b", 2, 1, H)
    assert (context.topic, context.partition, context.offset) == ("in", 4, 1)
    assert len(seen) == 3


def test_partitioner_chooses_a_partition_or_leaves_it_to_kafka() -> None:
    calls: list[tuple[Any, ...]] = []

    def partition(*arguments: Any) -> int | None:
        calls.append(arguments)
        return None if arguments[2] == 0 else 2

    sent = Run(partitioner=partition).send(("a", 1), ("b", 0))
    assert [each.partition for each in sent] == [2, None]
    assert calls == [("out", "a", 1, 3), ("out", "b", 0, 3)]


def test_partitioner_can_copy_or_drop_a_record() -> None:
    """KIP-837: one copy for each returned partition, in order and without duplicates."""
    chosen: dict[int, Any] = {1: [2, 0, 2], 2: [], 3: {1}, 4: None, 5: range(3), 6: 1}
    run = Run(partitioner=lambda topic, key, value, count: chosen[value])
    sent = run.send(*[("k", value) for value in chosen], headers=[H, (), (), (), (), ()])
    assert [(each.partition, each.value, each.timestamp) for each in sent] == [
        (partition, number(value), value - 1)
        for partition, value in [(0, 1), (2, 1), (1, 3), (None, 4), (0, 5), (1, 5), (2, 5), (1, 6)]
    ]
    assert [each.headers for each in sent[:3]] == [H, H, ()]
    assert run.errors.drops == [(1, "the partitioner chose no partition")]
    assert run.errors.skipped == []


def test_copies_keep_the_depth_first_order() -> None:
    sink_buffer, topics = SinkBuffer(), FakeCollector()
    one = Run("out", sink_buffer=sink_buffer, topics=topics, partitioner=lambda *_: [0, 1])
    two = Run("out", sink_buffer=sink_buffer, topics=topics)
    one.send(("a", 1), ("c", 2), order=[(0, 0), (1, 0)])
    two.send(("b", 3), order=[(0, 1)])
    sink_buffer.send()
    assert [(each.key, each.partition) for each in topics.sent] == [
        *[(b"a", 0), (b"a", 1), (b"b", None), (b"c", 0), (b"c", 1)]
    ]


@pytest.mark.parametrize("wrong", ["12", b"\0", [0, "1"], [0, 3], {-1}, [None], {"a": 1}])
def test_invalid_partitions_are_rejected(wrong: Any) -> None:
    run = Run(partitioner=lambda *_: wrong)
    assert run.send(("a", 1)) == []
    assert run.errors.skipped == [("a", 1)]


def bad_topic(key: Any, value: Any, context: Any) -> Any:
    if value == 7:
        raise ValueError(value)
    return {8: None, 9: ""}.get(value, "out")


def bad_partition(topic: str, key: Any, value: Any, count: int) -> Any:
    if value == 7:
        raise KeyError(value)
    return {8: 3, 9: -1}.get(value, 0)


@pytest.mark.parametrize("options", [{"topic": bad_topic}, {"partitioner": bad_partition}])
def test_only_records_without_topic_or_partition_are_skipped(options: Any) -> None:
    run = Run(**options)
    sent = run.send(("a", 1), ("b", 7), ("c", 8), ("d", 2), ("e", 9))
    assert [(each.key, each.timestamp) for each in sent] == [(b"a", 0), (b"d", 3)]
    assert sorted(run.errors.skipped) == [("b", 7), ("c", 8), ("e", 9)]


@pytest.mark.parametrize("options", [{"topic": bad_topic}, {"partitioner": bad_partition}])
@pytest.mark.parametrize("value", [7, 8, 9])
def test_a_record_without_topic_or_partition_fails(options: Any, value: int) -> None:
    """The error contains the origin of the record and the remedy; nothing is sent."""
    run = Run(skip=False, **options)
    with pytest.raises(ProcessingError) as raised:
        run.send(("a", 1), ("b", value))
    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("in", 4, 1)
    assert (error.node, error.task_id) == ("sink", TASK)
    assert isinstance(error.__cause__, ValueError | KeyError)
    assert run.topics.sent == []


def test_only_records_that_cannot_be_serialized_are_skipped() -> None:
    """Keys and values; partitions, times and headers stay with their records."""
    calls: list[Any] = []

    def write(topic: str, key: Any) -> bytes:
        calls.append(key)
        return str(key).encode() if key != "bad" else 1 // 0  # type: ignore[return-value]

    key: Serde[Any] = Serde(write, lambda topic, data: data)
    run = Run(key=key, partitioner=lambda topic, k, v, count: 0 if v == "x" else 1)
    sent = run.send(
        ("a", 1), ("bad", 2), ("b", "x"), ("bad", "y"), ("c", 3), headers=[(), (), (), (), H]
    )
    assert sent == [("out", 1, b"a", number(1), 0, ()), ("out", 1, b"c", number(3), 4, H)]
    assert run.errors.skipped == [("bad", 2), ("bad", "y"), ("b", "x")]
    assert calls == ["a", "bad", "b", "bad", "c"]


@pytest.mark.parametrize(("record", "field"), [((1, 1), "key"), (("a", "x"), "value")])
def test_a_record_that_cannot_be_serialized_fails(record: Any, field: str) -> None:
    run = Run(skip=False)
    with pytest.raises(SerializationError, match=f"The {field} of a record for topic 'out'") as got:
        run.send(("a", 1), record)
    assert (got.value.topic, got.value.offset, got.value.node) == ("in", 1, "sink")
    assert run.topics.sent == []


def test_nothing_is_sent_for_a_batch_of_unwritable_records() -> None:
    run = Run()
    assert run.send((1, 1), ("a", "x")) == []
    assert run.topics.calls == 0


def test_sinks_on_one_topic_write_in_depth_first_order() -> None:
    sink_buffer, topics = SinkBuffer(), FakeCollector()
    one = Run("out", sink_buffer=sink_buffer, topics=topics)
    two = Run("out", sink_buffer=sink_buffer, topics=topics, partitioner=lambda *_: 2)
    two.send(("b", 1), ("d", 2), order=[(0, 1), (1, 1)])
    one.send(("a", 3), ("c", 4), order=[(0, 0), (1, 0)], headers=[H, ()])
    assert topics.sent == []
    sink_buffer.send()
    assert [(s.key, s.partition, s.headers) for s in topics.sent] == [
        (b"a", None, H),
        (b"b", 2, ()),
        (b"c", None, ()),
        (b"d", 2, ()),
    ]
    sink_buffer.send()
    assert len(topics.sent) == 4


@pytest.mark.parametrize("across_topics", [False, True])
def test_topics_are_only_interleaved_on_request(across_topics: bool) -> None:
    sink_buffer, topics = SinkBuffer(across_topics), FakeCollector()
    two = Run("two", sink_buffer=sink_buffer, topics=topics)
    one = Run("one", sink_buffer=sink_buffer, topics=topics)
    two.send(("b", 1), ("d", 2), order=[(0, 1), (1, 1)])
    one.send(("a", 3), ("c", 4), order=[(0, 0), (1, 0)])
    sink_buffer.send()
    keys = [each.key for each in topics.sent]
    assert keys == ([b"a", b"b", b"c", b"d"] if across_topics else [b"b", b"d", b"a", b"c"])
    assert [each.key for each in topics.sent if each.topic == "one"] == [b"a", b"c"]

"""The record queue of a partition: decoding, timestamps and unreadable records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

import pytest

from millstream.errors import SerializationError, StreamsError
from millstream.processor.handlers import ErrorContext, SourceRecord
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.runtime.task.time_limits import ChunkPace
from millstream.serdes import LONG, STRING, Serde
from millstream.topology.physical.nodes import TimestampExtractor

PLACE = TopicPartition("in", 2)
TASK = TaskId(1, 2)
H = (("h", b"1"),)
ONE, TWO, BAD = (1).to_bytes(8, "big"), (2).to_bytes(8, "big"), b"not a long"


class Raw(NamedTuple):
    """Records as returned by a poll."""

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: list[int]
    headers: Sequence[Headers] | None = None
    leader_epoch: int | None = None


def raw(*values: bytes | None, start: int = 10, keys: list[Any] | None = None, **more: Any) -> Raw:
    size = len(values)
    return Raw(
        keys or [b"k"] * size,
        list(values),
        more.get("timestamps", list(range(100, 100 + size))),
        more.get("offsets", list(range(start, start + size))),
        more.get("headers"),
        more.get("leader_epoch"),
    )


class Errors:
    """Skips unreadable records or fails."""

    def __init__(self, skip_unreadable: bool) -> None:
        self.skip_unreadable = skip_unreadable
        self.handled: list[tuple[ErrorContext, SourceRecord]] = []
        self.drops = 0

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        self.handled.append((context, record))
        return self.skip_unreadable

    def dropped(self, count: int, why: str) -> None:
        self.drops += count


def queue_of(
    *polls: Raw,
    skip_unreadable: bool = False,
    extractor: TimestampExtractor | None = None,
    key: Serde[Any] = STRING,
    value: Serde[Any] = LONG,
) -> tuple[RecordQueue, Errors]:
    errors = Errors(skip_unreadable)
    queue = RecordQueue(PLACE, "source", TASK, key, value, extractor, errors)
    for poll in polls:
        queue.add(poll)
    return queue, errors


def drain(queue: RecordQueue, limit: int = 100) -> list[tuple[Any, Any, int, int]]:
    """Take all available records: key, value, timestamp, offset."""
    taken: list[tuple[Any, Any, int, int]] = []
    while count := queue.available():
        part = queue.take(min(count, limit))
        taken += zip(part.keys, part.values, part.timestamps, part.offsets, strict=True)
        queue.pending.finish_all()
    return taken


def take_one(queue: RecordQueue) -> tuple[Any, ...]:
    """Take the next record: key, value, timestamp, offset, headers."""
    taken = queue.take(1)
    queue.pending.finish_all()
    headers = () if taken.headers is None else taken.headers[0]
    return (taken.keys[0], taken.values[0], taken.timestamps[0], taken.offsets[0], headers)


def test_passed_records_are_taken_together() -> None:
    """Until they are taken, only the timestamp of the head changes."""
    queue, _ = queue_of(raw(ONE, TWO, None, timestamps=[5, 3, 4]), raw(TWO, start=20))
    queue.available()
    assert queue.mark_before(100, 1) == (1, True)
    assert queue.head_time == 3
    assert queue.mark_before(100, 1) == (1, True)
    assert queue.take_marked().values == [1, 2]
    assert queue.next_offset() == 10
    queue.pending.finish_all()
    assert (queue.size, queue.next_offset(), queue.partition_time) == (2, 12, 5)
    assert queue.mark_before(100, 1) == (1, False)
    assert queue.take_marked().values == [None]
    assert (queue.available(), queue.head_time) == (1, 100)


def test_records_before_a_time_are_passed_together() -> None:
    """The next record in any case, and the following ones up to the first that is not before the
    time."""
    queue, _ = queue_of(raw(*[ONE] * 6, timestamps=[9, 3, 4, 7, 5, 6]), raw(TWO, start=20))
    queue.available()
    assert queue.mark_before(7, 2) == (2, True)
    assert queue.head_time == 4
    assert queue.mark_before(7, 100) == (1, True)
    assert queue.head_time == 7
    assert queue.mark_before(7, 100) == (3, False)
    assert queue.take_marked().timestamps == [9, 3, 4, 7, 5, 6]
    assert queue.available() == 1


def test_records_are_taken_in_order() -> None:
    queue, _ = queue_of(raw(ONE, None), raw(TWO, start=20, headers=[H]))
    assert queue.size == 3
    assert queue.next_offset() == 10
    assert queue.available() == 2
    assert queue.head_time == 100
    assert take_one(queue) == ("k", 1, 100, 10, ())
    assert (queue.size, queue.next_offset(), queue.partition_time) == (2, 11, 100)
    assert queue.head_time == 101
    assert take_one(queue) == ("k", None, 101, 11, ())
    assert queue.next_offset() == 20
    assert queue.available() == 1
    assert queue.head_time == 100
    assert take_one(queue) == ("k", 2, 100, 20, H)
    assert (queue.size, queue.available(), queue.next_offset()) == (0, 0, 21)
    assert queue.partition_time == 101


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_batch_size_does_not_affect_the_records(limit: int) -> None:
    queue, _ = queue_of(raw(ONE, TWO, None), raw(TWO, ONE, start=20))
    taken = drain(queue, limit)
    assert [(value, offset) for _, value, _, offset in taken] == [
        (1, 10),
        (2, 11),
        (None, 12),
        (2, 20),
        (1, 21),
    ]
    assert queue.next_offset() == 22


def test_gaps_in_the_offsets_are_committed_up_to_the_next_record() -> None:
    """Compacted and transactional topics have gaps: the offset of the next record is committed."""
    queue, _ = queue_of(raw(ONE, TWO, offsets=[10, 15]))
    queue.available()
    take_one(queue)
    assert queue.next_offset() == 15


def test_records_before_an_unreadable_one_come_first() -> None:
    """FAIL: the queue stops there, raises at each call, and commits the offsets before."""
    queue, errors = queue_of(raw(ONE, BAD, TWO), raw(TWO, start=20))
    assert queue.available() == 1
    assert queue.next_offset() == 10
    assert queue.take(1).values == [1]
    queue.pending.finish_all()
    assert queue.next_offset() == 11
    for _ in range(2):
        with pytest.raises(SerializationError) as raised:
            queue.available()
    error = raised.value
    assert (error.topic, error.partition, error.offset) == ("in", 2, 11)
    assert (error.node, error.task_id) == ("source", TASK)
    assert "value" in error.message
    assert len(errors.handled) == 1
    assert queue.size > 0
    assert queue.next_offset() == 11


def test_handler_receives_the_unreadable_record_as_read() -> None:
    queue, errors = queue_of(
        raw(ONE, BAD, headers=[(), H], keys=[b"a", b"b"]), skip_unreadable=True
    )
    drain(queue)
    context, record = errors.handled[0]
    assert record == SourceRecord("in", 2, 11, 101, H, b"b", BAD)
    assert context == ErrorContext("in", 2, 11, 101, H, "source", TASK, b"b", BAD)


def test_unreadable_records_can_be_skipped() -> None:
    """CONTINUE, for keys and values. The committed offset includes them."""
    keys = [BAD, ONE, BAD, TWO, ONE]
    queue, errors = queue_of(
        raw(ONE, BAD, BAD, TWO, BAD, keys=keys), skip_unreadable=True, key=LONG
    )
    assert queue.size == 5
    assert drain(queue) == [(2, 2, 103, 13)]
    assert [record.offset for _, record in errors.handled] == [10, 12, 11, 14]
    assert (queue.size, queue.next_offset()) == (0, 15)


def test_poll_without_readable_records_is_skipped() -> None:
    queue, _ = queue_of(raw(BAD, BAD), raw(BAD, start=20), raw(ONE, start=30), skip_unreadable=True)
    assert queue.available() == 1
    assert queue.next_offset() == 30
    queue, _ = queue_of(raw(BAD, BAD), skip_unreadable=True)
    assert queue.available() == 0
    assert (queue.size, queue.next_offset()) == (0, 12)


def test_earlier_of_two_unreadable_fields_stops_the_queue() -> None:
    """The key of a later record is not decoded before the value of an earlier record."""
    queue, _ = queue_of(raw(ONE, BAD, TWO, keys=[ONE, TWO, BAD]), key=LONG)
    assert drain_until_error(queue) == ([1], 11)
    queue, _ = queue_of(raw(ONE, TWO, BAD, keys=[ONE, BAD, TWO]), key=LONG)
    assert drain_until_error(queue) == ([1], 11)


def drain_until_error(queue: RecordQueue) -> tuple[list[Any], int | None]:
    """Return the values before the error and the offset of the error."""
    values: list[Any] = []
    try:
        while count := queue.available():
            values += queue.take(count).values
    except StreamsError as error:
        return values, error.offset
    raise AssertionError(f"no error after {values}")


def test_a_negative_timestamp_fails() -> None:
    """Without an extractor, like Kafka's FailOnInvalidTimestamp."""
    queue, _ = queue_of(raw(ONE, TWO, timestamps=[5, -1]))
    assert drain_until_error(queue) == ([1], 11)


def test_extractor_receives_the_decoded_record_and_the_partition_time() -> None:
    """The partition time is the highest timestamp so far, initially -1, across polls."""
    seen: list[tuple[Any, Any, int, Any, int]] = []

    def extract(record: Any, partition_time: int) -> int:
        seen.append(
            (record.key, record.value, record.timestamp, tuple(record.headers), partition_time)
        )
        return int(record.value) * 10

    polls = raw(TWO, ONE, timestamps=[7, -1], headers=[H, ()]), raw(ONE, start=20)
    queue, _ = queue_of(*polls, extractor=extract)
    assert [time for _, _, time, _ in drain(queue)] == [20, 10, 10]
    assert seen == [("k", 2, 7, H, -1), ("k", 1, -1, (), 20), ("k", 1, 100, (), 20)]
    assert queue.partition_time == 20


def test_extractor_drops_records_with_a_negative_timestamp() -> None:
    """Like LogAndSkipOnInvalidTimestamp. The partition time stays the same."""
    times: list[int] = []

    def extract(record: Any, partition_time: int) -> int:
        times.append(partition_time)
        return -5 if record.value == 2 else 50

    queue, errors = queue_of(raw(TWO, ONE, TWO, TWO), extractor=extract)
    assert [offset for *_, offset in drain(queue)] == [11]
    assert times == [-1, -1, 50, 50]
    assert errors.drops == 3
    assert (queue.size, queue.next_offset()) == (0, 14)


@pytest.mark.parametrize("answer", [ValueError("no"), None, "later", 1.5, True])
def test_failing_extractor_is_fatal(answer: Any) -> None:
    """Regardless of the handlers. Earlier records are processed first."""

    def extract(record: Any, partition_time: int) -> Any:
        if record.value == 2:
            if isinstance(answer, Exception):
                raise answer
            return answer
        return 1

    queue, errors = queue_of(raw(ONE, TWO, ONE), extractor=extract, skip_unreadable=True)
    assert drain_until_error(queue) == ([1], 11)
    assert errors.handled == []
    with pytest.raises(StreamsError, match="timestamp extractor failed") as raised:
        queue.available()
    assert isinstance(raised.value.__cause__, ValueError | TypeError)
    if not isinstance(answer, Exception):
        assert f"it returned {answer!r} of type {type(answer).__name__}" in str(raised.value)
    place = f"task {TASK}, node source, topic {PLACE.topic}, partition {PLACE.partition}, offset 11"
    assert raised.value.place() == place


def test_records_are_decoded_when_their_poll_comes_up() -> None:
    """Like Kafka Streams, which decodes a record when it becomes the head."""
    queue, errors = queue_of(raw(ONE), raw(BAD, start=20), skip_unreadable=True)
    assert queue.available() == 1
    assert errors.handled == []
    take_one(queue)
    assert queue.available() == 0
    assert len(errors.handled) == 1
    queue.add(raw(TWO, start=11))
    assert drain(queue) == [("k", 2, 100, 11)]


def test_queue_joins_the_line_with_its_first_records() -> None:
    queue, _ = queue_of()
    queue.ready_queues = []
    queue.add(raw(ONE))
    queue.add(raw(TWO, start=20))
    assert queue.ready_queues == [queue]
    drain(queue)
    queue.add(raw(TWO, start=21))
    assert queue.ready_queues == [queue, queue]


def test_leader_epoch_belongs_to_the_last_record_taken() -> None:
    """With an earlier epoch, the group would detect a truncation that did not happen."""
    queue, _ = queue_of(raw(ONE, TWO, leader_epoch=3), raw(ONE, TWO, start=12, leader_epoch=4))
    assert queue.leader_epoch() is None
    for expected in (3, 3, 4, 4):
        assert queue.available()
        take_one(queue)
        assert queue.leader_epoch() == expected
    queue.add(raw(ONE, start=14, leader_epoch=5))
    assert queue.available()
    assert (queue.next_offset(), queue.leader_epoch()) == (14, 4)


def test_records_in_flight_are_not_committed() -> None:
    """The offset and its leader epoch are those of the finished records, whichever were taken
    later."""
    queue, _ = queue_of(raw(ONE, TWO, leader_epoch=3), raw(ONE, TWO, start=15, leader_epoch=4))
    for _ in range(2):
        assert queue.available()
        queue.take(2)
    assert (queue.next_offset(), queue.leader_epoch()) == (10, None)
    queue.pending.finish(11)
    queue.pending.finish(15)
    assert (queue.next_offset(), queue.leader_epoch()) == (10, None)
    queue.pending.finish(10)
    assert (queue.next_offset(), queue.leader_epoch()) == (16, 4)
    queue.pending.finish(16)
    assert (queue.next_offset(), queue.leader_epoch()) == (17, 4)


class StopsAt:
    """A pace that interrupts a list before one of its elements."""

    limit = 100

    def __init__(self, index: int) -> None:
        self.index: int | None = index

    def watch(self, count: int) -> AbstractContextManager[None]:
        return nullcontext()

    def interruptible(self, items: list[Any]) -> list[Any]:
        index, self.index = self.index, None
        return items[:index]

    def done(self, count: int, offset: int) -> None:
        pass


@pytest.mark.parametrize("skip_unreadable", [True, False])
def test_handler_is_called_once_though_a_record_is_deserialized_twice(
    skip_unreadable: bool,
) -> None:
    """Record 3 is unreadable; the extractor takes too long and is stopped before record 2."""
    queue, errors = queue_of(
        raw(ONE, ONE, ONE, BAD, ONE, start=0),
        skip_unreadable=skip_unreadable,
        extractor=lambda record, partition_time: record.timestamp,
    )
    queue.pace = cast(ChunkPace, StopsAt(2))
    if skip_unreadable:
        assert [taken[3] for taken in drain(queue)] == [0, 1, 2, 4]
    else:
        with pytest.raises(SerializationError):
            drain(queue)
    assert [record.offset for _, record in errors.handled] == [3]

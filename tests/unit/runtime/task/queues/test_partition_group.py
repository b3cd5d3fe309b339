"""The order of records: lowest timestamp first, ties as in Java, limited batches."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import SerializationError
from millstream.operators.record_batch import Batch
from millstream.processor.handlers import ErrorContext, SourceRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.queues.partition_group import PartitionGroup, TaskBatch
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.serdes import LONG, STRING
from millstream.testing.driver_topics import CapturedRecord, RawColumns

TASK = TaskId(0, 0)
GOOD, BAD = bytes(8), b"not a long"


def partition_of(name: str) -> TopicPartition:
    return TopicPartition(name, 0)


class Errors:
    def __init__(self, skip_unreadable: bool) -> None:
        self._skip_unreadable = skip_unreadable

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        return self._skip_unreadable

    def dropped(self, count: int, why: str) -> None:
        pass


class Group:
    """A partition group; each partition is a source of its own name."""

    def __init__(self, *names: str, ordered: bool = False, skip_unreadable: bool = False) -> None:
        self._skip_unreadable = skip_unreadable
        queues = {partition_of(name): self.queue(name) for name in names}
        self.group = PartitionGroup(queues, ordered)
        self._offsets = dict.fromkeys(names, 0)

    def queue(self, name: str) -> RecordQueue:
        errors = Errors(self._skip_unreadable)
        return RecordQueue(partition_of(name), name, TASK, STRING, LONG, None, errors)

    def add(self, name: str, *timestamps: int, value: bytes = GOOD) -> None:
        """Queue records, each as a separate poll."""
        for timestamp in timestamps:
            offset = self._offsets.setdefault(name, 0)
            self._offsets[name] = offset + 1
            record = CapturedRecord(name, b"k", value, timestamp, ())
            self.group.queues[partition_of(name)].add(RawColumns.of(record, offset))

    def next(self, limit: int = 100) -> list[tuple[str, int]]:
        """Return topic and timestamp of the records of the next batch, in order."""
        return taken(self.group.next_batch(limit))

    def all(self, limit: int) -> list[tuple[str, int]]:
        records: list[tuple[str, int]] = []
        while batch := self.next(limit):
            records += batch
        return records


def taken(batches: TaskBatch | None) -> list[tuple[str, int]]:
    rows: dict[int, tuple[str, int]] = {}
    for source, batch in batches or ():
        for index, row in enumerate(batch.rows):
            assert batch.metadata_of(index).topic == source
            rows[row] = (source, batch.timestamps[index])
    assert sorted(rows) == list(range(len(rows)))
    return [rows[row] for row in sorted(rows)]


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_record_with_the_lowest_timestamp_comes_first(limit: int) -> None:
    """Only the heads are compared: a late record waits behind the earlier records of its queue."""
    group = Group("a", "b")
    group.add("a", 5, 1, 7)
    group.add("b", 3, 6)
    assert group.all(limit) == [("b", 3), ("a", 5), ("a", 1), ("b", 6), ("a", 7)]
    assert group.group.stream_time == 7


def test_stream_time_never_goes_back() -> None:
    for names in (("a",), ("a", "b")):
        group = Group(*names)
        group.add("a", 5, 1)
        assert group.group.stream_time == -1
        group.next()
        assert group.group.stream_time == 5
        group.add("a", 3)
        group.next()
        assert group.group.stream_time == 5


def test_queue_with_the_earlier_records_wins_ties() -> None:
    group = Group("a", "b", "c")
    for name in ("c", "a", "b"):
        group.add(name, 4)
    assert group.all(1) == [("c", 4), ("b", 4), ("a", 4)]  # as java.util.PriorityQueue sifts
    for name in ("b", "c"):
        group.add(name, 9)
    assert group.all(1) == [("b", 9), ("c", 9)]


def test_queue_that_never_ran_empty_keeps_its_position() -> None:
    """Records added to a nonempty queue do not move it forward."""
    group = Group("a", "b")
    group.add("a", 4, 4)
    group.add("b", 4)
    group.add("a", 4)
    assert group.all(1) == [("a", 4), ("b", 4), ("a", 4), ("a", 4)]


def test_batch_ends_when_a_queue_runs_empty() -> None:
    """The group then decides again whether to wait for that partition."""
    group = Group("a", "b")
    group.add("a", 1, 2, 9)
    group.add("b", 3)
    assert group.next() == [("a", 1), ("a", 2), ("b", 3)]
    assert group.next() == [("a", 9)]
    assert group.group.next_batch(100) is None


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_batch_size_is_limited(names: tuple[str, ...]) -> None:
    group = Group(*names)
    group.group.queues[partition_of("a")].add(
        RawColumns([b"k"] * 5, [GOOD] * 5, [1, 2, 3, 4, 5], [0, 1, 2, 3, 4], None)
    )
    assert [len(group.next(2)) for _ in range(3)] == [2, 2, 1]
    assert group.group.next_batch(2) is None


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
@pytest.mark.parametrize("ordered", [True, False])
def test_batch_contains_the_origin_of_its_records(names: tuple[str, ...], ordered: bool) -> None:
    group = Group(*names, ordered=ordered)
    columns = RawColumns([b"k", None], [GOOD, None], [1, 2], [7, 8], [(("h", b"1"),), ()])
    group.group.queues[partition_of("a")].add(columns)
    ((source, batch),) = group.group.next_batch(9) or []
    assert (source, batch.keys, batch.values) == ("a", ["k", None], [0, None])
    assert [tuple(batch.headers_of(i)) for i in range(2)] == [(("h", b"1"),), ()]
    assert [batch.metadata_of(i) for i in range(2)] == [("a", 0, 7), ("a", 0, 8)]
    assert batch.order == ([(0,), (1,)] if ordered else None)


def test_order_of_records_covers_all_partitions() -> None:
    group = Group("a", "b", ordered=True)
    group.add("a", 1, 3)
    group.add("b", 2)
    batches: dict[str, Batch] = dict(group.group.next_batch(9) or [])
    assert batches["a"].order == [(0,)]
    assert batches["b"].order == [(1,)]


def test_records_before_an_unreadable_one_form_a_batch() -> None:
    """The error is raised at the start of the next batch, each time."""
    group = Group("a", "b")
    group.add("a", 1)
    group.add("a", 2, value=BAD)
    group.add("b", 3)
    assert group.next() == [("a", 1)]
    for _ in range(2):
        with pytest.raises(SerializationError) as raised:
            group.group.next_batch(9)
        assert raised.value.offset == 1


def test_skipped_unreadable_records_do_not_count() -> None:
    group = Group("a", "b", skip_unreadable=True)
    group.add("a", 1, value=BAD)
    group.add("b", 3)
    assert group.next() == [("b", 3)]
    assert group.group.size == 0
    group.add("a", 4)
    assert group.next() == [("a", 4)]


def test_partition_can_be_added_later() -> None:
    """For a topic that matches a pattern: queued records keep their order."""
    group = Group("a")
    group.add("a", 5, 6)
    group.group.add_queue(group.queue("b"))
    group.add("b", 5)
    assert group.all(1) == [("a", 5), ("b", 5), ("a", 6)]


class IdlingGroup:
    """A partition group with `max.task.idle.ms`, at times that the test chooses."""

    def __init__(self, max_idle_ms: int, *names: str) -> None:
        self.group = Group(*names)
        self.at_end: set[str] = set(names)
        self._max_idle_ms = max_idle_ms

    def ready(self, now_ms: int) -> bool:
        def at_end(partition: Any) -> bool:
            return partition.topic in self.at_end

        return self.group.group.is_ready(at_end, self._max_idle_ms, now_ms)


def test_group_with_records_in_all_partitions_is_ready() -> None:
    idle = IdlingGroup(100, "a", "b")
    idle.group.add("a", 1)
    idle.group.add("b", 1)
    assert idle.ready(0)


def test_group_waits_for_data_on_the_broker() -> None:
    """With 0, the default, only for that; with -1 not at all."""
    idle = IdlingGroup(0, "a", "b")
    idle.group.add("a", 1)
    idle.at_end = {"a"}
    assert not idle.ready(0)
    assert not idle.ready(10_000)
    idle.at_end.add("b")
    assert idle.ready(10_000)
    never = IdlingGroup(-1, "a", "b")
    never.at_end = set()
    assert never.ready(0)


def test_wait_starts_at_the_end_of_the_partition_and_is_not_repeated() -> None:
    idle = IdlingGroup(100, "a", "b")
    idle.group.add("a", 1)
    assert not idle.ready(0)
    assert not idle.ready(99)
    assert idle.ready(100)
    assert idle.ready(101)
    idle.group.add("b", 1)
    assert idle.ready(102)
    idle.group.all(1)
    idle.group.add("a", 2)
    assert not idle.ready(103)
    assert idle.ready(203)


def test_new_lag_restarts_the_wait() -> None:
    idle = IdlingGroup(100, "a", "b")
    idle.group.add("a", 1)
    assert not idle.ready(0)
    idle.at_end.discard("b")
    assert not idle.ready(50)
    idle.at_end.add("b")
    assert not idle.ready(100)
    assert idle.ready(200)


def test_group_waits_for_empty_partitions_one_after_the_other() -> None:
    """Like Kafka Streams."""
    idle = IdlingGroup(100, "a", "b", "c")
    idle.group.add("c", 1)
    assert not idle.ready(0)
    assert not idle.ready(100)
    assert not idle.ready(199)
    assert idle.ready(200)


def test_partition_with_an_unreadable_record_is_not_ready() -> None:
    """A partition with only skipped records counts as empty."""
    idle = IdlingGroup(100, "a", "b")
    idle.group = Group("a", "b", skip_unreadable=True)
    idle.group.add("a", 1)
    idle.group.add("b", 1, value=BAD)
    assert not idle.ready(0)

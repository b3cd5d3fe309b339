"""Which records come next: lowest time first, ties as in Java, batches that end in time."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.errors import SerializationError
from millstream.operators.batch import Batch
from millstream.processor.handlers import ErrorContext, SourceRecord
from millstream.record import TaskId, TopicPartition
from millstream.runtime.task.queues.partition_group import PartitionGroup, TaskBatch
from millstream.runtime.task.queues.record_queue import RecordQueue
from millstream.serdes import LONG, STRING
from millstream.testing.driver_topics import Captured, RawColumns

TASK = TaskId(0, 0)
GOOD, BAD = bytes(8), b"not a long"


def place(name: str) -> TopicPartition:
    return TopicPartition(name, 0)


class Errors:
    def __init__(self, go_on: bool) -> None:
        self._go_on = go_on

    def undecodable(self, context: ErrorContext, record: SourceRecord, error: Exception) -> bool:
        return self._go_on

    def dropped(self, count: int, why: str) -> None:
        pass


class Group:
    """A partition group; each partition is a source of its own name."""

    def __init__(self, *names: str, ordered: bool = False, go_on: bool = False) -> None:
        self._go_on = go_on
        queues = {place(name): self.queue(name) for name in names}
        self.group = PartitionGroup(queues, ordered)
        self._offsets = dict.fromkeys(names, 0)

    def queue(self, name: str) -> RecordQueue:
        errors = Errors(self._go_on)
        return RecordQueue(place(name), name, TASK, STRING, LONG, None, errors)

    def add(self, name: str, *timestamps: int, value: bytes = GOOD) -> None:
        """Queue records, each as a poll of its own."""
        for timestamp in timestamps:
            offset = self._offsets.setdefault(name, 0)
            self._offsets[name] = offset + 1
            record = Captured(name, b"k", value, timestamp, ())
            self.group.queues[place(name)].add(RawColumns.of(record, offset))

    def next(self, most: int = 100) -> list[tuple[str, int]]:
        """Topic and time of the records of the next batch, in the order of taking."""
        return taken(self.group.next_batch(most))

    def all(self, most: int) -> list[tuple[str, int]]:
        records: list[tuple[str, int]] = []
        while batch := self.next(most):
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


@pytest.mark.parametrize("most", [1, 2, 100])
def test_lowest_time_first(most: int) -> None:
    """Only the heads are compared: a late record waits behind those queued before it."""
    group = Group("a", "b")
    group.add("a", 5, 1, 7)
    group.add("b", 3, 6)
    assert group.all(most) == [("b", 3), ("a", 5), ("a", 1), ("b", 6), ("a", 7)]
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


def test_among_equal_times_the_queue_that_got_records_first_comes_first() -> None:
    group = Group("a", "b", "c")
    for name in ("c", "a", "b"):
        group.add(name, 4)
    assert group.all(1) == [("c", 4), ("b", 4), ("a", 4)]  # as java.util.PriorityQueue sifts
    for name in ("b", "c"):
        group.add(name, 9)
    assert group.all(1) == [("b", 9), ("c", 9)]


def test_a_queue_that_never_ran_empty_keeps_its_place() -> None:
    """Records added to a queue that has some do not let it step forward."""
    group = Group("a", "b")
    group.add("a", 4, 4)
    group.add("b", 4)
    group.add("a", 4)
    assert group.all(1) == [("a", 4), ("b", 4), ("a", 4), ("a", 4)]


def test_a_batch_ends_where_a_queue_runs_empty() -> None:
    """Whether to wait for that partition is decided again there."""
    group = Group("a", "b")
    group.add("a", 1, 2, 9)
    group.add("b", 3)
    assert group.next() == [("a", 1), ("a", 2), ("b", 3)]
    assert group.next() == [("a", 9)]
    assert group.group.next_batch(100) is None


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_a_batch_has_at_most_so_many_records(names: tuple[str, ...]) -> None:
    group = Group(*names)
    group.group.queues[place("a")].add(
        RawColumns([b"k"] * 5, [GOOD] * 5, [1, 2, 3, 4, 5], [0, 1, 2, 3, 4], None)
    )
    assert [len(group.next(2)) for _ in range(3)] == [2, 2, 1]
    assert group.group.next_batch(2) is None


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
@pytest.mark.parametrize("ordered", [True, False])
def test_a_batch_knows_where_its_records_come_from(names: tuple[str, ...], ordered: bool) -> None:
    group = Group(*names, ordered=ordered)
    columns = RawColumns([b"k", None], [GOOD, None], [1, 2], [7, 8], [(("h", b"1"),), ()])
    group.group.queues[place("a")].add(columns)
    ((source, batch),) = group.group.next_batch(9) or []
    assert (source, batch.keys, batch.values) == ("a", ["k", None], [0, None])
    assert [tuple(batch.headers_of(i)) for i in range(2)] == [(("h", b"1"),), ()]
    assert [batch.metadata_of(i) for i in range(2)] == [("a", 0, 7), ("a", 0, 8)]
    assert batch.order == ([(0,), (1,)] if ordered else None)


def test_the_order_counts_over_all_partitions() -> None:
    group = Group("a", "b", ordered=True)
    group.add("a", 1, 3)
    group.add("b", 2)
    batches: dict[str, Batch] = dict(group.group.next_batch(9) or [])
    assert batches["a"].order == [(0,)]
    assert batches["b"].order == [(1,)]


def test_an_unreadable_record_lets_the_batch_before_it_through() -> None:
    """The error comes when the next batch would begin, and comes again."""
    group = Group("a", "b")
    group.add("a", 1)
    group.add("a", 2, value=BAD)
    group.add("b", 3)
    assert group.next() == [("a", 1)]
    for _ in range(2):
        with pytest.raises(SerializationError) as raised:
            group.group.next_batch(9)
        assert raised.value.offset == 1


def test_unreadable_records_left_out_are_no_records() -> None:
    group = Group("a", "b", go_on=True)
    group.add("a", 1, value=BAD)
    group.add("b", 3)
    assert group.next() == [("b", 3)]
    assert group.group.size == 0
    group.add("a", 4)
    assert group.next() == [("a", 4)]


def test_a_partition_may_be_added_later() -> None:
    """A topic that matches a pattern: what waited before still comes in its order."""
    group = Group("a")
    group.add("a", 5, 6)
    group.group.add_queue(group.queue("b"))
    group.add("b", 5)
    assert group.all(1) == [("a", 5), ("b", 5), ("a", 6)]


class Idle:
    """`max.task.idle.ms` over three partitions, at times of the test's choice."""

    def __init__(self, max_idle_ms: int, *names: str) -> None:
        self.group = Group(*names)
        self.at_end: set[str] = set(names)
        self._max_idle_ms = max_idle_ms

    def ready(self, now_ms: int) -> bool:
        def at_end(of: Any) -> bool:
            return of.topic in self.at_end

        return self.group.group.is_ready(at_end, self._max_idle_ms, now_ms)


def test_with_records_everywhere_nothing_waits() -> None:
    idle = Idle(100, "a", "b")
    idle.group.add("a", 1)
    idle.group.add("b", 1)
    assert idle.ready(0)


def test_data_on_the_broker_is_waited_for() -> None:
    """With 0, the default, only for that; with -1 not even for that."""
    idle = Idle(0, "a", "b")
    idle.group.add("a", 1)
    idle.at_end = {"a"}
    assert not idle.ready(0)
    assert not idle.ready(10_000)
    idle.at_end.add("b")
    assert idle.ready(10_000)
    never = Idle(-1, "a", "b")
    never.at_end = set()
    assert never.ready(0)


def test_the_wait_begins_at_the_end_of_the_partition_and_is_not_repeated() -> None:
    idle = Idle(100, "a", "b")
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


def test_a_lag_that_shows_up_begins_the_wait_anew() -> None:
    idle = Idle(100, "a", "b")
    idle.group.add("a", 1)
    assert not idle.ready(0)
    idle.at_end.discard("b")
    assert not idle.ready(50)
    idle.at_end.add("b")
    assert not idle.ready(100)
    assert idle.ready(200)


def test_empty_partitions_are_waited_for_one_after_the_other() -> None:
    """Follows Kafka Streams."""
    idle = Idle(100, "a", "b", "c")
    idle.group.add("c", 1)
    assert not idle.ready(0)
    assert not idle.ready(100)
    assert not idle.ready(199)
    assert idle.ready(200)


def test_an_unreadable_record_is_none_to_wait_for() -> None:
    """A partition with nothing but what is left out counts as empty."""
    idle = Idle(100, "a", "b")
    idle.group = Group("a", "b", go_on=True)
    idle.group.add("a", 1)
    idle.group.add("b", 1, value=BAD)
    assert not idle.ready(0)

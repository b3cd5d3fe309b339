"""Batches of a task end when punctuations are due; processors see the time of each record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tasks.task_setup import task_services

from millstream.clock import ManualClock
from millstream.kafka.membership.member_events import CommitOffset
from millstream.processor.processor import Processor
from millstream.processor.punctuation import PunctuationType
from millstream.record import Record, TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskBuilder
from millstream.runtime.task.commit_metadata import CommitMetadata
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import STRING
from millstream.testing.driver_topics import CapturingCollector, RawColumns
from millstream.topology.physical.topology import Topology


class TimeReporter(Processor[str, str, str, str]):
    """Forwards the stream time at each record, and at each punctuation every 10 ms."""

    kind: PunctuationType | None = PunctuationType.STREAM_TIME

    def init(self, context: Any) -> None:
        super().init(context)
        if self.kind is not None:
            context.schedule(timedelta(milliseconds=10), self.kind, self.punctuate)

    def process(self, record: Record[str, str]) -> None:
        now = self.context.current_stream_time_ms()
        self.context.forward(record.with_value(f"{record.timestamp}/{now}"))
        if record.value == "commit":
            self.context.commit()

    def punctuate(self, time_ms: int) -> None:
        self.context.forward(Record("p", f"p{time_ms}", time_ms))


class WithoutPunctuation(TimeReporter):
    kind = None


class WallClockPunctuation(TimeReporter):
    kind = PunctuationType.WALL_CLOCK_TIME


class Bench:
    """A task with readable output."""

    def __init__(self, folder: Path, supplier: type[TimeReporter], *topics: str) -> None:
        self.clock = ManualClock(1_000)
        self.collector = CapturingCollector()
        topology = Topology()
        for topic in topics:
            topology.add_source(topic, topic, key=STRING, value=STRING)
        topology.add_processor("p", supplier, topics)
        topology.add_sink("sink", "out", "p", key=STRING, value=STRING)
        services = task_services(folder, self.collector, self.clock)
        (subtopology,) = topology._subtopologies()
        places = frozenset(TopicPartition(topic, 0) for topic in topics)
        self.task: StreamTask = TaskBuilder(subtopology, TaskId(0, 0), places, services).task
        self.task.open_stores()

    def start(self, stream_time: int = -1) -> None:
        committed = CommitOffset(0, CommitMetadata(stream_time).encode(), None)
        self.task.start(dict.fromkeys(self.task.partitions, committed))

    def add(self, topic: str, *timestamps: int, value: bytes = b"v") -> None:
        size = len(timestamps)
        keys: list[bytes | None] = [b"k"] * size
        values: list[bytes | None] = [value] * size
        records = RawColumns(keys, values, list(timestamps), list(range(size)), None)
        self.task.add_records(TopicPartition(topic, 0), records)

    def process_all(self, limit: int = 100) -> list[int]:
        """Process everything and return the sizes of the batches."""
        sizes = []
        while self.task.buffered:
            sizes.append(self.task.step(limit))
        return sizes

    def written(self) -> list[str]:
        return [(record.value or b"").decode() for record in self.collector.take()]


@pytest.fixture
def benches() -> Iterator[list[Bench]]:
    benches: list[Bench] = []
    yield benches
    for bench in benches:
        bench.task.close(clean=False)


@pytest.fixture
def make_bench(tmp_path: Path, benches: list[Bench]) -> Any:
    def make(supplier: type[TimeReporter], *topics: str) -> Bench:
        bench = Bench(tmp_path, supplier, *topics)
        benches.append(bench)
        return bench

    return make


def test_a_batch_ends_with_the_record_that_reaches_a_punctuation(make_bench: Any) -> None:
    bench = make_bench(TimeReporter, "a")
    bench.start()
    bench.add("a", 1, 3, 2, 12, 11, 13, 40, 41)
    assert bench.process_all() == [1, 3, 3, 1]
    assert bench.written() == [
        *["1/1", "p1", "3/3", "2/3", "12/12", "p12"],
        *["11/12", "13/13", "40/40", "p40", "41/41"],
    ]


def test_batch_from_several_partitions_ends_at_a_punctuation(make_bench: Any) -> None:
    """Records are taken by timestamp across partitions; the record that makes the punctuation due
    ends the batch."""
    bench = make_bench(TimeReporter, "a", "b")
    bench.start()
    bench.add("a", 1, 5, 14)
    bench.add("b", 3, 10, 11)
    assert bench.process_all() == [1, 3, 1, 1]
    assert bench.written() == ["1/1", "p1", "3/3", "5/5", "10/10", "p10", "11/11", "14/14"]


@pytest.mark.parametrize("topics", [("a",), ("a", "b")])
def test_batch_without_punctuations_is_not_divided_and_time_advances(
    make_bench: Any, topics: tuple[str, ...]
) -> None:
    """The stream time of a record is the highest timestamp up to it, not that of its batch."""
    bench = make_bench(WithoutPunctuation, *topics)
    bench.start(stream_time=4)
    for topic in topics:
        bench.add(topic, 3, 7, 5)
    bench.process_all()
    expected = {1: ["3/4", "7/7", "5/7"], 2: ["3/4", "3/4", "7/7", "5/7", "7/7", "5/7"]}
    assert bench.written() == expected[len(topics)]


def test_committed_stream_time_counts_at_once(make_bench: Any) -> None:
    """Like Kafka Streams: a restarted task punctuates before its first record."""
    bench = make_bench(TimeReporter, "a")
    bench.start(stream_time=25)
    assert bench.task.punctuate_stream_time()
    assert not bench.task.punctuate_stream_time()
    assert bench.written() == ["p25"]
    assert bench.task.commit_needed
    bench.add("a", 29, 30)
    bench.process_all()
    assert bench.written() == ["29/29", "30/30", "p30"]


def test_unknown_stream_time_causes_no_punctuation(make_bench: Any) -> None:
    bench = make_bench(TimeReporter, "a")
    bench.start()
    assert not bench.task.punctuate_stream_time()
    assert not bench.task.commit_needed


def test_wall_clock_time_advances_without_records(make_bench: Any) -> None:
    bench = make_bench(WallClockPunctuation, "a")
    bench.start()
    assert bench.task.next_wall_clock_ms == 1_010
    assert not bench.task.punctuate_wall_clock_time()
    bench.clock.advance(25)
    assert bench.task.punctuate_wall_clock_time()
    assert bench.written() == ["p1025"]
    assert bench.task.commit_needed
    assert bench.task.next_wall_clock_ms == 1_030


def test_commit_request_lasts_until_the_commit(make_bench: Any) -> None:
    bench = make_bench(WithoutPunctuation, "a")
    bench.start()
    bench.add("a", 1)
    bench.process_all()
    assert not bench.task.commit_requested
    bench.add("a", 2, value=b"commit")
    bench.process_all()
    assert bench.task.commit_requested
    bench.task.prepare_commit()
    bench.task.on_commit_started()
    bench.task.post_commit(bench.task.offsets_to_commit(), {})
    assert not bench.task.commit_requested


def test_schedules_end_when_the_task_is_suspended(make_bench: Any) -> None:
    bench = make_bench(WallClockPunctuation, "a")
    bench.start()
    bench.task.suspend()
    bench.clock.advance(5)
    bench.task.activate()
    bench.start()
    bench.clock.advance(10)
    assert bench.task.punctuate_wall_clock_time()
    assert bench.written() == ["p1015"], "once, and not by the previous schedule"

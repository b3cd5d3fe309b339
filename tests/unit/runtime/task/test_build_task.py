"""Putting a task together: serdes and extractors from the config, sources by their topics."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.errors import ConfigError, StreamsError
from millstream.processor.handlers import (
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
)
from millstream.processor.processor import Processor
from millstream.record import Record, TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskParts, TaskServices
from millstream.serdes import LONG, STRING
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.stores import Stores
from millstream.testing.driver_topics import Captured, CapturingCollector, RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.suppressed import BufferConfig, Suppressed
from millstream.topology.physical.topology import Topology


class Workshop:
    """Builds tasks; what they write can be read."""

    def __init__(self, folder: Path) -> None:
        self.collector = CapturingCollector()
        self._folder = folder
        self.cache_bytes = 0
        self.tasks: list[TaskParts] = []

    def task(self, topology: Topology, *topics: str, part: int = 0, **settings: Any) -> TaskParts:
        """A running task of a sub-topology that reads partition 1 of some topics."""
        config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)
        services = TaskServices(
            config=config,
            clock=ManualClock(),
            collector=self.collector,
            changelog_writer=self.collector.changelog_writer,
            directory=StateDirectory(str(self._folder), "app"),
            budget=CacheBudget(self.cache_bytes),
        )
        places = frozenset(TopicPartition(topic, 1) for topic in topics)
        parts = TaskParts(topology._subtopologies()[part], TaskId(part, 1), places, services)
        parts.task.open_stores()
        parts.task.start({})
        self.tasks.append(parts)
        return parts

    def feed(self, parts: TaskParts, topic: str, value: bytes, timestamp: int = 0) -> None:
        """Let a task process one record."""
        record = Captured(topic, b"k", value, timestamp, ())
        parts.task.add_records(TopicPartition(topic, 1), RawColumns.of(record, 0))
        while parts.task.buffered:
            parts.task.step(1)

    def written(self) -> list[tuple[str, bytes | None, int | None]]:
        return [(r.topic, r.value, r.timestamp) for r in self.collector.take()]


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path)
    yield workshop
    for parts in workshop.tasks:
        parts.task.close(clean=False)


def extract_1000(record: Any, partition_time: int) -> int:
    return 1_000


def repartitioning() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.repartition(name="rp").to("out", key=STRING, value=STRING)
    return builder.build()


def test_a_repartition_topic_s_records_keep_their_time(workshop: Workshop) -> None:
    """The configured extractor is for the application's input: the time is found there once."""
    settings: dict[str, Any] = {"default_timestamp_extractor": extract_1000}
    first = workshop.task(repartitioning(), "in", **settings)
    workshop.feed(first, "in", b"v", 5)
    assert workshop.written() == [("app-rp-repartition", b"v", 1_000)]
    second = workshop.task(repartitioning(), "app-rp-repartition", part=1, **settings)
    workshop.feed(second, "app-rp-repartition", b"v", 7)
    assert workshop.written() == [("out", b"v", 7)]


def test_a_source_s_own_extractor_comes_before_the_configured_one(workshop: Workshop) -> None:
    builder = StreamsBuilder()
    stream = builder.stream(
        "in", key=STRING, value=STRING, timestamp_extractor=lambda record, _: record.timestamp + 1
    )
    stream.to("out", key=STRING, value=STRING)
    parts = workshop.task(builder.build(), "in", default_timestamp_extractor=extract_1000)
    workshop.feed(parts, "in", b"v", 5)
    assert workshop.written() == [("out", b"v", 6)]


def test_a_missing_serde_is_named(workshop: Workshop) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING).to("out", key=STRING, value=STRING)
    with pytest.raises(ConfigError, match="no value serde") as raised:
        workshop.task(builder.build(), "in")
    assert raised.value.node == "KSTREAM-SOURCE-0000000000"
    parts = workshop.task(builder.build(), "in", default_value_serde=STRING)
    workshop.feed(parts, "in", b"v")
    assert workshop.written() == [("out", b"v", 0)]


def test_topics_that_match_a_pattern_may_be_added(workshop: Workshop) -> None:
    """The source by name has its own topics; adding one twice changes nothing."""
    builder = StreamsBuilder()
    named = builder.stream("log", key=STRING, value=STRING)
    named.map_values(lambda value: value + " by name").to("out", key=STRING, value=STRING)
    matched = builder.stream(re.compile("log-.*"), key=STRING, value=STRING)
    matched.merge(named).to("out", key=STRING, value=STRING)
    parts = workshop.task(builder.build(), "log")
    for topic in ("log-a", "log-b", "log-a"):
        parts.read_also(TopicPartition(topic, 1))
    assert parts.task.partitions == {("log", 1), ("log-a", 1), ("log-b", 1)}
    workshop.feed(parts, "log-b", b"b")
    workshop.feed(parts, "log", b"n")
    assert [value for _, value, _ in workshop.written()] == [b"b", b"n by name", b"n"]


def nameless(key: Any, value: Any, context: Any) -> Any:
    return None


def test_a_sink_asks_the_handler_unless_it_hangs_on_a_source(workshop: Workshop) -> None:
    """Follows Kafka Streams: the failure is one of the processor that forwarded the record."""
    settings: dict[str, Any] = {
        "processing_exception_handler": LogAndContinueProcessingExceptionHandler()
    }
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.peek(lambda k, v: None).to(nameless, key=STRING, value=STRING)
    parts = workshop.task(builder.build(), "in", **settings)
    workshop.feed(parts, "in", b"v")
    assert parts.drops.total == 1
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to(nameless, key=STRING, value=STRING)
    parts = workshop.task(builder.build(), "in", **settings)
    with pytest.raises(StreamsError, match="topic function"):
        workshop.feed(parts, "in", b"v")


def test_the_store_of_a_table_stands_for_what_the_task_has_read_of_its_topic(
    workshop: Workshop,
) -> None:
    """Where the topic is the changelog: a restart goes on behind it, nothing is logged twice."""
    builder = StreamsBuilder(optimize="reuse.ktable.source.topics")
    builder.table("t", key=STRING, value=STRING, store="T").to_stream().to("out")
    parts = workshop.task(builder.build(), "t")
    task, place = parts.task, TopicPartition("t", 1)
    workshop.feed(parts, "t", b"v")
    task.prepare_commit()
    task.commit_begun()
    task.post_commit(task.offsets_to_commit(), workshop.collector.acked_offsets())
    assert task.stores.changelog_offsets() == {place: 0}
    assert task.stores.restorers()[place].start_offset() == 1
    assert workshop.written() == [("out", b"v", 0)]


def test_what_was_all_left_out_is_committed(workshop: Workshop) -> None:
    """Else a restart would read, and leave out, the same records again."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).to("out", key=STRING, value=LONG)
    skipping = LogAndContinueExceptionHandler()
    topology = builder.build()
    parts = workshop.task(topology, "in", deserialization_exception_handler=skipping)
    workshop.feed(parts, "in", b"short")
    assert parts.task.commit_needed
    (committed,) = parts.task.offsets_to_commit().values()
    assert committed.offset == 1


def test_what_the_thread_wrote_when_it_owned_the_task_before_counts_no_more(
    workshop: Workshop,
) -> None:
    """Meanwhile others have written to the changelog, and that is restored."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to_table(store="T", key=STRING, value=STRING)
    task = workshop.task(builder.build(), "in").task
    place = TopicPartition("app-T-changelog", 1)
    task.stores.restorers()[place].restore_batch([b"k"], [b"v"], [1], [9])
    task.commit_begun()
    task.post_commit({}, {place: 4})
    assert task.stores.changelog_offsets() == {place: 9}


class PutIntoStore(Processor[str, str, None, None]):
    """Remembers the last value of each key."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("s").put(record.key, record.value)


def test_a_commit_flushes_the_caches_of_processors_and_a_standby_has_none(
    workshop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    """What a standby reads of its changelog must be seen once it is active again."""
    workshop.cache_bytes = 1 << 20
    builder = StreamsBuilder()
    store = Stores.key_value_builder(Stores.in_memory_key_value("s"), STRING, STRING)
    builder.add_state_store(store.with_caching(True))
    builder.stream("in", key=STRING, value=STRING).process(PutIntoStore, stores=("s",))
    task = (parts := workshop.task(builder.build(), "in")).task
    workshop.feed(parts, "in", b"v")
    assert workshop.written() == []
    task.prepare_commit()
    assert workshop.written() == [("app-s-changelog", b"v", 0)]
    assert not caplog.messages, "it is not taken for a circle of stores"
    task.commit_begun()
    task.post_commit({}, {})
    task.suspend()
    task.stand_by()
    assert task.stores.caches()["s"].statistics().entries == 0


def test_a_commit_logs_what_a_buffer_holds_back(workshop: Workshop) -> None:
    """Only what is still there: what came and went between two commits is never logged."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to_table(key=STRING, value=STRING).suppress(
        Suppressed.until_time_limit(timedelta(hours=1), BufferConfig.unbounded(), name="held")
    ).to_stream().to("out")
    task = (parts := workshop.task(builder.build(), "in")).task
    workshop.feed(parts, "in", b"v")
    changelog = "app-held-store-changelog"
    assert changelog not in {topic for topic, _, _ in workshop.written()}
    task.prepare_commit()
    assert changelog in {topic for topic, _, _ in workshop.written()}

"""Assembly of tasks: serdes and extractors from the config, sources by topic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support.tasks.task_setup import app_config, task_services

from millstream.errors import ConfigError, StreamsError
from millstream.processor.handlers import (
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
)
from millstream.processor.processor import Processor
from millstream.record import Record, TaskId, TopicPartition
from millstream.runtime.task.build_task import TaskBuilder
from millstream.serdes import LONG, STRING
from millstream.state.stores import Stores
from millstream.testing.driver_topics import CapturedRecord, CapturingCollector, RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.suppressed import BufferConfig, Suppressed
from millstream.topology.physical.topology import Topology


class TaskFactory:
    """Builds tasks and captures their output."""

    def __init__(self, folder: Path) -> None:
        self.collector = CapturingCollector()
        self._folder = folder
        self.cache_bytes = 0
        self.tasks: list[TaskBuilder] = []

    def task(
        self, topology: Topology, *topics: str, subtopology: int = 0, **settings: Any
    ) -> TaskBuilder:
        """Start a task of a sub-topology that reads partition 1 of some topics."""
        services = task_services(
            self._folder,
            self.collector,
            config=app_config(**settings),
            cache_bytes=self.cache_bytes,
        )
        places = frozenset(TopicPartition(topic, 1) for topic in topics)
        parts = TaskBuilder(
            topology._subtopologies()[subtopology], TaskId(subtopology, 1), places, services
        )
        parts.task.open_stores()
        parts.task.start({})
        self.tasks.append(parts)
        return parts

    def feed(self, parts: TaskBuilder, topic: str, value: bytes, timestamp: int = 0) -> None:
        """Process one record."""
        record = CapturedRecord(topic, b"k", value, timestamp, ())
        parts.task.add_records(TopicPartition(topic, 1), RawColumns.of(record, 0))
        while parts.task.buffered:
            parts.task.step(1)

    def written(self) -> list[tuple[str, bytes | None, int | None]]:
        return [(r.topic, r.value, r.timestamp) for r in self.collector.take()]


@pytest.fixture
def factory(tmp_path: Path) -> Iterator[TaskFactory]:
    factory = TaskFactory(tmp_path)
    yield factory
    for parts in factory.tasks:
        parts.task.close(clean=False)


def extract_1000(record: Any, partition_time: int) -> int:
    return 1_000


def repartitioning() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.repartition(name="rp").to("out", key=STRING, value=STRING)
    return builder.build()


def test_records_of_a_repartition_topic_keep_their_timestamp(factory: TaskFactory) -> None:
    """The configured extractor only applies to the input of the application."""
    settings: dict[str, Any] = {"default_timestamp_extractor": extract_1000}
    first = factory.task(repartitioning(), "in", **settings)
    factory.feed(first, "in", b"v", 5)
    assert factory.written() == [("app-rp-repartition", b"v", 1_000)]
    second = factory.task(repartitioning(), "app-rp-repartition", subtopology=1, **settings)
    factory.feed(second, "app-rp-repartition", b"v", 7)
    assert factory.written() == [("out", b"v", 7)]


def test_extractor_of_a_source_overrides_the_configured_one(factory: TaskFactory) -> None:
    builder = StreamsBuilder()
    stream = builder.stream(
        "in", key=STRING, value=STRING, timestamp_extractor=lambda record, _: record.timestamp + 1
    )
    stream.to("out", key=STRING, value=STRING)
    parts = factory.task(builder.build(), "in", default_timestamp_extractor=extract_1000)
    factory.feed(parts, "in", b"v", 5)
    assert factory.written() == [("out", b"v", 6)]


def test_error_about_a_missing_serde_names_the_node(factory: TaskFactory) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING).to("out", key=STRING, value=STRING)
    with pytest.raises(ConfigError, match="no value serde") as raised:
        factory.task(builder.build(), "in")
    assert raised.value.node == "KSTREAM-SOURCE-0000000000"
    parts = factory.task(builder.build(), "in", default_value_serde=STRING)
    factory.feed(parts, "in", b"v")
    assert factory.written() == [("out", b"v", 0)]


def test_topics_that_match_a_pattern_can_be_added(factory: TaskFactory) -> None:
    """The named source keeps its own topic; adding a topic twice has no effect."""
    builder = StreamsBuilder()
    named = builder.stream("log", key=STRING, value=STRING)
    named.map_values(lambda value: value + " by name").to("out", key=STRING, value=STRING)
    matched = builder.stream(re.compile("log-.*"), key=STRING, value=STRING)
    matched.merge(named).to("out", key=STRING, value=STRING)
    parts = factory.task(builder.build(), "log")
    for topic in ("log-a", "log-b", "log-a"):
        parts.add_partition(TopicPartition(topic, 1))
    assert parts.task.partitions == {("log", 1), ("log-a", 1), ("log-b", 1)}
    factory.feed(parts, "log-b", b"b")
    factory.feed(parts, "log", b"n")
    assert [value for _, value, _ in factory.written()] == [b"b", b"n by name", b"n"]


def no_topic(key: Any, value: Any, context: Any) -> Any:
    return None


def test_sink_calls_the_handler_unless_it_follows_a_source(factory: TaskFactory) -> None:
    """Like Kafka Streams: the failure counts as that of the processor that forwarded the record."""
    settings: dict[str, Any] = {
        "processing_exception_handler": LogAndContinueProcessingExceptionHandler()
    }
    builder = StreamsBuilder()
    stream = builder.stream("in", key=STRING, value=STRING)
    stream.peek(lambda k, v: None).to(no_topic, key=STRING, value=STRING)
    parts = factory.task(builder.build(), "in", **settings)
    factory.feed(parts, "in", b"v")
    assert parts.drops.total == 1
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to(no_topic, key=STRING, value=STRING)
    parts = factory.task(builder.build(), "in", **settings)
    with pytest.raises(StreamsError, match="topic function"):
        factory.feed(parts, "in", b"v")


def test_position_of_a_source_table_follows_the_records_read(
    factory: TaskFactory,
) -> None:
    """The topic is the changelog: a restart continues behind it, and nothing is logged twice."""
    builder = StreamsBuilder(optimize="reuse.ktable.source.topics")
    builder.table("t", key=STRING, value=STRING, store="T").to_stream().to("out")
    parts = factory.task(builder.build(), "t")
    task, place = parts.task, TopicPartition("t", 1)
    factory.feed(parts, "t", b"v")
    task.prepare_commit()
    task.on_commit_started()
    task.post_commit(task.offsets_to_commit(), factory.collector.acked_offsets())
    assert task.stores.changelog_offsets() == {place: 0}
    assert task.stores.restorers()[place].start_offset() == 1
    assert factory.written() == [("out", b"v", 0)]


def test_skipped_records_are_committed(factory: TaskFactory) -> None:
    """Otherwise a restart would read and skip the same records again."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=LONG).to("out", key=STRING, value=LONG)
    skipping = LogAndContinueExceptionHandler()
    topology = builder.build()
    parts = factory.task(topology, "in", deserialization_exception_handler=skipping)
    factory.feed(parts, "in", b"short")
    assert parts.task.commit_needed
    (committed,) = parts.task.offsets_to_commit().values()
    assert committed.offset == 1


def test_writes_of_a_previous_ownership_do_not_count(
    factory: TaskFactory,
) -> None:
    """Other threads have written to the changelog since, and the task has restored their
    records."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to_table(store="T", key=STRING, value=STRING)
    task = factory.task(builder.build(), "in").task
    place = TopicPartition("app-T-changelog", 1)
    task.stores.restorers()[place].restore_batch([b"k"], [b"v"], [1], [9])
    task.on_commit_started()
    task.post_commit({}, {place: 4})
    assert task.stores.changelog_offsets() == {place: 9}


class PutIntoStore(Processor[str, str, None, None]):
    """Stores the last value of each key."""

    def process(self, record: Record[str, str]) -> None:
        self.context.get_state_store("s").put(record.key, record.value)


def test_a_commit_flushes_the_caches_of_processors_and_a_standby_has_none(
    factory: TaskFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Changelog records that a standby has read must be visible once its task is active: a cache
    could hide them."""
    factory.cache_bytes = 1 << 20
    builder = StreamsBuilder()
    store = Stores.key_value_builder(Stores.in_memory_key_value("s"), STRING, STRING)
    builder.add_state_store(store.with_caching(True))
    builder.stream("in", key=STRING, value=STRING).process(PutIntoStore, stores=("s",))
    task = (parts := factory.task(builder.build(), "in")).task
    factory.feed(parts, "in", b"v")
    assert factory.written() == []
    task.prepare_commit()
    assert factory.written() == [("app-s-changelog", b"v", 0)]
    assert not caplog.messages, "there is no warning about a cycle of stores"
    task.on_commit_started()
    task.post_commit({}, {})
    task.suspend()
    task.convert_to_standby()
    assert task.stores.caches()["s"].statistics().entries == 0


def test_commit_logs_the_content_of_a_buffer(factory: TaskFactory) -> None:
    """Records that were added and removed between two commits are never logged."""
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to_table(key=STRING, value=STRING).suppress(
        Suppressed.until_time_limit(timedelta(hours=1), BufferConfig.unbounded(), name="held")
    ).to_stream().to("out")
    task = (parts := factory.task(builder.build(), "in")).task
    factory.feed(parts, "in", b"v")
    changelog = "app-held-store-changelog"
    assert changelog not in {topic for topic, _, _ in factory.written()}
    task.prepare_commit()
    assert changelog in {topic for topic, _, _ in factory.written()}

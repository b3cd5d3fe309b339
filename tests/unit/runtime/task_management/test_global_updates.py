"""Global stores: complete before processing starts, kept across restarts, never half-restored."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from millstream.clock import ManualClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    LockError,
    MissingSourceTopicError,
    OffsetOutOfRangeError,
    ProcessingError,
    SerializationError,
    StreamsError,
    TaskCorruptedError,
)
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING
from millstream.processor.processor import Processor
from millstream.record import Record, TopicPartition
from millstream.runtime.task.node_context import DroppedRecords
from millstream.runtime.task_management.global_store_updater import GlobalStoreUpdater
from millstream.runtime.task_management.global_stores import GLOBAL_TASK, GlobalStores
from millstream.runtime.thread_control import RestoreEvent
from millstream.serdes import LONG, STRING
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.stores import Stores
from millstream.topology.dsl.builder import StreamsBuilder

TABLE, COUNTS = "table-topic", "counts-topic"
CONFIG = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")


class Cluster:
    """Topics, and a consumer that returns two records of each partition per poll."""

    def __init__(self, **partitions: int) -> None:
        self.logs: dict[TopicPartition, list[tuple[bytes, bytes | None]]] = {}
        self.first: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.unavailable = False
        self.reads: list[TopicPartition] = []
        for topic, count in partitions.items():
            self.grow(topic.replace("_", "-"), count)

    def grow(self, topic: str, count: int) -> None:
        for number in range(count):
            self.logs.setdefault(TopicPartition(topic, number), [])

    def write(self, topic: str, partition: int, **values: str | int | None) -> None:
        log = self.logs[TopicPartition(topic, partition)]
        for key, value in values.items():
            serde: Any = LONG if isinstance(value, int) else STRING
            log.append((key.encode(), serde.serialize(topic, value)))

    def truncate(self, place: TopicPartition, first: int) -> None:
        """Delete the records before an offset."""
        self.first[place] = first

    # the admin client
    def partition_counts(self, topics: Collection[str], timeout_ms: int) -> dict[str, int]:
        if self.unavailable:
            raise BrokerUnavailableError("no broker answers")
        counts = {topic: sum(place.topic == topic for place in self.logs) for topic in topics}
        return {topic: count for topic, count in counts.items() if count}

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        return {place: len(self.logs[place]) for place in partitions}

    # the consumer
    def assign(self, offsets: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        assert not self.positions.keys() & offsets.keys()
        for place, offset in offsets.items():
            self.reads.append(place)
            beginning = self.first.get(place, 0)
            self.positions[place] = beginning if offset == OFFSET_BEGINNING else offset

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            del self.positions[place]

    def position(self, place: TopicPartition) -> int | None:
        return self.positions[place]

    def poll_columns(self, limit: int, timeout_ms: int) -> dict[TopicPartition, RecordColumns]:
        lost = {p: offset for p, offset in self.positions.items() if offset < self.first.get(p, 0)}
        if lost:
            raise OffsetOutOfRangeError("not in the log", offsets=lost)
        fetched = {}
        for place, start in self.positions.items():
            records = self.logs[place][start : start + 2]
            if records:
                end = self.positions[place] = start + len(records)
                keys, values = map(list, zip(*records, strict=True))
                times = [1_000] * len(records)
                fetched[place] = RecordColumns(keys, values, times, range(start, end), None, None)
        return fetched


class Count(Processor[str, int, None, None]):
    """Adds up numbers; rejects negative ones."""

    def process(self, record: Record[str, int]) -> None:
        if record.value < 0:
            raise ValueError("negative number")
        counts = self.context.get_state_store("counts")
        counts.put(record.key, (counts.get(record.key) or 0) + record.value)


class Application:
    """The global stores of a thread: a table on disk and a store in memory."""

    def __init__(self, cluster: Cluster, folder: Path, *, counts_on_disk: bool) -> None:
        builder = StreamsBuilder()
        builder.global_table(TABLE, key=STRING, value=STRING, store="countries")
        kind = Stores.persistent_key_value if counts_on_disk else Stores.in_memory_key_value
        counts = Stores.key_value_builder(kind("counts"), STRING, LONG)
        builder.add_global_store(counts, COUNTS, Count, key=STRING, value=LONG)
        self.clock = ManualClock()
        self.events: list[RestoreEvent] = []
        directory = StateDirectory(folder, "app").global_directory(1)
        self.stores = GlobalStores(
            builder.build().global_stores.values(),
            CONFIG,
            self.clock,
            directory.path,
            DroppedRecords(GLOBAL_TASK),
        )
        consumer: Any = cluster
        self.updates = GlobalStoreUpdater(
            self.stores,
            consumer,
            cluster,
            directory,
            self.clock,
            self.events.append,
            timeout_ms=10_000,
            max_records=100,
            metadata_max_age_ms=300_000,
        )

    def catch_up(self) -> Application:
        for _ in range(100):
            self.updates.step(0)
            if self.updates.caught_up:
                return self
            self.clock.advance(100)
        raise AssertionError("did not catch up")

    def all(self, store: str) -> dict[str, Any]:
        with self.stores.store(store).all() as items:
            return {key: getattr(value, "value", value) for key, value in items}

    def events_of_kind(self, kind: str) -> list[tuple[TopicPartition, int, int]]:
        return [
            (e.topic_partition, e.offset, e.records) for e in self.events if e.step.value == kind
        ]


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(table_topic=2, counts_topic=1)
    cluster.write(TABLE, 0, a="1", b="2", c="3")
    cluster.write(TABLE, 1, d="4")
    cluster.write(COUNTS, 0, x=5, y=6)
    return cluster


@pytest.fixture
def start(cluster: Cluster, tmp_path: Path) -> Iterator[Any]:
    """Return a function that starts the application, also repeatedly."""
    started: list[Application] = []

    def start(*, counts_on_disk: bool = False) -> Application:
        for application in started:
            application.updates.close()
        started.append(Application(cluster, tmp_path, counts_on_disk=counts_on_disk))
        return started[-1]

    yield start
    for application in started:
        application.updates.close()


def place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, partition)


def test_updater_reads_everything_before_tasks_start_and_then_follows(
    cluster: Cluster, start: Any
) -> None:
    application = start()
    application.updates.step(0)
    assert application.updates.is_reading
    assert not application.updates.caught_up
    application.catch_up()
    assert not application.updates.is_reading
    assert application.all("countries") == {"a": "1", "b": "2", "c": "3", "d": "4"}
    assert application.all("counts") == {"x": 5, "y": 6}
    cluster.write(TABLE, 0, a=None, e="5")
    cluster.write(COUNTS, 0, x=1)
    application.updates.step(0)
    assert application.all("countries") == {"b": "2", "c": "3", "d": "4", "e": "5"}
    assert application.all("counts") == {"x": 6, "y": 6}
    # Later records are not part of the restoration.
    assert sum(records for _, _, records in application.events_of_kind("batch")) == 6
    assert {offset for _, offset, _ in application.events_of_kind("start")} == {0}
    assert sorted(application.events_of_kind("end")) == [
        (place(COUNTS, 0), 2, 2),
        (place(TABLE, 0), 3, 3),
        (place(TABLE, 1), 1, 1),
    ]


def test_queries_only_find_complete_stores(cluster: Cluster, start: Any) -> None:
    """Not before the first restoration has ended, and not while a store is rebuilt."""
    application = start()
    while not application.updates.is_reading:
        application.updates.step(0)
    assert application.all("countries") == {"a": "1", "b": "2", "d": "4"}
    assert application.updates.find("countries") is None
    application.catch_up()
    assert application.updates.find("countries") is application.stores.find("countries")
    assert application.updates.find("unknown") is None
    application.updates.rebuild(TaskCorruptedError("bad block.", task_ids=[GLOBAL_TASK]))
    while not application.updates.is_reading:
        assert application.updates.find("countries") is None
        application.updates.step(0)
    assert application.updates.find("countries") is None
    application.catch_up()
    assert application.updates.find("countries") is not None


def test_restart_continues_at_the_position_of_the_copy_on_disk(
    cluster: Cluster, start: Any
) -> None:
    start().catch_up()
    cluster.write(TABLE, 1, d="new")
    restarted = start().catch_up()
    assert sorted(restarted.events_of_kind("start")) == [
        (place(COUNTS, 0), 0, 0),
        (place(TABLE, 0), 3, 0),
        (place(TABLE, 1), 1, 0),
    ]
    assert sorted(restarted.events_of_kind("end")) == [
        (place(COUNTS, 0), 2, 2),
        (place(TABLE, 0), 3, 0),
        (place(TABLE, 1), 2, 1),
    ]
    assert restarted.all("countries") == {"a": "1", "b": "2", "c": "3", "d": "new"}


def lose_records(cluster: Cluster) -> None:
    """Delete records that the copy has not read yet."""
    cluster.write(TABLE, 0, a="lost", f="6")
    cluster.truncate(place(TABLE, 0), 4)


def recreate_topic(cluster: Cluster) -> None:
    cluster.logs[place(TABLE, 0)] = []
    cluster.write(TABLE, 0, f="6")


@pytest.mark.parametrize("change", [lose_records, recreate_topic])
def test_copy_that_does_not_match_its_topic_is_read_again(
    cluster: Cluster, start: Any, change: Any
) -> None:
    start().catch_up()
    change(cluster)
    application = start()
    with pytest.raises(TaskCorruptedError, match="3 of table-topic-0") as raised:
        application.catch_up()
    assert raised.value.task_ids == {GLOBAL_TASK}
    application.updates.rebuild(raised.value)
    assert not application.updates.caught_up
    application.catch_up()
    assert application.all("countries") == {"d": "4", "f": "6"}


def test_out_of_range_while_following(cluster: Cluster, start: Any) -> None:
    application = start().catch_up()
    lose_records(cluster)
    with pytest.raises(TaskCorruptedError) as raised:
        application.updates.step(0)
    application.updates.rebuild(raised.value)
    application.catch_up()
    assert application.all("countries") == {"d": "4", "f": "6"}
    assert application.all("counts") == {"x": 5, "y": 6}


@pytest.mark.parametrize("failing", ["a store", "the consumer"])
def test_copies_are_rebuilt_although_they_cannot_be_closed(
    cluster: Cluster, start: Any, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """Closing corrupted files can fail. Detects copies that are then neither closed nor read
    again."""
    application = start().catch_up()
    opened = application.stores.find("countries")
    close, unassign = opened.base.close, cluster.unassign

    def fail(*_: object) -> None:
        close() if failing == "a store" else unassign(*_)  # type: ignore[arg-type]
        raise StreamsError("close failed")

    target, name = (opened.base, "close") if failing == "a store" else (cluster, "unassign")
    monkeypatch.setattr(target, name, fail)
    application.updates.rebuild(TaskCorruptedError("bad block", task_ids=[GLOBAL_TASK]))
    monkeypatch.undo()
    application.catch_up()
    assert application.all("countries") == {"a": "1", "b": "2", "c": "3", "d": "4"}
    assert set(cluster.reads) >= set(cluster.positions)


def test_copies_that_are_corrupted_repeatedly_end_the_thread(cluster: Cluster, start: Any) -> None:
    application = start()
    corruption = TaskCorruptedError("bad block.", task_ids=[GLOBAL_TASK])
    for _ in range(3):
        application.updates.rebuild(corruption)
    with pytest.raises(StreamsError, match=r"bad block\. Check the disk"):
        application.updates.rebuild(corruption)


def test_updater_waits_for_a_directory_in_use(cluster: Cluster, tmp_path: Path, start: Any) -> None:
    directory = StateDirectory(tmp_path, "app").global_directory(1)
    directory.lock()
    application = start()
    for _ in range(20):
        application.updates.step(0)
        application.clock.advance(1_000)
    assert not application.updates.caught_up
    directory.unlock()
    application.clock.advance(500)
    application.catch_up()


def test_wait_for_a_directory_in_use_has_a_timeout(tmp_path: Path, start: Any) -> None:
    directory = StateDirectory(tmp_path, "app").global_directory(1)
    directory.lock()
    application = start()
    application.updates.step(0)
    application.clock.advance(30_000)
    message = rf"Gave up opening the global stores .*/global/1/\.lock is .* process {os.getpid()} "
    with pytest.raises(LockError, match=message):
        application.updates.step(0)
    directory.unlock()


def test_missing_topic_is_reported_soon(cluster: Cluster, start: Any) -> None:
    del cluster.logs[place(COUNTS, 0)]
    application = start()
    began_ms = application.clock.monotonic_ms()
    with pytest.raises(MissingSourceTopicError, match="'counts' is a copy of the topic 'counts-t"):
        application.catch_up()
    assert application.clock.monotonic_ms() - began_ms >= 5_000


def test_unavailable_cluster_is_retried(cluster: Cluster, start: Any) -> None:
    application = start()
    cluster.unavailable = True
    application.updates.step(0)
    cluster.unavailable = False
    application.clock.advance(100)
    application.catch_up()


def test_new_partitions_are_read_as_well(cluster: Cluster, start: Any) -> None:
    application = start().catch_up()
    cluster.grow(TABLE, 3)
    cluster.write(TABLE, 2, n="new")
    application.updates.step(0)
    cluster.unavailable = True
    application.clock.advance(300_000)
    application.updates.step(0)
    cluster.unavailable = False
    application.clock.advance(300_000)
    for _ in range(2):
        application.updates.step(0)
    assert application.all("countries")["n"] == "new"
    assert cluster.reads.count(place(TABLE, 2)) == 1


def test_error_names_the_store_and_its_batch_is_discarded(cluster: Cluster, start: Any) -> None:
    start(counts_on_disk=True).catch_up()
    cluster.write(COUNTS, 0, x=1, z=-1)
    for _ in range(2):
        application = start(counts_on_disk=True)
        with pytest.raises(ProcessingError) as raised:
            application.catch_up()
        text = str(raised.value)
        assert "Global store 'counts' cannot process a record." in text
        assert "processing_exception_handler_global_enabled=True" in text
        failed = raised.value
        assert (failed.topic, failed.partition, failed.offset) == (COUNTS, 0, 3)
        assert (place(COUNTS, 0), 2, 0) in application.events_of_kind("start")
        # If the first failure had left half of its batch, this would be 7.
        assert application.all("counts") == {"x": 6, "y": 6}


def test_error_about_an_unreadable_record_names_the_store(cluster: Cluster, start: Any) -> None:
    cluster.logs[place(COUNTS, 0)].append((b"bad", b"no number"))
    with pytest.raises(SerializationError, match="Global store 'counts'") as raised:
        start().catch_up()
    assert (raised.value.topic, raised.value.offset) == (COUNTS, 2)


def test_slow_processors_receive_few_records_at_once(start: Any, cluster: Cluster) -> None:
    application = start().catch_up()
    limits: list[int] = []
    poll = cluster.poll_columns

    def recording_poll(limit: int, timeout_ms: int) -> dict[TopicPartition, RecordColumns]:
        limits.append(limit)
        return poll(limit, timeout_ms)

    cluster.poll_columns = recording_poll  # type: ignore[method-assign]
    update = application.stores.update

    def slow_update(partition: TopicPartition, records: Any) -> None:
        application.clock.advance(1_000)
        update(partition, records)

    application.stores.update = slow_update
    cluster.write(TABLE, 0, a="5", b="6")
    for _ in range(2):
        application.updates.step(0)
    assert limits == [100, 1]


def test_clean_up_deletes_copies_but_none_in_use(
    cluster: Cluster, tmp_path: Path, start: Any
) -> None:
    application = start().catch_up()
    state = StateDirectory(tmp_path, "app")
    with pytest.raises(LockError, match=r"global/1/\.lock"):
        state.clean_up()
    assert application.all("countries")
    application.updates.close()
    state.clean_up()
    assert not state.path.exists()

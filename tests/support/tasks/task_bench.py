"""The tasks of a stream thread, with real stores on real disks and an in-memory Kafka."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from millstream.clock import ManualClock
from millstream.errors import BrokerUnavailableError, OffsetOutOfRangeError
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.kafka.clients.record_consumer import OFFSET_BEGINNING
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.task.build_task import build_task
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.task_management.restoration import StateRestorer
from millstream.runtime.task_management.task_manager import OffsetSums, TaskManager
from millstream.runtime.thread_control import RestoreEvent
from millstream.serdes import STRING
from millstream.testing.driver_topics import RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.streams_and_tables import KStream
from millstream.topology.options.materialized import Materialized
from support.tasks.concurrent_calls import ManualCalls
from support.tasks.task_setup import commit_task, task_services

STORE: Final = "counts"


@dataclass
class Topic:
    """One partition; deleted and compacted records are missing."""

    records: list[tuple[int, bytes, bytes | None, int]] = field(default_factory=list)
    first: int = 0
    end: int = 0

    def append(self, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.records.append((self.end, key, value, timestamp))
        self.end += 1

    def truncate(self, first: int) -> None:
        """Delete the records before an offset, as retention does."""
        self.first = first
        self.records = [record for record in self.records if record[0] >= first]


class Cluster:
    """Partitions, and a consumer that reads changelogs.

    Args:
        topics: shared by several consumers.
    """

    def __init__(self, topics: dict[TopicPartition, Topic] | None = None) -> None:
        self.topics: dict[TopicPartition, Topic] = {} if topics is None else topics
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.is_down = False
        #: Records of a partition per poll.
        self.batch = 2

    def topic(self, place: TopicPartition) -> Topic:
        return self.topics.setdefault(place, Topic())

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        self.answer()
        return {place: self.topic(place).end for place in partitions}

    def assign(self, offsets: Mapping[TopicPartition, int], timeout_ms: int = 0) -> None:
        self.answer()
        assert not self.positions.keys() & offsets.keys()
        for place, offset in offsets.items():
            first = self.topic(place).first
            self.positions[place] = first if offset == OFFSET_BEGINNING else offset

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            self.positions.pop(place, None)
            self.paused.discard(place)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused -= set(partitions)

    def position(self, place: TopicPartition) -> int | None:
        return self.positions[place]

    def poll_columns(self, most: int, timeout_ms: int) -> dict[TopicPartition, RecordColumns]:
        found: dict[TopicPartition, RecordColumns] = {}
        for place, position in self.positions.items():
            topic = self.topic(place)
            if not topic.first <= position <= topic.end:
                raise OffsetOutOfRangeError("no such offset", offsets={place: position})
            begin = bisect_left(topic.records, (position,))
            records = topic.records[begin : begin + self.batch]
            if records and place not in self.paused:
                offsets, keys, values, times = map(list, zip(*records, strict=True))
                found[place] = RecordColumns(keys, values, times, offsets, None, None)
                self.positions[place] = offsets[-1] + 1
            elif not records:
                self.positions[place] = topic.end
        return found

    def answer(self) -> None:
        if self.is_down:
            raise BrokerUnavailableError("no broker answers")


class _Main:
    """The main consumer, reduced to its assignment, and the group's offsets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        #: The next offset of each partition.
        self.assigned: dict[TopicPartition, int] = {}
        self.group: dict[TopicPartition, CommitOffset | None] = {}
        self.expected: list[frozenset[TopicPartition]] = []
        #: Whether the broker has records for its partitions.
        self.has_input = True
        self.epochs: dict[TopicPartition, int] = {}

    def assign(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout_ms: int = 0,
        leader_epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        assert not self.assigned.keys() & offsets.keys()
        self.assigned |= offsets
        self.epochs |= leader_epochs or {}

    def position(self, partition: TopicPartition) -> int | None:
        return None

    def unassign(self, partitions: Iterable[TopicPartition]) -> None:
        for place in partitions:
            del self.assigned[place]

    def committed(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, CommitOffset | None]:
        return {place: self.group.get(place) for place in partitions}

    def starts(
        self,
        partitions: Collection[TopicPartition],
        committed: Mapping[TopicPartition, CommitOffset | None],
        topic_ids: Mapping[str, str],
    ) -> Mapping[TopicPartition, int]:
        known = {place: committed[place] for place in partitions}
        return {place: 0 if c is None else c.offset for place, c in known.items()}

    def have_records(self, partitions: Collection[TopicPartition]) -> bool:
        return self.has_input

    def topic_ids(self, partitions: Collection[TopicPartition]) -> Mapping[str, str]:
        return {}

    def at_end(self, place: TopicPartition) -> bool:
        return True

    def pause(self, partitions: Iterable[TopicPartition]) -> None: ...

    def resume(self, partitions: Iterable[TopicPartition]) -> None: ...

    def note_end_offsets(self, partitions: Collection[TopicPartition]) -> None:
        self._cluster.answer()
        self.expected.append(frozenset(partitions))


class _Changelogs:
    """The changelogs of a task's stores."""

    def __init__(self, bench: TaskBench, task_id: TaskId, topics: Mapping[str, str]) -> None:
        self._bench = bench
        self._partition = task_id.partition
        self._topics = topics

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        place = TopicPartition(self._topics[store_name], self._partition)
        topic = self._bench.cluster.topic(place)
        for key, value, timestamp in zip(keys, values, timestamps or [], strict=True):
            topic.append(key, value, timestamp)
        self._bench.acked[place] = topic.end - 1


class _NoOutputs:
    """A collector for tasks without output."""

    def partition_count(self, topic: str) -> int:
        return 1

    def send_many(self, *arguments: Any) -> None: ...
    def send_with_handler(self, *arguments: Any) -> None: ...


class TaskBench:
    """A thread's tasks that count the records of each key.

    Args:
        cluster: shared by several such threads; a new one by default.
        build: adds other operations on the topic.
    """

    def __init__(
        self,
        folder: Path,
        cluster: Cluster | None = None,
        kind: Literal["rocksdb", "in_memory"] = "rocksdb",
        build: Callable[[KStream[str, str]], object] | None = None,
    ) -> None:
        #: Concurrent calls of all tasks.
        self.held = ManualCalls()
        self.clock = ManualClock(1_000)
        self.cluster = cluster or Cluster()
        self.main = _Main(self.cluster)
        self.acked: dict[TopicPartition, int] = {}
        self.events: list[RestoreEvent] = []
        self.made: list[StreamTask] = []
        #: The restore limits of source topics that serve as changelogs.
        self.limits: dict[TopicPartition, int] = {}
        builder = StreamsBuilder()
        stream = builder.stream("in", key=STRING, value=STRING)
        if build is None:
            stream.group_by_key().count(store=Materialized(STORE, kind=kind, key=STRING))
        else:
            build(stream)
        (part,) = builder.build()._subtopologies()
        services = task_services(
            folder,
            _NoOutputs(),
            self.clock,
            changelog_writer=lambda task_id, topics: _Changelogs(self, task_id, topics),
            make_runners=lambda: self.held,
        )

        self.directory = services.directory

        def create(task_id: TaskId, partitions: frozenset[TopicPartition]) -> StreamTask:
            self.made.append(build_task(part, task_id, partitions, services))
            return self.made[-1]

        kafka: Any = self.cluster
        main: Any = self.main
        self.tasks = TaskManager(
            create,
            StateRestorer(
                kafka, kafka, self.clock, 10_000, self.events.append, lambda places: self.limits
            ),
            main,
            main,
            self.clock,
            timeout_ms=10_000,
            max_buffered=1_000,
            offset_sums=OffsetSums(self.directory),
        )

    def assign(self, active: Sequence[int] = (), standby: Sequence[int] = ()) -> None:
        """Assign the tasks of these partitions."""
        self.tasks.assign(
            {TaskId(0, n): frozenset({source(n)}) for n in active},
            {TaskId(0, n): frozenset({source(n)}) for n in standby},
        )

    def task(self, partition: int = 0) -> StreamTask:
        (task,) = [task for task in self.tasks.all if task.task_id == TaskId(0, partition)]
        return task

    def advance(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.tasks.advance(0)

    def advance_until(self, is_done: Callable[[], bool]) -> None:
        for _ in range(100):
            if is_done():
                return
            self.advance()
            self.clock.advance(100)
        raise AssertionError("not done after 100 rounds")

    def run_all(self) -> None:
        """Advance until all active tasks are running."""
        self.advance_until(lambda: self.tasks.all_running)

    def feed(self, *keys: str, partition: int = 0, commit: bool = True) -> None:
        """Let a running task count these keys."""
        task = self.task(partition)
        place = source(partition)
        start = self.main.assigned[place]
        self.main.assigned[place] = start + len(keys)
        offsets = list(range(start, start + len(keys)))
        encoded: list[bytes | None] = [key.encode() for key in keys]
        times = [1_000 + offset for offset in offsets]
        task.add_records(place, RawColumns(encoded, encoded, times, offsets, None))
        while task.buffered:
            self.tasks.step(task, 1_000)
        if commit:
            self.commit()

    def commit(self) -> None:
        for task in self.tasks.running:
            task.prepare_commit()
            self.main.group |= commit_task(task, self.acked)

    def counts(self, partition: int = 0) -> dict[str, int]:
        """The content of a task's store, active or standby."""
        store = self.task(partition).stores.store(STORE)
        return {key: value.value for key, value in store.all()}

    def reached(self, partition: int = 0) -> int | None:
        """The last changelog offset that a task's store reflects."""
        return self.task(partition).stores.changelog_offsets()[changelog(partition)]

    def restore_steps(self) -> list[str]:
        """The kinds of the restore events so far, except for those of batches."""
        return [event.step.value for event in self.events if not event.step.value.endswith("batch")]


def source(partition: int = 0) -> TopicPartition:
    """A source partition."""
    return TopicPartition("in", partition)


def changelog(partition: int = 0) -> TopicPartition:
    """The changelog partition of its counts."""
    return TopicPartition(f"app-{STORE}-changelog", partition)

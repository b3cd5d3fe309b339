"""Commits of two tasks of one thread: everything is real except for the cluster."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream.clock import ManualClock
from millstream.kafka.clients.producer_errors import Changelog
from millstream.kafka.membership.member_events import CommitOffset
from millstream.record import Headers, TopicPartition
from millstream.runtime.loop.at_least_once import AtLeastOnce
from millstream.runtime.loop.commits import TaskCommitter
from millstream.runtime.task.collector import KafkaRecordCollector
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import STRING
from millstream.state.storage.overlay import UncommittedBudget
from millstream.state.storage.storages import Storages
from millstream.state.storage.write_check import WriteCheck
from millstream.testing.driver_topics import RawColumns
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology
from support.tasks.task_setup import app_config, start_task, task_services

STORES = ("ids", "copies")
INPUTS = ("in", "other")
EPOCH = 7


class Log:
    """A producer that writes its records to their topics when it is flushed."""

    def __init__(self) -> None:
        self.on_wait: Callable[[], None] = lambda: None
        self.unflushed_records = 0
        self.sent: list[tuple[TopicPartition, bytes | None, bytes | None]] = []
        self.written: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]]
        self.written = defaultdict(list)
        self._tracked: set[str] = set()

    def track(self, topic: str, changelog: Changelog | None = None) -> None:
        self._tracked.add(topic)

    def acked_offsets(self) -> dict[TopicPartition, int]:
        return {
            place: len(records) - 1
            for place, records in self.written.items()
            if place.topic in self._tracked
        }

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        numbers = partitions if isinstance(partitions, Sequence) else [partitions] * len(keys)
        self.sent += [
            (TopicPartition(topic, number or 0), key, value)
            for number, key, value in zip(numbers, keys, values, strict=True)
        ]

    def send_with_handler(self, *columns: Any) -> None:
        """Like `send_many`: no write fails here, so the handler is ignored."""
        self.send_many(*columns[:-1])

    def send_lingering(self) -> None: ...

    def flush(self, timeout_ms: int) -> None:
        for place, key, value in self.sent:
            self.written[place].append((key, value))
        self.sent.clear()

    def purge(self) -> None:
        self.sent.clear()

    def close(self) -> None: ...

    def last(self, place: TopicPartition) -> dict[bytes | None, bytes | None]:
        """The last value of each key in a partition."""
        return dict(self.written[place])


class Group:
    """Stores committed offsets and calls `look` at each commit."""

    def __init__(self) -> None:
        self.committed: dict[TopicPartition, CommitOffset] = {}
        self.times = 0
        self.look: Callable[[], None] = lambda: None
        self.failure: Exception | None = None
        self.answer: Answer | None = None

    def commit(self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int) -> None:
        self.times += 1
        self.look()
        if self.failure is not None:
            raise self.failure
        self.committed |= offsets

    def begin_commit(
        self, offsets: Mapping[TopicPartition, CommitOffset], timeout_ms: int
    ) -> Answer:
        self.answer = Answer(lambda: self.commit(offsets, timeout_ms))
        return self.answer

    def progress(self) -> None: ...


class Answer:
    """The pending answer to an offset commit."""

    def __init__(self, commit: Callable[[], None]) -> None:
        self._commit = commit
        self.is_done = False
        self.waited_ms: int | None = None

    def result(self, within_ms: int | None = None) -> None:
        self.waited_ms = within_ms
        self._commit()


class Bench:
    """Two tasks of one thread; each concatenates its key's values from two topics in two stores.

    Args:
        logged: whether the stores have changelogs.
    """

    def __init__(
        self,
        folder: Path,
        *,
        logged: bool = True,
        topology: Callable[..., Topology] | None = None,
        uncommitted: UncommittedBudget | None = None,
        storages: Storages | None = None,
        **settings: Any,
    ) -> None:
        self._topology = (topology or collecting)(logged=logged)
        check = WriteCheck()
        self.clock = ManualClock(1_000)
        self.log = Log()
        self.group = Group()
        admin: Any = _Admin()
        collector = KafkaRecordCollector(self.log, admin, self.clock, 60_000, 0)
        self._services = task_services(
            folder,
            collector,
            self.clock,
            app_config(**settings),
            1 << 20,
            uncommitted=uncommitted or UncommittedBudget(),
            storages=storages,
            write_check=check,
        )
        self.commits = TaskCommitter(
            AtLeastOnce(self.log, self.group, self.clock, 0, 10_000, check.flushed),
            self.log,
            self.clock,
        )
        self._ends: dict[TopicPartition, int] = defaultdict(int)
        self.tasks = [self.start(number) for number in (0, 1)]

    def start(self, number: int) -> StreamTask:
        """Start a task with the state on disk."""
        (part,) = self._topology._subtopologies()
        ids = {topic: f"id of {topic}" for topic in INPUTS}
        return start_task(part, self._services, number, topic_ids=ids)

    def feed(self, task: StreamTask, topic: str, *values: str) -> None:
        """Let a task process records of one key."""
        place = TopicPartition(topic, task.task_id.partition)
        start = self._ends[place]
        self._ends[place] += len(values)
        offsets = list(range(start, start + len(values)))
        columns = RawColumns(
            [key_of(task.task_id.partition)] * len(values),
            [value.encode() for value in values],
            [1_000 + offset for offset in offsets],
            offsets,
            None,
            EPOCH,
        )
        task.add_records(place, columns)
        while task.buffered:
            task.step(1_000)

    def commit(self) -> dict[TopicPartition, CommitOffset]:
        return self.commits.commit(self.tasks)

    def commit_soon(self) -> None:
        """Commit without waiting for the group's answer."""
        self.commits.commit(self.tasks, asynchronous=True)

    def answer(self) -> None:
        """Let the group answer, and the thread complete the commit."""
        assert self.group.answer is not None
        self.group.answer.is_done = True
        self.commits.finish_pending()

    def written(self, number: int) -> list[bytes | None]:
        """The last values written for a task's key: the output and the changelog of each store."""
        key = key_of(number)
        outputs = [self.log.last(TopicPartition(store, 0)).get(key) for store in STORES]
        return outputs + [self.log.last(changelog(store, number)).get(key) for store in STORES]

    def on_disk(self, number: int) -> list[tuple[str | None, int | None]]:
        """Each store's value and offset as found by the next process."""
        self.tasks[number].close(clean=False)
        restarted = self.tasks[number] = self.start(number)
        reached = restarted.stores.changelog_offsets()
        found: list[tuple[str | None, int | None]] = []
        for store in STORES:
            stored = restarted.stores.store(store).get(key_of(number).decode())
            place = changelog(store, number)
            found.append((None if stored is None else stored.value, reached.get(place)))
        return found

    def close(self) -> None:
        for task in self.tasks:
            task.close(clean=False)


class _Admin:
    def partition_counts(self, topics: Iterable[str], timeout_ms: int) -> Mapping[str, int]:
        return dict.fromkeys(topics, 1)


def changelog(store: str, number: int) -> TopicPartition:
    """The changelog partition of a store."""
    return TopicPartition(f"app-{store}-changelog", number)


def key_of(number: int) -> bytes:
    return f"k{number}".encode()


def _collected(_: str, value: str, known: str) -> Any:
    if value == "poison":
        raise ValueError("never")
    return None if value == "forget" else known + value


def collecting(*, logged: bool) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(list(INPUTS), key=STRING, value=STRING).group_by_key()
    for store in STORES:
        (
            grouped.aggregate(
                str,
                _collected,
                store=Materialized(store, kind="rocksdb", key=STRING, value=STRING, logging=logged),
            )
            .to_stream()
            .to(store, key=STRING, value=STRING)
        )
    return builder.build()

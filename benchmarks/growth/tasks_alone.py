"""The tasks of a stream thread, without a broker or Spark."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from millstream import StreamsConfig, TaskId, TopicPartition, Topology
from millstream.clock import SystemClock
from millstream.kafka.clients.delivery import RejectionHandler
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.kafka.membership.member_events import CommitOffset
from millstream.metrics.metric_frames import FrameWriter
from millstream.metrics.registry import RecordingSettings
from millstream.record import Headers
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.stream_task import StreamTask
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.store_changelog import ChangelogWriter
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.storage.rocksdb import rocksdb_storages

#: The input topic, with a partition for each task.
TOPIC = "in"
#: The number of records per step and per poll, as in a stream thread.
MAX_RECORDS = 5_000

#: The records returned by a poll.
Poll = Mapping[TopicPartition, RecordColumns]

_COMMIT_S, _REPORT_S = 1.0, 0.5
_CLOCK = SystemClock()


class DiscardingCollector:
    """A `RecordCollector` that discards outputs and changelog records."""

    def __init__(self) -> None:
        self._written: dict[TopicPartition, int] = {}

    def partition_count(self, topic: str) -> int:
        return 1

    def send_many(
        self,
        topic: str,
        partitions: int | Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None,
    ) -> None:
        # Changelog records have a partition; output topics have a single partition.
        place = TopicPartition(topic, partitions if isinstance(partitions, int) else 0)
        self._written[place] = self._written.get(place, -1) + len(keys)

    def send_with_handler(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        handler: RejectionHandler,
    ) -> None:
        self.send_many(topic, partitions, keys, values, timestamps, headers)

    def acked(self) -> Mapping[TopicPartition, int]:
        return self._written

    def changelog_writer(self, task_id: TaskId, topics: Mapping[str, str]) -> ChangelogWriter:
        return _Changelogs(self, task_id.partition, topics)


class _Changelogs:
    def __init__(
        self, sink: DiscardingCollector, partition: int, topics: Mapping[str, str]
    ) -> None:
        self._sink = sink
        self._partition = partition
        self._topics = topics

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        topic = self._topics[store_name]
        self._sink.send_many(topic, self._partition, keys, values, timestamps, headers)


class StandaloneTasks:
    """The tasks of a topology that reads one topic, for measurements.

    Args:
        topology: a topology that reads `TOPIC`.
        folder: the folder for state.
        tasks: the number of tasks, each with a partition.
        level: the recording level of metrics; None for no metrics.
        cache_bytes: the size of the caches of all tasks; by default as in a thread.
    """

    def __init__(
        self,
        topology: Topology,
        folder: Path,
        tasks: int = 1,
        level: int | None = 0,
        cache_bytes: int | None = None,
    ) -> None:
        recording = RecordingSettings(-1 if level is None else level)
        self._records_metrics = level is not None
        self._meters = ThreadMeters("thread", _CLOCK, recording)
        self._frames = FrameWriter(self._meters.scope)
        self._sink = DiscardingCollector()
        config = StreamsConfig(application_id="bench", bootstrap_servers="not-used:9092")
        self.budget = CacheBudget(cache_bytes or config.statestore_cache_max_bytes)
        self._services = TaskServices(
            config=config,
            clock=_CLOCK,
            collector=self._sink,
            changelog_writer=self._sink.changelog_writer,
            directory=StateDirectory(folder, "bench"),
            budget=self.budget,
            storages=rocksdb_storages(config),
            metrics=self._meters.scope,
            thread_sensors=self._meters.task_sensors,
        )
        (self._part,) = topology._subtopologies()
        self._tasks: dict[TopicPartition, StreamTask] = {}
        self.add(tasks)

    def add(self, tasks: int) -> None:
        """Add tasks without state to restore."""
        for number in range(len(self._tasks), len(self._tasks) + tasks):
            place = TopicPartition(TOPIC, number)
            task = build_task(self._part, TaskId(0, number), frozenset({place}), self._services)
            task.open_stores()
            task.start({place: None})
            self._tasks[place] = task
        self._meters.set_tasks(list(self._tasks.values()))

    def run(self, polls: Iterable[Poll]) -> float:
        """Process all polls and commit; return the CPU time in seconds."""
        gc.collect()
        began = time.thread_time()
        committed = reported = time.perf_counter()
        for poll in polls:
            self.work(poll)
            now = time.perf_counter()
            if now - committed > _COMMIT_S:
                committed = now
                self.commit()
            if self._records_metrics and now - reported > _REPORT_S:
                reported = now
                self._frames.next()
        self.commit()
        return time.thread_time() - began

    def work(self, poll: Poll) -> None:
        """Process the records of a poll."""
        meters = self._meters
        meters.begin_round()
        began_ms = _CLOCK.monotonic_ms()
        if self._records_metrics:
            meters.record_poll(poll, began_ms)
        for place, records in poll.items():
            self._tasks[place].add_records(place, records)
        for place in poll:
            task = self._tasks[place]
            while task.is_processable(lambda _: True, 0):
                began_ms = _CLOCK.monotonic_ms()
                done = task.step(MAX_RECORDS)
                if self._records_metrics:
                    meters.processed(task, done, began_ms)

    def commit(self) -> None:
        """Commit the processed records."""
        working = [task for task in self._tasks.values() if task.commit_needed]
        offsets: dict[TopicPartition, CommitOffset] = {}
        for task in working:
            task.prepare_commit()
            offsets |= task.offsets_to_commit()
        acked = self._sink.acked()
        for task in working:
            task.post_commit(offsets, acked)

    def close(self) -> None:
        """Close the tasks."""
        for task in self._tasks.values():
            task.close(clean=False)

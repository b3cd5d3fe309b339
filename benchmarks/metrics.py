"""What metrics cost: the same work with and without, in turns. No broker, no Spark, one task.

What metrics cost is a number of microseconds a batch. Without a broker, and with batches of only
1,000 records, the work beside them is least, so their part of it is most. What is measured of a
poll and told to the driver is done as the loop does it, twice a second.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millstream import KStream, StreamsBuilder, StreamsConfig, TaskId, TopicPartition, Topology
from millstream.clock import SystemClock
from millstream.kafka.data.record_columns import RecordColumns
from millstream.kafka.data.watch import Watch
from millstream.metrics.frames import FrameWriter
from millstream.metrics.registry import Recording
from millstream.record import Headers
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.task.build_task import TaskServices, build_task
from millstream.runtime.task.stream_task import StreamTask
from millstream.serdes import BYTES, JSON, LONG, STRING
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.changelogs.store_changelog import ChangelogWriter
from millstream.state.directories.state_directory import StateDirectory

RECORDS = 1_000_000
ROUNDS = 7
SMOKE_RECORDS = 20_000

_BATCH = 1_000
_KEYS = 10_000
_PLACE = TopicPartition("in", 0)
_COMMIT_S, _REPORT_S = 1.0, 0.5
_CLOCK = SystemClock()


class _Nowhere:
    """Takes outputs and changelogs, and forgets them. It is `Collector`."""

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
        place = TopicPartition(topic, 0)
        self._written[place] = self._written.get(place, -1) + len(keys)

    def send_watched(
        self,
        topic: str,
        partitions: Sequence[int | None] | None,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Sequence[Headers] | None,
        watch: Watch,
    ) -> None:
        self.send_many(topic, partitions, keys, values, timestamps, headers)

    def acked(self) -> Mapping[TopicPartition, int]:
        return self._written

    def changelog_writer(self, task_id: TaskId, topics: Mapping[str, str]) -> ChangelogWriter:
        return _Changelogs(self, topics)


class _Changelogs:
    def __init__(self, nowhere: _Nowhere, topics: Mapping[str, str]) -> None:
        self._nowhere = nowhere
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
        self._nowhere.send_many(topic, 0, keys, values, timestamps, headers)


def stateless(stream: KStream[str, Any]) -> None:
    """Read JSON, keep three in five, add a field, write JSON."""
    kept = stream.filter(lambda _, event: event["amount"] > 40)
    more = kept.map_values(lambda event: {**event, "cents": round(event["amount"] * 100)})
    more.to("out", key=STRING, value=JSON)


def count(stream: KStream[str, Any]) -> None:
    """Count by key in a cached store on disk; new counts to a topic."""
    counts = stream.group_by_key(key=STRING, value=BYTES).count(store="counts").to_stream()
    counts.to("out", key=STRING, value=LONG)


JOBS = {"stateless": stateless, "count": count}


def topology(job: str) -> Topology:
    """What a job computes."""
    builder = StreamsBuilder()
    JOBS[job](builder.stream("in", key=STRING, value=JSON if job == "stateless" else BYTES))
    return builder.build()


class _Work:
    """A task and what measures it.

    Args:
        job: what it computes.
        folder: for its state.
        level: of recording; None for none at all.
    """

    def __init__(self, job: str, folder: Path, level: int | None) -> None:
        recording = Recording(-1 if level is None else level)
        self.tells = level is not None
        self.meters = ThreadMeters("thread", _CLOCK, recording)
        self.frames = FrameWriter(self.meters.scope)
        self.nowhere = _Nowhere()
        config = StreamsConfig(application_id="bench", bootstrap_servers="not-used:9092")
        services = TaskServices(
            config=config,
            clock=_CLOCK,
            collector=self.nowhere,
            changelog_writer=self.nowhere.changelog_writer,
            directory=StateDirectory(folder, "bench"),
            budget=CacheBudget(config.statestore_cache_max_bytes),
            metrics=self.meters.scope,
            of_thread=self.meters.of_tasks,
        )
        (part,) = topology(job)._subtopologies()
        self.task: StreamTask = build_task(part, TaskId(0, 0), frozenset({_PLACE}), services)
        self.task.open_stores()
        self.task.start({_PLACE: None})
        self.meters.tasks_are([self.task])

    def run(self, batches: Sequence[RecordColumns]) -> float:
        """Work on all of them; the seconds of the processor that it took."""
        gc.collect()
        began = time.thread_time()
        committed = reported = time.perf_counter()
        for batch in batches:
            self._poll_and_work(batch)
            now = time.perf_counter()
            if now - committed > _COMMIT_S:
                committed = now
                self._commit()
            if self.tells and now - reported > _REPORT_S:
                reported = now
                self.frames.next()
        self._commit()
        return time.thread_time() - began

    def _poll_and_work(self, batch: RecordColumns) -> None:
        task, meters = self.task, self.meters
        meters.round_begins()
        began_ms = _CLOCK.monotonic_ms()
        if self.tells:
            meters.polled({_PLACE: batch}, began_ms)
        task.add_records(_PLACE, batch)
        while task.is_processable(lambda _: True, 0):
            began_ms = _CLOCK.monotonic_ms()
            done = task.step(_BATCH)
            if self.tells:
                meters.processed(task, done, began_ms)

    def _commit(self) -> None:
        self.task.prepare_commit()
        self.task.post_commit(self.task.offsets_to_commit(), self.nowhere.acked())

    def close(self) -> None:
        """Give the task up."""
        self.task.close(clean=False)


def _batches(records: int) -> list[RecordColumns]:
    made = []
    now_ms = _CLOCK.now_ms()
    for first in range(0, records, _BATCH):
        numbers = range(first, min(records, first + _BATCH))
        users = [f"user-{(number * 7_919) % _KEYS}" for number in numbers]
        values: list[bytes | None] = [
            b'{"id":%d,"user":"%s","amount":%d.55,"kind":"add-to-cart"}'
            % (number, user.encode(), number % 100)
            for number, user in zip(numbers, users, strict=True)
        ]
        made.append(
            RecordColumns(
                [user.encode() for user in users],
                values,
                [now_ms + number for number in numbers],
                numbers,
                None,
                None,
            )
        )
    return made


def run(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Measure all jobs in rounds, each with and without in turns; what is to be saved."""
    records: int = options.records or (SMOKE_RECORDS if options.smoke else RECORDS)
    batches = _batches(records)
    what = f"{records:,} records in batches of {_BATCH:,}, no broker"
    print(f"metrics: {what}; records a second of one processor\n")
    head = f"{'job':12} {'without':>10} {'INFO':>10} {'DEBUG':>10}   {'INFO costs':>10}"
    print(f"{head} {'us a batch':>10}")
    measured: dict[str, Any] = {}
    for job in JOBS:
        seconds: dict[int | None, list[float]] = {None: [], 0: [], 1: []}
        for number in range(options.rounds or ROUNDS):
            levels = [None, 0, 1]
            # Who comes first is not always the same.
            for level in levels if number % 2 else reversed(levels):
                work = _Work(job, folder / f"{job}-{number}-{level}", level)
                seconds[level].append(work.run(batches))
                work.close()
        medians = {level: statistics.median(took) for level, took in seconds.items()}
        pairs = zip(seconds[None], seconds[0], strict=True)
        more = statistics.median(with_it - without for without, with_it in pairs)
        cost, each_us = more / medians[None], more / len(batches) * 1e6
        rates = {level: records / took for level, took in medians.items()}
        print(
            f"{job:12} {rates[None]:>10,.0f} {rates[0]:>10,.0f} {rates[1]:>10,.0f}   "
            f"{cost:>10.2%} {each_us:>10.1f}"
        )
        measured[job] = {
            "without": rates[None],
            "info": rates[0],
            "debug": rates[1],
            "cost": cost,
            "us_a_batch": each_us,
        }
    return measured


if __name__ == "__main__":
    import tempfile

    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--smoke", action="store_true")
    with tempfile.TemporaryDirectory() as place:
        run(parser.parse_args(), Path(place))

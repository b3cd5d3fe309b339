"""The CPU time per record by operators, keys and tasks, without a broker.

The time is that of the thread; RocksDB's own threads are not included. As in a stream thread, a
poll returns 5,000 records, evenly spread over the tasks. The tasks for all sizes of a measurement
are open at the same time, and measured in turns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count as numbers_from
from itertools import islice
from pathlib import Path

from harness.load import event_json, user_key

from growth.lines import Case, Line, in_turns
from growth.tasks_alone import MAX_RECORDS, TOPIC, Poll, StandaloneTasks
from millstream import KStream, Materialized, StreamsBuilder, TopicPartition, Topology
from millstream.kafka.clients.record_columns import RecordColumns
from millstream.serdes import BYTES, LONG, STRING
from millstream.spark.worker.process_setup import infrequent_gc

#: Records per size and round.
RECORDS = 1_000_000
SMOKE_RECORDS = 5_000
#: The default sizes.
DEPTHS = (1, 5, 10, 50)
KEYS = (10_000, 100_000, 1_000_000)
TASKS = (1, 10, 50, 200)

_SEED = 3
#: The number of keys in measurements that vary something else.
_DEFAULT_KEYS = 10_000
#: The values are not read, so they may repeat.
_VALUES: list[bytes | None] = [event_json(n, n, n / 100) for n in range(MAX_RECORDS)]

Stream = KStream[str, bytes]


def topology(build: Callable[[Stream], object]) -> Topology:
    """Build a topology on a stream of text keys and bytes."""
    builder = StreamsBuilder()
    build(builder.stream(TOPIC, key=STRING, value=BYTES))
    return builder.build()


def chain(operators: int) -> Callable[[Stream], object]:
    """Return a function that adds a chain of trivial operators and a sink."""

    def build(stream: Stream) -> None:
        for number in range(operators):
            if number % 2:
                stream = stream.filter(lambda _, value: value is not None)
            else:
                stream = stream.map_values(lambda value: value)
        stream.to("out", key=STRING, value=BYTES)

    return build


def counting(*, caching: bool) -> Callable[[Stream], object]:
    """Return a function that adds a count.

    The count has a store on disk, a changelog and an output.
    """

    def build(stream: Stream) -> None:
        store = Materialized("counts", key=STRING, value=LONG, caching=caching)
        counts = stream.group_by_key(key=STRING, value=BYTES).count(store=store)
        counts.to_stream().to("out", key=STRING, value=LONG)

    return build


#: The work of tasks, by name.
JOBS: dict[str, Callable[[Stream], object]] = {
    "one operator": chain(1),
    "count, cached": counting(caching=True),
    "count, not cached": counting(caching=False),
}


class Feed:
    """Generates polls for tasks, each of which has its share of the keys."""

    def __init__(self, tasks: int = 1, first_offset: int = 0) -> None:
        self._places = [TopicPartition(TOPIC, number) for number in range(tasks)]
        self._next = first_offset
        self._draw = random.Random(_SEED).random

    def random_polls(self, records: int, keys: int) -> list[Poll]:
        """Return polls with records of random keys."""
        tasks = len(self._places)
        some = [self._drawn(records // tasks, keys, task) for task in range(tasks)]
        return list(self._polls(some))

    def _drawn(self, records: int, keys: int, task: int) -> Iterator[bytes]:
        draw, tasks = self._draw, len(self._places)
        each = keys // tasks
        return (user_key(int(draw() * each) * tasks + task) for _ in range(records))

    def each(self, keys: int) -> Iterator[Poll]:
        """Yield polls with a record of each key, one by one to save memory."""
        tasks = len(self._places)
        return self._polls(map(user_key, range(task, keys, tasks)) for task in range(tasks))

    def _polls(self, keys: Iterable[Iterator[bytes]]) -> Iterator[Poll]:
        """Yield polls with records for the given keys of each task."""
        left = dict(zip(self._places, keys, strict=True))
        in_each = MAX_RECORDS // len(self._places)
        while True:
            polled: list[tuple[TopicPartition, list[bytes | None]]] = [
                (place, list(islice(more, in_each))) for place, more in left.items()
            ]
            poll = {place: self._columns(found) for place, found in polled if found}
            if not poll:
                return
            self._next += in_each
            yield poll

    def _columns(self, keys: list[bytes | None]) -> RecordColumns:
        offsets = range(self._next, self._next + len(keys))
        now_ms = time.time_ns() // 1_000_000
        return RecordColumns(keys, _VALUES[: len(keys)], [now_ms] * len(keys), offsets, None, None)


class TaskCosts:
    """Measures CPU time, with the same number of records of each size in each round."""

    def __init__(self, folder: Path, records: int, rounds: int) -> None:
        self._folder = folder
        self._records = records
        self._rounds = rounds
        self._names = numbers_from()
        self._open: list[StandaloneTasks] = []

    def depth(self, depths: Sequence[int] = DEPTHS) -> Line:
        """Measure the cost by the number of operators."""
        cases = [self._case("chain of operators", depth, chain(depth)) for depth in depths]
        return self._measured("operators", cases)

    def keys(self, sizes: Sequence[int] = KEYS) -> Line:
        """Measure the cost by the number of keys that are already in a store."""
        kinds = {what: build for what, build in JOBS.items() if what.startswith("count")}
        cases = [
            self._case(what, keys, build, keys=keys)
            for what, build in kinds.items()
            for keys in sizes
        ]
        return self._measured("keys", cases)

    def tasks(self, sizes: Sequence[int] = TASKS) -> Line:
        """Measure the cost by the number of tasks, which share the records of a poll."""
        cases = [
            self._case(what, tasks, build, tasks=tasks)
            for what, build in JOBS.items()
            for tasks in sizes
        ]
        return self._measured("tasks", cases)

    def _case(
        self,
        what: str,
        size: int,
        build: Callable[[Stream], object],
        keys: int = _DEFAULT_KEYS,
        tasks: int = 1,
    ) -> Case:
        work = StandaloneTasks(topology(build), self._folder / str(next(self._names)), tasks)
        self._open.append(work)
        feed = Feed(tasks)

        def measure(number: int) -> float:
            if not number:
                work.run(feed.each(keys))
            return work.run(feed.random_polls(self._records, keys)) / self._records * 1e6

        return Case(what, size, measure)

    def _measured(self, grows: str, cases: Sequence[Case]) -> Line:
        try:
            # As in a stream thread.
            with infrequent_gc():
                rows = in_turns(cases, self._rounds)
        finally:
            for work in self._open:
                work.close()
            self._open.clear()
        return Line(grows, "µs per record", self._rounds, rows, self._records)

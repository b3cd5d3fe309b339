"""What a record costs by operators, keys and tasks: the processor's time of the thread, without a
broker. What RocksDB does in threads of its own is not in it.

As in a stream thread, a poll brings 5,000 records, evenly spread over the tasks. All sizes of a
kind are open at the same time, and are measured in turns.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count as numbers_from
from itertools import islice
from pathlib import Path

from growing import Case, Line, in_turns
from load import event_json, user_key
from tasks_alone import MOST_RECORDS, TOPIC, Poll, TasksAlone

from millstream import KStream, Materialized, StreamsBuilder, TopicPartition, Topology
from millstream.kafka.data.record_columns import RecordColumns
from millstream.serdes import BYTES, LONG, STRING
from millstream.spark.worker.garbage import collecting_seldom

#: Records of one size in one round.
RECORDS = 1_000_000
SMOKE_RECORDS = 5_000
#: If sizes are not chosen.
DEPTHS = (1, 5, 10, 50)
KEYS = (10_000, 100_000, 1_000_000)
TASKS = (1, 10, 50, 200)

_SEED = 3
#: Where keys do not grow.
_USUAL_KEYS = 10_000
#: Nobody looks at the values, so they may come again and again.
_VALUES: list[bytes | None] = [event_json(n, n, n / 100) for n in range(MOST_RECORDS)]

Stream = KStream[str, bytes]


def topology(build: Callable[[Stream], object]) -> Topology:
    """What is built behind a stream of text keys and bytes."""
    builder = StreamsBuilder()
    build(builder.stream(TOPIC, key=STRING, value=BYTES))
    return builder.build()


def chain(operators: int) -> Callable[[Stream], object]:
    """So many operators, filters and maps in turns, that do next to nothing, and a sink."""

    def build(stream: Stream) -> None:
        for number in range(operators):
            if number % 2:
                stream = stream.filter(lambda _, value: value is not None)
            else:
                stream = stream.map_values(lambda value: value)
        stream.to("out", key=STRING, value=BYTES)

    return build


def counting(*, caching: bool) -> Callable[[Stream], object]:
    """A count in a store on disk, with a changelog; new counts to a topic."""

    def build(stream: Stream) -> None:
        store = Materialized("counts", key=STRING, value=LONG, caching=caching)
        counts = stream.group_by_key(key=STRING, value=BYTES).count(store=store)
        counts.to_stream().to("out", key=STRING, value=LONG)

    return build


#: What tasks do, by what it is called.
JOBS: dict[str, Callable[[Stream], object]] = {
    "one operator": chain(1),
    "count, cached": counting(caching=True),
    "count, not cached": counting(caching=False),
}


class Feed:
    """Polls for some tasks, each with its part of the keys, whose offsets go on and on."""

    def __init__(self, tasks: int = 1, first_offset: int = 0) -> None:
        self._places = [TopicPartition(TOPIC, number) for number in range(tasks)]
        self._next = first_offset
        self._draw = random.Random(_SEED).random

    def by_chance(self, records: int, keys: int) -> list[Poll]:
        """Records of any of these keys."""
        tasks = len(self._places)
        some = [self._drawn(records // tasks, keys, task) for task in range(tasks)]
        return list(self._polls(some))

    def _drawn(self, records: int, keys: int, task: int) -> Iterator[bytes]:
        draw, tasks = self._draw, len(self._places)
        each = keys // tasks
        return (user_key(int(draw() * each) * tasks + task) for _ in range(records))

    def each(self, keys: int) -> Iterator[Poll]:
        """A record of each key, made as they are asked for: all at once may be too many."""
        tasks = len(self._places)
        return self._polls(map(user_key, range(task, keys, tasks)) for task in range(tasks))

    def _polls(self, keys: Iterable[Iterator[bytes]]) -> Iterator[Poll]:
        """What is polled, of the keys of the records of each task."""
        left = dict(zip(self._places, keys, strict=True))
        in_each = MOST_RECORDS // len(self._places)
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


class Growing:
    """Measures in a folder, with so many records of each size in each round."""

    def __init__(self, folder: Path, records: int, rounds: int) -> None:
        self._folder = folder
        self._records = records
        self._rounds = rounds
        self._names = numbers_from()
        self._open: list[TasksAlone] = []

    def depth(self, depths: Sequence[int] = DEPTHS) -> Line:
        """By how many operators a record goes through."""
        cases = [self._case("operators in a row", depth, chain(depth)) for depth in depths]
        return self._measured("operators", cases)

    def keys(self, sizes: Sequence[int] = KEYS) -> Line:
        """By how many keys a store has, each of which was counted before."""
        kinds = {what: build for what, build in JOBS.items() if what.startswith("count")}
        cases = [
            self._case(what, keys, build, keys=keys)
            for what, build in kinds.items()
            for keys in sizes
        ]
        return self._measured("keys", cases)

    def tasks(self, sizes: Sequence[int] = TASKS) -> Line:
        """By how many tasks a thread has, among which the records of a poll are shared."""
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
        keys: int = _USUAL_KEYS,
        tasks: int = 1,
    ) -> Case:
        work = TasksAlone(topology(build), self._folder / str(next(self._names)), tasks)
        self._open.append(work)
        feed = Feed(tasks)

        def measure(number: int) -> float:
            if not number:
                work.run(feed.each(keys))
            return work.run(feed.by_chance(self._records, keys)) / self._records * 1e6

        return Case(what, size, measure)

    def _measured(self, grows: str, cases: Sequence[Case]) -> Line:
        try:
            # As in a stream thread.
            with collecting_seldom():
                rows = in_turns(cases, self._rounds)
        finally:
            for work in self._open:
                work.close()
            self._open.clear()
        return Line(grows, "us a record", self._rounds, rows, self._records)

"""Instances of one application with many concurrent calls, its input, and the log of its work."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millstream.testing import EmbeddedKafka
from support.background import background
from support.broker.topics import BrokerTopics, Writer, read_all, unique
from support.machine.scripts import Script, support_script
from support.running.topologies.work_log import (
    CommittedCounts,
    WorkItem,
    out_of_order,
    overlapping,
    read_work,
    repeated_after_commit,
    unfinished_work,
)

_TIMEOUT_S = 30
_PAUSE_S = 0.05
_READ_INTERVAL_S = 0.2


class NumberedKeys:
    """Writes to one topic.

    Attributes:
        written: the number of records by key.
    """

    def __init__(self, bootstrap: str, topic: str, keys: int) -> None:
        self.written: dict[str, int] = dict.fromkeys((f"key-{n}" for n in range(keys)), 0)
        self._bootstrap = bootstrap
        self._topic = topic
        self._writer = Writer(bootstrap, self._delivered)
        #: By key: the partition, and the offset of each number.
        self._offsets: dict[str, list[int]] = defaultdict(list)
        self._partition: dict[str, int] = {}

    def write(self, count: int) -> None:
        """Write this many more records, key by key in turn, and wait for the acknowledgments."""
        self._writer.write(self._topic, list(self._next(count)))

    def _next(self, count: int) -> Iterator[tuple[bytes, bytes]]:
        names = list(self.written)
        begin = sum(self.written.values())
        for turn in range(begin, begin + count):
            key = names[turn % len(names)]
            yield key.encode(), b"%d" % self.written[key]
            self.written[key] += 1

    @contextmanager
    def continuous_input(self, at_once: int, least: int = 0) -> Iterator[None]:
        """Write a few records every 50 ms during the block, and at least `least` records in all."""
        with background(lambda: self.write(at_once), _PAUSE_S):
            yield
        self.write(max(0, least - sum(self.written.values())))

    def read_committed(self, consumer: Consumer) -> CommittedCounts | None:
        """Read the offsets committed by a group; None if its coordinator is unavailable."""
        partitions = sorted(set(self._partition.values()))
        places = [TopicPartition(self._topic, number) for number in partitions]
        try:
            found = {each.partition: each.offset for each in consumer.committed(places, _TIMEOUT_S)}
        except KafkaException:
            # The first group of a cluster waits for the offsets topic.
            return None
        committed = {
            key: sum(offset < found[self._partition[key]] for offset in list(offsets))
            for key, offsets in list(self._offsets.items())
        }
        return CommittedCounts(time.monotonic_ns(), committed)

    @contextmanager
    def watch_commits(self, group: str) -> Iterator[list[CommittedCounts]]:
        """Read the committed offsets repeatedly and yield the list of snapshots."""
        snapshots: list[CommittedCounts] = []
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group})

        def read_committed() -> None:
            if (snapshot := self.read_committed(consumer)) is not None:
                snapshots.append(snapshot)

        with closing(consumer), background(read_committed, _READ_INTERVAL_S):
            yield snapshots

    def _delivered(self, message: Any) -> None:
        key = message.key().decode()
        self._partition[key] = message.partition()
        self._offsets[key].append(message.offset())


def numbers_by_key(bootstrap: str, topic: str) -> dict[str, list[int]]:
    """The numbers in a topic by key, in topic order, as a read-committed consumer sees them."""
    found: dict[str, list[int]] = defaultdict(list)
    for key, value in read_all(bootstrap, topic):
        assert key is not None
        assert value is not None
        found[key.decode()].append(int(value))
    return found


class ParallelInstances:
    """One application, not running.

    Args:
        kind: of `parallel_instance.KINDS`.
        settings: as for `parallel_instance`.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        folder: Path,
        kind: str,
        *,
        partitions: int,
        keys: int,
        **settings: Any,
    ) -> None:
        self.name = unique(kind.replace("_", "-"))
        self.input = f"{self.name}-in"
        self.bootstrap = kafka.bootstrap_servers
        self.places = BrokerTopics(self.bootstrap)
        self.places.create({self.input: partitions, f"{self.name}-out": partitions})
        self.records = NumberedKeys(self.bootstrap, self.input, keys)
        self._kind = kind
        self._folder = folder
        self._settings = settings
        self._started = 0

    def start(self, name: str) -> Script:
        """Start an instance; the end of its context kills all its processes."""
        self._started += 1
        home = self._folder / name
        home.mkdir(parents=True, exist_ok=True)
        return support_script(
            "parallel_instance.py",
            self._kind,
            self.bootstrap,
            self.name,
            str(home),
            json.dumps(self._settings),
            home=self._folder / f"run-{self._started}-{name}",
        )

    @property
    def left(self) -> int:
        """The number of uncommitted records; all of them while it is unknown."""
        try:
            return self.places.lag(self.name, [self.input])
        except KafkaException:
            # The first group of a cluster waits for the offsets topic.
            return sum(self.records.written.values())

    def output(self) -> dict[str, list[int]]:
        """The output by key, as a read-committed consumer sees it."""
        return numbers_by_key(self.bootstrap, f"{self.name}-out")

    def work(self) -> dict[str, list[WorkItem]]:
        """The work of all instances."""
        found: dict[str, list[WorkItem]] = {}
        for folder in sorted(self._folder.iterdir()):
            for key, done in read_work(folder).items():
                found[key] = sorted([*found.get(key, []), *done], key=lambda each: each.began_ns)
        return found

    def done(self) -> int:
        """The number of completed calls."""
        return sum(each.ended_ns is not None for done in self.work().values() for each in done)

    def check(self, snapshots: Sequence[CommittedCounts]) -> None:
        """Decaton's own three checks of subscriptions, for the work of all instances."""
        work = self.work()
        assert unfinished_work(self.records.written, work) == []
        assert overlapping(work) == []
        for key, done in work.items():
            assert out_of_order(each.number for each in done) == [], key
        assert repeated_after_commit(work, snapshots) == []

"""Instances of one application with many calls at a time, its input, and what they have done."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from millstream.testing import EmbeddedKafka
from support.broker.numbered_keys import NumberedKeys, numbers_by_key
from support.broker.records import Places
from support.broker.topics import unique
from support.machine.scripts import Script
from support.running.topologies.work_log import (
    Done,
    Looked,
    begun_again,
    never_done,
    out_of_order,
    overlapping,
    read_work,
)

_ROOM = Path(__file__).parent


class ParallelInstances:
    """One application, not running.

    Args:
        kafka: the broker.
        folder: an empty one.
        kind: of `parallel_instance.KINDS`.
        partitions: of its input.
        keys: how many keys the input has.
        settings: as `parallel_instance` takes them.
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
        self.places = Places(self.bootstrap)
        self.places.create({self.input: partitions, f"{self.name}-out": partitions})
        self.records = NumberedKeys(self.bootstrap, self.input, keys)
        self._kind = kind
        self._folder = folder
        self._settings = settings
        self._started = 0

    def started(self, name: str) -> Script:
        """An instance; whoever starts it ends it."""
        self._started += 1
        home = self._folder / name
        home.mkdir(parents=True, exist_ok=True)
        return Script(
            _ROOM / "parallel_instance.py",
            self._kind,
            self.bootstrap,
            self.name,
            str(home),
            json.dumps(self._settings),
            home=self._folder / f"run-{self._started}-{name}",
            imports=_ROOM.parents[1],
        )

    @contextmanager
    def start(self, name: str) -> Iterator[Script]:
        """An instance, which is killed at the end with all its processes unless it has ended."""
        with self.started(name) as script:
            yield script

    @property
    def left(self) -> int:
        """How many records are not committed yet, all of them as long as nobody can say."""
        try:
            return self.places.lag(self.name, [self.input])
        except KafkaException:
            # The first group of a cluster waits for the topic of offsets.
            return sum(self.records.written.values())

    def output(self) -> dict[str, list[int]]:
        """What a reader of committed records gets of the output, by key."""
        return numbers_by_key(self.bootstrap, f"{self.name}-out")

    def work(self) -> dict[str, list[Done]]:
        """What all of them have done."""
        found: dict[str, list[Done]] = {}
        for folder in sorted(self._folder.iterdir()):
            for key, done in read_work(folder).items():
                found[key] = sorted([*found.get(key, []), *done], key=lambda each: each.began_ns)
        return found

    def done(self) -> int:
        """How often work has come to its end."""
        return sum(each.ended_ns is not None for done in self.work().values() for each in done)

    def check(self, looks: Sequence[Looked]) -> None:
        """Decaton's own three checks of subscriptions, on all that its instances have done.

        Args:
            looks: what was committed at some times.
        """
        work = self.work()
        assert never_done(self.records.written, work) == []
        assert overlapping(work) == []
        for key, done in work.items():
            assert out_of_order(each.number for each in done) == [], key
        assert begun_again(work, looks) == []

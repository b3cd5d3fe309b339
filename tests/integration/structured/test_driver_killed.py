"""Drivers of an application with a DataFrame function that are killed: another one goes on."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from support.broker.records import Places, Sent
from support.broker.topics import read_all, unique
from support.machine.scripts import Script
from support.running import dataframe_instance
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

START_S = 120


class Instances:
    """Drivers of one application, which have one folder of checkpoints.

    Args:
        kafka: the broker.
        folder: for what they keep.
        kind: of `dataframe_instance`.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path, kind: str) -> None:
        self.name = unique("killed")
        self._kafka = kafka
        self._folder = folder
        self._kind = kind
        self._places = Places(kafka.bootstrap_servers)
        topics = ("in", "lengths", "sums")
        self._places.create({f"{self.name}-{topic}": 2 for topic in topics})
        self.total = 0

    def one(self, which: str) -> Script:
        """A driver, started."""
        script = Path(dataframe_instance.__file__)
        folder = self._folder
        return Script(
            script,
            self._kafka.bootstrap_servers,
            self.name,
            str(folder / which),
            str(folder / "notes"),
            self._kind,
            home=folder / f"{which}-home",
            imports=script.parents[2],
        )

    def write(self, count: int) -> None:
        """More words, each of a length of its own."""
        numbers = range(self.total, self.total + count)
        self._places.write(
            Sent(f"{self.name}-in", number % 2, f"key-{number % 2}", "x" * number, number + 1)
            for number in numbers
        )
        self.total += count

    def lengths(self) -> Counter[int]:
        """What the function has given."""
        written = read_all(self._kafka.bootstrap_servers, f"{self.name}-lengths")
        return Counter(int.from_bytes(value or b"") for _, value in written)

    def sums(self) -> dict[bytes | None, int]:
        """The last ones."""
        written = read_all(self._kafka.bootstrap_servers, f"{self.name}-sums")
        return {key: int.from_bytes(value or b"") for key, value in written}

    def expected_sums(self) -> dict[bytes | None, int]:
        """Of all words, each once."""
        return {f"key-{part}".encode(): sum(range(part, self.total, 2)) for part in range(2)}


@pytest.mark.parametrize("kind", ["exactly-once", "real-time"])
def test_the_result_is_the_same_when_drivers_are_killed(
    kafka: EmbeddedKafka, tmp_path: Path, kind: str
) -> None:
    """Over a driver that is killed under load, one that takes over with the same checkpoint, and
    one that comes again: everything once, and in real time everything."""
    instances = Instances(kafka, tmp_path, kind)

    def is_done() -> bool:
        wanted, found = Counter(range(instances.total)), instances.lengths()
        return found == wanted if kind == "exactly-once" else found.keys() == wanted.keys()

    with instances.one("first") as first:
        instances.write(50)
        wait_for(instances.lengths, START_S, "the first one runs it")
        with instances.one("second"):
            for _ in range(5):
                instances.write(30)
            first.signal(signal.SIGKILL)
            instances.write(50)
            wait_for(is_done, START_S, "the second goes on")
    with instances.one("first"):
        instances.write(50)
        wait_for(is_done, START_S, "the first goes on again")
        if kind == "exactly-once":
            wait_for(
                lambda: instances.sums() == instances.expected_sums(), START_S, "all are summed up"
            )

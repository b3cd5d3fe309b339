"""Another driver takes over when a driver of an application with a DataFrame function is killed."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest
from support.broker.topics import BrokerTopics, InputRecord, read_all, unique
from support.machine.scripts import Script, support_script
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.slow

START_S = 120


class Instances:
    """Drivers of one application, with a common checkpoint directory.

    Args:
        kafka: the broker.
        folder: for state and checkpoints.
        kind: of `dataframe_instance`.
    """

    def __init__(self, kafka: EmbeddedKafka, folder: Path, kind: str) -> None:
        self.name = unique("killed")
        self._kafka = kafka
        self._folder = folder
        self._kind = kind
        self._places = BrokerTopics(kafka.bootstrap_servers)
        topics = ("in", "lengths", "sums")
        self._places.create({f"{self.name}-{topic}": 2 for topic in topics})
        self.total = 0

    def one(self, which: str) -> Script:
        """Start a driver."""
        folder = self._folder
        return support_script(
            "dataframe_instance.py",
            self._kafka.bootstrap_servers,
            self.name,
            str(folder / which),
            str(folder / "notes"),
            self._kind,
            home=folder / f"{which}-home",
        )

    def write(self, count: int) -> None:
        """Write more words, each with a unique length."""
        numbers = range(self.total, self.total + count)
        self._places.write(
            InputRecord(
                f"{self.name}-in", number % 2, f"key-{number % 2}", "x" * number, number + 1
            )
            for number in numbers
        )
        self.total += count

    def lengths(self) -> Counter[int]:
        """The function's output."""
        written = read_all(self._kafka.bootstrap_servers, f"{self.name}-lengths")
        return Counter(int.from_bytes(value or b"") for _, value in written)

    def sums(self) -> dict[bytes | None, int]:
        """The last sums."""
        written = read_all(self._kafka.bootstrap_servers, f"{self.name}-sums")
        return {key: int.from_bytes(value or b"") for key, value in written}

    def expected_sums(self) -> dict[bytes | None, int]:
        """The sums over all words, each counted once."""
        return {f"key-{part}".encode(): sum(range(part, self.total, 2)) for part in range(2)}


@pytest.mark.parametrize("kind", ["exactly-once", "real-time"])
def test_the_result_is_the_same_when_drivers_are_killed(
    kafka: EmbeddedKafka, tmp_path: Path, kind: str
) -> None:
    """A driver is killed under load, one takes over with the same checkpoint, and the first
    returns: each result exactly once, or in real-time mode at least once."""
    instances = Instances(kafka, tmp_path, kind)

    def is_done() -> bool:
        expected, found = Counter(range(instances.total)), instances.lengths()
        return found == expected if kind == "exactly-once" else found.keys() == expected.keys()

    with instances.one("first") as first:
        instances.write(50)
        wait_for(instances.lengths, START_S, "the first driver runs the query")
        with instances.one("second"):
            for _ in range(5):
                instances.write(30)
            first.signal(signal.SIGKILL)
            instances.write(50)
            wait_for(is_done, START_S, "the second driver continues")
    with instances.one("first"):
        instances.write(50)
        wait_for(is_done, START_S, "the first driver continues")
        if kind == "exactly-once":
            wait_for(
                lambda: instances.sums() == instances.expected_sums(),
                START_S,
                "all lengths are summed up",
            )

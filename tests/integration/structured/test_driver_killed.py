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


def instance(kafka: EmbeddedKafka, name: str, folder: Path, which: str) -> Script:
    script = Path(dataframe_instance.__file__)
    arguments = (kafka.bootstrap_servers, name, str(folder / which), str(folder / "notes"))
    return Script(script, *arguments, home=folder / f"{which}-home", imports=script.parents[2])


def write(places: Places, name: str, start: int, count: int) -> None:
    """Words, each of a length of its own."""
    places.write(
        Sent(f"{name}-in", number % 2, f"key-{number % 2}", "x" * number, number + 1)
        for number in range(start, start + count)
    )


def lengths(kafka: EmbeddedKafka, name: str) -> Counter[int]:
    written = read_all(kafka.bootstrap_servers, f"{name}-lengths")
    return Counter(int.from_bytes(value or b"") for _, value in written)


def test_the_result_is_the_same_when_drivers_are_killed(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Exactly once, over a driver that is killed under load, one that takes over with the same
    checkpoint, and one that comes again."""
    name = unique("killed")
    places = Places(kafka.bootstrap_servers)
    places.create({f"{name}-in": 2, f"{name}-lengths": 2, f"{name}-sums": 2})
    total = 0
    with instance(kafka, name, tmp_path, "first") as first:
        write(places, name, total, 50)
        total += 50
        wait_for(lambda: lengths(kafka, name), START_S, "the first one runs it")
        with instance(kafka, name, tmp_path, "second"):
            for _ in range(5):
                write(places, name, total, 30)
                total += 30
            first.signal(signal.SIGKILL)
            write(places, name, total, 50)
            total += 50
            expected = Counter(range(total))
            wait_for(lambda: lengths(kafka, name) == expected, START_S, "the second goes on")
    with instance(kafka, name, tmp_path, "first"):
        write(places, name, total, 50)
        total += 50
        expected = Counter(range(total))
        wait_for(lambda: lengths(kafka, name) == expected, START_S, "the first goes on again")
        sums = {f"key-{part}".encode(): sum(range(part, total, 2)) for part in range(2)}

        def latest() -> dict[bytes | None, int]:
            written = read_all(kafka.bootstrap_servers, f"{name}-sums")
            return {key: int.from_bytes(value or b"") for key, value in written}

        wait_for(lambda: latest() == sums, START_S, "all are summed up")

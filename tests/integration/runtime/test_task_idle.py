"""`max.task.idle.ms` on a broker: in which order a task takes records of two topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.broker.records import Places, Sent
from support.broker.topics import read_all, unique
from support.running.thread_run import ThreadRun
from support.waiting import stays, wait_for

from millstream import StreamsBuilder
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

RECORDS = 40


class Merged:
    """Two topics of one partition that go into a third one as a task takes their records."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("idle")
        self.bootstrap = kafka.bootstrap_servers
        self.left, self.right, self._out = (f"{self.name}-{it}" for it in ("left", "right", "out"))
        self._folder = folder
        self._places = Places(self.bootstrap)
        self._places.create({self.left: 1, self.right: 1, self._out: 1})

    def write(self, topic: str, *timestamps: int) -> None:
        self._places.write(Sent(topic, 0, "k", str(at), at) for at in timestamps)

    def run(self, max_task_idle_ms: int) -> ThreadRun:
        builder = StreamsBuilder()
        left, right = (
            builder.stream(topic, key=STRING, value=STRING) for topic in (self.left, self.right)
        )
        left.merge(right).to(self._out, key=STRING, value=STRING)
        # Less than a topic has, so that the first poll has records of one topic alone.
        settings: dict[str, Any] = {"consumer": {"max.poll.records": RECORDS // 4}}
        return ThreadRun(
            builder.build(),
            self.bootstrap,
            self._folder,
            self.name,
            max_task_idle_ms=max_task_idle_ms,
            **settings,
        )

    def taken(self) -> list[int]:
        return [int(value or b"") for _, value in read_all(self.bootstrap, self._out)]


@pytest.fixture
def merged(kafka: EmbeddedKafka, tmp_path: Path) -> Merged:
    return Merged(kafka, tmp_path)


@pytest.mark.parametrize(("max_task_idle_ms", "in_order"), [(0, True), (-1, False)])
def test_what_the_broker_has_is_waited_for_unless_told_otherwise(
    merged: Merged, max_task_idle_ms: int, in_order: bool
) -> None:
    """The default takes everything that was written before by time, though not fetched at once."""
    merged.write(merged.left, *range(2, 2 * RECORDS + 2, 2))
    merged.write(merged.right, *range(1, 2 * RECORDS, 2))
    with merged.run(max_task_idle_ms):
        wait_for(lambda: len(merged.taken()) == 2 * RECORDS, 30, "everything is taken")
    taken = merged.taken()
    assert sorted(taken) == list(range(1, 2 * RECORDS + 1))
    assert (taken == sorted(taken)) is in_order


def test_what_is_written_a_little_later_is_waited_for(merged: Merged) -> None:
    """A positive time waits for producers as well: what they write meanwhile comes in its turn."""
    with merged.run(20_000) as run:
        run.wait_until_running(1)
        merged.write(merged.left, 10)
        assert stays(lambda: not merged.taken(), 1)
        # With the later one there are records on both sides, so that nothing is waited for.
        merged.write(merged.right, 5, 15)
        wait_for(lambda: len(merged.taken()) == 2, 10, "two are taken")
        assert merged.taken() == [5, 10]


def test_nothing_is_waited_for_longer_than_that(merged: Merged) -> None:
    with merged.run(300) as run:
        run.wait_until_running(1)
        merged.write(merged.left, 10)
        wait_for(lambda: merged.taken() == [10], 10, "it is taken")

"""`max.task.idle.ms` on a broker: the order in which a task processes records of two topics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.broker.topics import BrokerTopics, InputRecord, read_all, unique
from support.running.thread_run import ThreadRun, thread_config
from support.waiting import stays, wait_for

from millstream import StreamsBuilder
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

RECORDS = 40


class Merged:
    """Two topics with one partition that are merged into a third one in processing order."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self.name = unique("idle")
        self.bootstrap = kafka.bootstrap_servers
        self.left, self.right, self._out = (f"{self.name}-{it}" for it in ("left", "right", "out"))
        self._folder = folder
        self._places = BrokerTopics(self.bootstrap)
        self._places.create({self.left: 1, self.right: 1, self._out: 1})

    def write(self, topic: str, *timestamps: int) -> None:
        self._places.write(InputRecord(topic, 0, "k", str(at), at) for at in timestamps)

    def run(self, max_task_idle_ms: int) -> ThreadRun:
        builder = StreamsBuilder()
        left, right = (
            builder.stream(topic, key=STRING, value=STRING) for topic in (self.left, self.right)
        )
        left.merge(right).to(self._out, key=STRING, value=STRING)
        # Less than a topic has, so that the first poll has records of only one topic.
        settings: dict[str, Any] = {"consumer": {"max.poll.records": RECORDS // 4}}
        settings["max_task_idle_ms"] = max_task_idle_ms
        config = thread_config(self.bootstrap, self._folder, self.name, **settings)
        return ThreadRun(builder.build(), config)

    def processed(self) -> list[int]:
        return [int(value or b"") for _, value in read_all(self.bootstrap, self._out)]


@pytest.fixture
def merged(kafka: EmbeddedKafka, tmp_path: Path) -> Merged:
    return Merged(kafka, tmp_path)


@pytest.mark.parametrize(("max_task_idle_ms", "in_order"), [(0, True), (-1, False)])
def test_records_on_the_broker_are_waited_for_by_default(
    merged: Merged, max_task_idle_ms: int, in_order: bool
) -> None:
    """By default all records written before are processed in timestamp order, even if they are
    fetched later."""
    merged.write(merged.left, *range(2, 2 * RECORDS + 2, 2))
    merged.write(merged.right, *range(1, 2 * RECORDS, 2))
    with merged.run(max_task_idle_ms):
        wait_for(lambda: len(merged.processed()) == 2 * RECORDS, 30, "everything is processed")
    processed = merged.processed()
    assert sorted(processed) == list(range(1, 2 * RECORDS + 1))
    assert (processed == sorted(processed)) is in_order


def test_later_records_are_waited_for(merged: Merged) -> None:
    """With a positive time the task also waits for producers: later records are processed in
    order."""
    with merged.run(20_000) as run:
        run.wait_until_running(1)
        merged.write(merged.left, 10)
        assert stays(lambda: not merged.processed(), 1)
        # With the later record both topics have records, so that the task does not wait.
        merged.write(merged.right, 5, 15)
        wait_for(lambda: len(merged.processed()) == 2, 10, "two records are processed")
        assert merged.processed() == [5, 10]


def test_the_wait_is_bounded(merged: Merged) -> None:
    with merged.run(300) as run:
        run.wait_until_running(1)
        merged.write(merged.left, 10)
        wait_for(lambda: merged.processed() == [10], 10, "the record is processed")

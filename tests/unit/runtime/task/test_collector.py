"""What a task writes to Kafka, as far as that needs no broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock, SystemClock
from millstream.config import StreamsConfig
from millstream.errors import BrokerUnavailableError, RecordRefusedError, UnknownTopicError
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TaskId
from millstream.runtime.task.collector import KafkaCollector

NOBODY_LISTENS = "127.0.0.1:1"
LARGE = bytes(2 << 20)


class Admin:
    """Stands in for the admin client."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"out": 2}
        self.asked = 0
        self.away = False

    def partition_counts(self, topics: Iterable[str], timeout_ms: int) -> dict[str, int]:
        self.asked += 1
        if self.away:
            raise BrokerUnavailableError("no answer")
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}


def test_partition_counts_are_asked_for_again_when_they_are_old() -> None:
    """Aim: custom partitioners use partitions that were added; an outage costs nothing."""
    clock, admin = ManualClock(), Admin()
    collector = KafkaCollector(Mock(), cast(Any, admin), clock, 60_000, 0)
    assert collector.partition_count("out") == 2
    admin.counts["out"] = 4
    clock.advance(59_999)
    assert collector.partition_count("out") == 2
    assert admin.asked == 1
    clock.advance(1)
    assert collector.partition_count("out") == 4
    admin.away = True
    clock.advance(60_000)
    assert collector.partition_count("out") == 4
    asked = admin.asked
    assert collector.partition_count("out") == 4
    assert admin.asked == asked
    with pytest.raises(BrokerUnavailableError):
        collector.partition_count("other")
    admin.away = False
    with pytest.raises(UnknownTopicError):
        collector.partition_count("other")


def test_a_first_partition_count_is_waited_for_as_long_as_tasks_wait() -> None:
    """Hunts for an outage that ends the thread as soon as it meets a new topic."""
    clock, admin, producer = ManualClock(), Admin(), Mock()
    collector = KafkaCollector(producer, cast(Any, admin), clock, 60_000, 300_000)
    admin.away = True

    def come_back() -> None:
        admin.away = clock.monotonic_ms() < 30_000

    producer.on_wait = come_back
    assert collector.partition_count("out") == 2
    assert clock.monotonic_ms() >= 30_000
    admin.away, producer.on_wait = True, Mock()
    with pytest.raises(BrokerUnavailableError):
        collector.partition_count("other")
    assert clock.monotonic_ms() >= 330_000
    assert producer.on_wait.called


def test_a_change_that_is_refused_names_its_store_and_task() -> None:
    """An aggregate that has grown too large: its topic alone does not tell which one."""
    config = StreamsConfig(application_id="app", bootstrap_servers=NOBODY_LISTENS)
    producer = RecordProducer(librdkafka_settings(config, "producer", "app"))
    admin: Any = None
    collector = KafkaCollector(producer, admin, SystemClock(), 60_000, 0)
    changelogs = collector.changelog_writer(TaskId(1, 2), {"counts": "app-counts-changelog"})
    try:
        with pytest.raises(RecordRefusedError, match="A change of store 'counts'") as told:
            changelogs.log_many("counts", [b"k"], [LARGE], [1])
        with pytest.raises(RecordRefusedError, match="A record was not written") as plain:
            collector.send_many("out", None, [b"k"], [LARGE], [1], None)
    finally:
        producer.close(0)
    error = told.value
    assert (error.task_id, error.topic, error.partition) == (
        TaskId(1, 2),
        "app-counts-changelog",
        2,
    )
    assert plain.value.task_id is None


def test_a_change_without_a_time_gets_that_of_the_threads_clock() -> None:
    producer = Mock()
    collector = KafkaCollector(producer, Mock(), ManualClock(5_000), 60_000, 0)
    changelogs = collector.changelog_writer(TaskId(0, 3), {"counts": "app-counts-changelog"})
    changelogs.log_many("counts", [b"a", b"b"], [b"1", None], None)
    producer.send_many.assert_called_once_with(
        "app-counts-changelog", 3, [b"a", b"b"], [b"1", None], [5_000, 5_000], None
    )
    producer.send_many.reset_mock()
    changelogs.log_many("not logged", [b"a"], [b"1"], None)
    producer.send_many.assert_not_called()

"""The collector of a task's output, without a broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast
from unittest.mock import Mock

import pytest

from millstream.clock import ManualClock, SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import BrokerUnavailableError, RecordRefusedError, UnknownTopicError
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TaskId
from millstream.runtime.task.collector import KafkaRecordCollector

UNUSED_ADDRESS = "127.0.0.1:1"
LARGE = bytes(2 << 20)


class Admin:
    """A fake admin client."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {"out": 2}
        self.requests = 0
        self.unavailable = False

    def partition_counts(self, topics: Iterable[str], timeout_ms: int) -> dict[str, int]:
        self.requests += 1
        if self.unavailable:
            raise BrokerUnavailableError("no answer")
        return {topic: self.counts[topic] for topic in topics if topic in self.counts}


def test_outdated_partition_counts_are_refreshed() -> None:
    """Custom partitioners use added partitions; an outage has no effect."""
    clock, admin = ManualClock(), Admin()
    collector = KafkaRecordCollector(Mock(), cast(Any, admin), clock, 60_000, 0)
    assert collector.partition_count("out") == 2
    admin.counts["out"] = 4
    clock.advance(59_999)
    assert collector.partition_count("out") == 2
    assert admin.requests == 1
    clock.advance(1)
    assert collector.partition_count("out") == 4
    admin.unavailable = True
    clock.advance(60_000)
    assert collector.partition_count("out") == 4
    requests = admin.requests
    assert collector.partition_count("out") == 4
    assert admin.requests == requests
    with pytest.raises(BrokerUnavailableError):
        collector.partition_count("other")
    admin.unavailable = False
    with pytest.raises(UnknownTopicError):
        collector.partition_count("other")


def test_first_partition_count_is_awaited_for_the_task_timeout() -> None:
    """Detects an outage that stops the thread as soon as a new topic is used."""
    clock, admin, producer = ManualClock(), Admin(), Mock()
    collector = KafkaRecordCollector(producer, cast(Any, admin), clock, 60_000, 300_000)
    admin.unavailable = True

    def recover() -> None:
        admin.unavailable = clock.monotonic_ms() < 30_000

    producer.on_wait = recover
    assert collector.partition_count("out") == 2
    assert clock.monotonic_ms() >= 30_000
    admin.unavailable, producer.on_wait = True, Mock()
    with pytest.raises(BrokerUnavailableError):
        collector.partition_count("other")
    assert clock.monotonic_ms() >= 330_000
    assert producer.on_wait.called


def test_error_about_a_rejected_change_names_its_store_and_task() -> None:
    """For example an aggregate that has grown too large: the topic alone does not identify it."""
    config = StreamsConfig(application_id="app", bootstrap_servers=UNUSED_ADDRESS)
    producer = RecordProducer(librdkafka_settings(config, "producer", "app"))
    admin: Any = None
    collector = KafkaRecordCollector(producer, admin, SystemClock(), 60_000, 0)
    changelogs = collector.changelog_writer(TaskId(1, 2), {"counts": "app-counts-changelog"})
    try:
        with pytest.raises(
            RecordRefusedError, match="A change of store 'counts'"
        ) as rejected_change:
            changelogs.log_many("counts", [b"k"], [LARGE], [1])
        with pytest.raises(RecordRefusedError, match="A record was not written") as plain:
            collector.send_many("out", None, [b"k"], [LARGE], [1], None)
    finally:
        producer.close(0)
    error = rejected_change.value
    assert (error.task_id, error.topic, error.partition) == (
        TaskId(1, 2),
        "app-counts-changelog",
        2,
    )
    assert plain.value.task_id is None


def test_change_without_a_timestamp_gets_the_time_of_the_thread_clock() -> None:
    producer = Mock()
    collector = KafkaRecordCollector(producer, Mock(), ManualClock(5_000), 60_000, 0)
    changelogs = collector.changelog_writer(TaskId(0, 3), {"counts": "app-counts-changelog"})
    changelogs.log_many("counts", [b"a", b"b"], [b"1", None], None)
    producer.send_many.assert_called_once_with(
        "app-counts-changelog", 3, [b"a", b"b"], [b"1", None], [5_000, 5_000], None
    )
    producer.send_many.reset_mock()
    changelogs.log_many("not logged", [b"a"], [b"1"], None)
    producer.send_many.assert_not_called()

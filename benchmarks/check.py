"""Whether a run's output topic holds what its job must produce: fast and wrong is no result."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator

import orjson
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from load import Expected

READ_DEADLINE_S = 60.0


def check(job: str, bootstrap_servers: str, output_topic: str, expected: Expected) -> str | None:
    """What is wrong with the output, in one sentence; None when nothing is."""
    records = records_of(bootstrap_servers, output_topic)
    if job == "stateless":
        return _check_stateless(records, expected)
    if job == "window":
        return _check_window(records, expected)
    return _check_count(records, expected)


def _check_stateless(records: Iterator[tuple[bytes, bytes]], expected: Expected) -> str | None:
    passed = cents = 0
    for _, value in records:
        passed += 1
        cents += orjson.loads(value)["cents"]
    if (passed, cents) == (expected.passed, expected.cents):
        return None
    return (
        f"{passed:,} records with {cents:,} cents came out, "
        f"{expected.passed:,} with {expected.cents:,} should have"
    )


def _check_count(records: Iterator[tuple[bytes, bytes]], expected: Expected) -> str | None:
    counts = {key.decode(): struct.unpack(">q", value)[0] for key, value in records}
    if counts == expected.count_of_user:
        return None
    wrong = sum(counts.get(user) != times for user, times in expected.count_of_user.items())
    return f"{wrong:,} of {len(expected.count_of_user):,} users have a wrong count"


def _check_window(records: Iterator[tuple[bytes, bytes]], expected: Expected) -> str | None:
    sums = {key: struct.unpack(">q", value)[0] for key, value in records}
    if sums == expected.cents_of_window:
        return None
    windows = expected.cents_of_window
    wrong = sum(sums.get(window) != cents for window, cents in windows.items())
    return f"{wrong:,} of {len(windows):,} windows have a wrong sum, {len(sums):,} came out"


def records_of(bootstrap_servers: str, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every record now on the topic, in order within each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "queued.min.messages": 1_000_000,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_partitions = set(partitions)
        deadline = time.monotonic() + READ_DEADLINE_S
        while open_partitions:
            batch = consumer.consume(10_000, 0.5)
            if batch:
                deadline = time.monotonic() + READ_DEADLINE_S
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{topic}: the end of the topic did not come")
            for record in batch:
                error = record.error()
                if error is None:
                    yield record.key() or b"", record.value() or b""
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(record.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()

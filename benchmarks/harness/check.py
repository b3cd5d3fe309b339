"""Verification of output topics, so that fast but wrong results do not count."""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from harness.load import Load

READ_DEADLINE_S = 60.0

_LONG = struct.Struct(">q")
#: Stands for a missing number, because no sum has this value.
_MISSING = -(1 << 63)


def counts_of_users(load: Load) -> array[int]:
    """Return the number of records of each user, indexed by the user's number."""
    # Not a dict, because there may be ten million users.
    counts = array("q", bytes(8 * load.keys))
    for _, user, _ in load.events():
        counts[user] += 1
    return counts


def wrong_users(
    expected: array[int], records: Iterable[tuple[bytes, bytes]], *, sums_up: bool = False
) -> str | None:
    """Return a message if a user's last number, or sum of numbers, is wrong.

    The user's number is in the key (`user-7`); a user without a record has 0.
    """
    found = array("q", bytes(8 * len(expected)))
    unpack = _LONG.unpack
    for key, value in records:
        user = int(key[5:])
        found[user] = unpack(value)[0] + (found[user] if sums_up else 0)
    if found == expected:
        return None
    wrong = sum(one != other for one, other in zip(expected, found, strict=True))
    return f"{wrong:,} of {sum(map(bool, expected)):,} users have a wrong number"


class Numbers:
    """An expected number for each key, for tens of millions of keys.

    The actual numbers are compared without a second dict, which would require four more gigabytes
    for twenty million windows.
    """

    def __init__(self) -> None:
        self._indices: dict[bytes, int] = {}
        self._numbers = array("q")

    def add(self, key: bytes, number: int) -> None:
        """Add to the number of a key, which starts at 0."""
        index = self._indices.setdefault(key, len(self._numbers))
        if index == len(self._numbers):
            self._numbers.append(number)
        else:
            self._numbers[index] += number

    def wrong(self, records: Iterable[tuple[bytes, bytes]], noun: str) -> str | None:
        """Return a message if the last number of a key is wrong.

        An empty value means that the key is deleted.
        """
        expected, indices = self._numbers, self._indices
        found = array("q", [_MISSING]) * len(expected)
        others: set[bytes] = set()
        unpack = _LONG.unpack
        for key, value in records:
            index = indices.get(key)
            if index is not None:
                found[index] = unpack(value)[0] if value else _MISSING
            elif value:
                others.add(key)
            else:
                others.discard(key)
        if found == expected and not others:
            return None
        wrong = sum(one != other for one, other in zip(expected, found, strict=True))
        came = len(found) - found.count(_MISSING) + len(others)
        return f"{wrong:,} of {len(expected):,} {noun} have a wrong number; the output has {came:,}"


def records_of(bootstrap_servers: str, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the key and value of each record, in order within each partition."""
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
                raise TimeoutError(f"{topic}: the end of the topic was not reached")
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

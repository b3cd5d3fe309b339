"""Verification of output topics: fast but wrong results do not count."""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from load import Load

READ_DEADLINE_S = 60.0

_LONG = struct.Struct(">q")
#: Stands for a missing number; sums do not come near it.
_GONE = -(1 << 63)


def counts_of_users(load: Load) -> array[int]:
    """The number of records of each user, indexed by the user's number."""
    # Not a dict: there may be ten million users.
    counts = array("q", bytes(8 * load.keys))
    for _, user, _ in load.events():
        counts[user] += 1
    return counts


def wrong_users(
    expected: array[int], records: Iterable[tuple[bytes, bytes]], *, sums_up: bool = False
) -> str | None:
    """A message if the last number of each user, or the sum of all numbers, is wrong.

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

    Actual numbers are compared without a second dict, which would need four more gigabytes for
    twenty million windows.
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
        """A message if the last number of a key is wrong; an empty value means that the key is
        deleted."""
        expected, indices = self._numbers, self._indices
        found = array("q", [_GONE]) * len(expected)
        others: set[bytes] = set()
        unpack = _LONG.unpack
        for key, value in records:
            index = indices.get(key)
            if index is not None:
                found[index] = unpack(value)[0] if value else _GONE
            elif value:
                others.add(key)
            else:
                others.discard(key)
        if found == expected and not others:
            return None
        wrong = sum(one != other for one, other in zip(expected, found, strict=True))
        came = len(found) - found.count(_GONE) + len(others)
        return (
            f"{wrong:,} of {len(expected):,} {noun} have a wrong number, {came:,} {noun} came out"
        )


def records_of(bootstrap_servers: str, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each record on the topic, in order within each partition."""
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

"""Whether an output topic holds what it must: fast and wrong is no result."""

from __future__ import annotations

import struct
import time
from array import array
from collections.abc import Iterable, Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from load import Load

READ_DEADLINE_S = 60.0

_LONG = struct.Struct(">q")
#: Stands for no number: no sum comes near it.
_GONE = -(1 << 63)


def counts_of_users(load: Load) -> array[int]:
    """How many records each user has, by the user's number."""
    # Not a dict: there may be ten million of them.
    counts = array("q", bytes(8 * load.keys))
    for _, user, _ in load.events():
        counts[user] += 1
    return counts


def wrong_users(
    expected: array[int], records: Iterable[tuple[bytes, bytes]], *, added_up: bool = False
) -> str | None:
    """What is wrong with the last number of each user, or with the sum of all that came.

    The user's number is in the key (`user-7`); a user without a record has 0.
    """
    found = array("q", bytes(8 * len(expected)))
    unpack = _LONG.unpack
    for key, value in records:
        user = int(key[5:])
        found[user] = unpack(value)[0] + (found[user] if added_up else 0)
    if found == expected:
        return None
    wrong = sum(one != other for one, other in zip(expected, found, strict=True))
    return f"{wrong:,} of {sum(map(bool, expected)):,} users have a wrong number"


class Numbers:
    """A number for each of some keys, of which there may be tens of millions.

    What is found is held against them without another dict: that would be four gigabytes once more
    of twenty million windows.
    """

    def __init__(self) -> None:
        self._places: dict[bytes, int] = {}
        self._numbers = array("q")

    def add(self, key: bytes, number: int) -> None:
        """Add to the number of a key, which begins with 0."""
        place = self._places.setdefault(key, len(self._numbers))
        if place == len(self._numbers):
            self._numbers.append(number)
        else:
            self._numbers[place] += number

    def wrong(self, records: Iterable[tuple[bytes, bytes]], what: str) -> str | None:
        """What is wrong with the last number of each key; no value means that the key is gone."""
        expected, places = self._numbers, self._places
        found = array("q", [_GONE]) * len(expected)
        others: set[bytes] = set()
        unpack = _LONG.unpack
        for key, value in records:
            place = places.get(key)
            if place is not None:
                found[place] = unpack(value)[0] if value else _GONE
            elif value:
                others.add(key)
            else:
                others.discard(key)
        if found == expected and not others:
            return None
        wrong = sum(one != other for one, other in zip(expected, found, strict=True))
        came = len(found) - found.count(_GONE) + len(others)
        return (
            f"{wrong:,} of {len(expected):,} {what} have a wrong number, {came:,} {what} came out"
        )


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

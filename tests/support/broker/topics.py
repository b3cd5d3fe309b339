"""Filling and reading the topics of a real broker, independently of the engine's own clients."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from support.waiting import wait_for

_numbers = itertools.count()
#: Longer than any broker of a test is away, all three of a cluster included.
_FLUSH_S = 240

#: What a broker answers that has not been asked for a group before.
_NOT_READY = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


def unique(name: str) -> str:
    """A name that no other test of this session uses."""
    return f"{name}-{next(_numbers)}"


class Writer:
    """Writes records, acknowledged, and each of them once.

    Args:
        bootstrap: the broker.
    """

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "linger.ms": 20,
                "partitioner": "murmur2_random",
                # A record whose answer is lost must not come twice.
                "enable.idempotence": True,
                # A broker that is away is what many a test is about.
                "log_level": 2,
            }
        )

    def write(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> int:
        """Write records; how many."""
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        count = 0
        for key, value in records:
            while True:
                try:
                    self._producer.produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            count += 1
            self._producer.poll(0)
        assert self._producer.flush(_FLUSH_S) == 0
        assert not failed
        return count


def fill(bootstrap: str, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> int:
    """Write records, acknowledged; how many."""
    return Writer(bootstrap).write(topic, records)


def read_all(bootstrap: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Every committed record of a topic up to its end now, partition by partition."""
    return [(message.key(), message.value()) for message in read_messages(bootstrap, topic)]


def read_messages(bootstrap: str, topic: str) -> list[Message]:
    """The same, as they were received."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        metadata = consumer.list_topics(topic, 30).topics[topic]
        records: list[Message] = []
        for partition in metadata.partitions:
            place = TopicPartition(topic, partition, 0)
            low, high = consumer.get_watermark_offsets(place, timeout=30)
            if high == low:
                continue
            consumer.assign([TopicPartition(topic, partition, low)])
            while consumer.position([place])[0].offset < high:
                message = consumer.poll(30)
                assert message is not None, f"{topic}-{partition} could not be read to its end"
                if (error := message.error()) is not None:
                    # Markers of transactions are at the end, or one that is open.
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    break
                records.append(message)
        return records
    finally:
        consumer.close()


def latest(bootstrap: str, topic: str) -> dict[bytes | None, bytes | None]:
    """The last value of each key."""
    return dict(read_all(bootstrap, topic))


def committed_lag(bootstrap: str, group: str, topic: str) -> int:
    """How many records of a topic the group has not committed."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        partitions = consumer.list_topics(topic, 30).topics[topic].partitions
        places = [TopicPartition(topic, partition) for partition in partitions]
        lag = 0
        for place in consumer.committed(places, 30):
            low, high = consumer.get_watermark_offsets(place, timeout=30)
            lag += high - (place.offset if place.offset >= 0 else low)
        return lag
    finally:
        consumer.close()


def topic_names(bootstrap: str) -> set[str]:
    """The topics of the cluster."""
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def group_members(bootstrap: str, group: str) -> int:
    """How many members a group has."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def described() -> list[int]:
        (answer,) = admin.describe_consumer_groups([group]).values()
        try:
            return [len(answer.result(30).members)]
        except KafkaException as error:
            if error.args[0].code() not in _NOT_READY:
                raise
            return []

    return wait_for(described, 30, "the group is described")[0]

"""Fills a topic with the benchmark's records, which only depend on the seed.

A record is an event of about 70 bytes of JSON; the key is its user:

    user-4242 → {"id":1234567,"user":"user-4242","amount":17.55,"kind":"add-to-cart"}

The timestamps increase by a millisecond per record; the last one is about now. As a program, this
file fills a topic of your choice:

    python benchmarks/harness/load.py --bootstrap-servers localhost:9092 --topic events \\
        --records 1000000
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

USERS = 10_000
KINDS = ("page-view", "add-to-cart", "purchase", "refund")
SEED = 20

#: The maximum size of the producer's queue, in records. Sending blocks while the queue is full.
QUEUE_RECORDS = 500_000
DELIVERY_TIMEOUT_S = 120.0


def user_key(user: int) -> bytes:
    """Return the key of a user's records."""
    return b"user-%d" % user


@dataclass(frozen=True, slots=True)
class Load:
    """The reproducible input of a job.

    Args:
        servers: the bootstrap servers.
        topic: the input topic; other topics of a job are called `<topic>-<name>`.
        records: the total number of records in all topics.
        keys: the number of users.
        partitions: the partitions of each topic.
        seed: the seed of the random numbers.
    """

    servers: str
    topic: str
    records: int
    keys: int = USERS
    partitions: int = 4
    seed: int = SEED
    #: The timestamp of the last record: about now.
    ends_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    @property
    def began_ms(self) -> int:
        """The timestamp of the first record."""
        return self.ends_ms - self.records

    def events(self, count: int | None = None) -> Iterator[tuple[int, int, float]]:
        """Yield the timestamp, user and amount of all records, or of the first `count`."""
        draw = random.Random(self.seed).random
        keys = self.keys
        began_ms = self.began_ms
        for number in range(self.records if count is None else count):
            user = int(draw() * keys)
            yield began_ms + number, user, int(draw() * 10_000) / 100

    def other_topic(self, name: str) -> str:
        """Return the name of another topic of this load."""
        return f"{self.topic}-{name}"

    def create(self, name: str = "") -> Writer:
        """Create a topic of this load, by default the input, and return its writer.

        Raises:
            KafkaException: the topic already exists, or the broker rejected it.
        """
        topic = self.other_topic(name) if name else self.topic
        create_topic(self.servers, topic, self.partitions)
        return Writer(self.servers, topic)


def event_json(number: int, user: int, amount: float) -> bytes:
    """Return the value of a record."""
    kind = KINDS[number % len(KINDS)]
    return b'{"id":%d,"user":"user-%d","amount":%s,"kind":"%s"}' % (
        number,
        user,
        str(amount).encode(),
        kind.encode(),
    )


def fill(load: Load) -> None:
    """Create the input topic and write the events to it.

    Raises:
        KafkaException: a record was not written.
    """
    writer = load.create()
    for number, (timestamp, user, amount) in enumerate(load.events()):
        writer.send(user_key(user), event_json(number, user, amount), timestamp)
    writer.flush()


class Writer:
    """Writes many records to one topic, with the partitioning of the Java client.

    Args:
        compression: the compression of batches.
        linger_ms: how long a record may wait for others.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        *,
        compression: str = "lz4",
        linger_ms: int = 50,
    ) -> None:
        self._topic = topic
        self._failures = failures = list[KafkaError]()

        # Does not reference the writer, so that the producer is freed together with the writer.
        def on_delivery(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "compression.type": compression,
                "linger.ms": linger_ms,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": QUEUE_RECORDS,
                "delivery.report.only.error": True,
                "on_delivery": on_delivery,
                "log_level": 3,
            }
        )

    def send(self, key: bytes, value: bytes, timestamp: int = 0, partition: int = -1) -> None:
        """Write a record; block while the queue is full.

        The defaults are the current time and the partition of the key.

        Raises:
            KafkaException: an earlier record was not written.
        """
        while True:
            try:
                self._producer.produce(self._topic, value, key, partition, timestamp=timestamp)
                break
            except BufferError:
                self._producer.poll(0.1)
        if self._failures:
            raise KafkaException(self._failures[0])

    def flush(self) -> None:
        """Wait until all records are written.

        Raises:
            KafkaException: a record was not written.
        """
        unsent = self._producer.flush(DELIVERY_TIMEOUT_S)
        if self._failures or unsent:
            error = self._failures[0] if self._failures else KafkaError(KafkaError._TIMED_OUT)
            raise KafkaException(error)


def create_topic(
    bootstrap_servers: str, topic: str, partitions: int, cleanup_policy: str = "delete"
) -> None:
    """Create a topic without replication, whose records do not expire.

    Raises:
        KafkaException: the topic already exists, or the broker rejected it.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    config = {"retention.ms": "-1", "cleanup.policy": cleanup_policy}
    new_topic = NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([new_topic], operation_timeout=30)[topic].result(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=USERS)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=SEED)
    given = parser.parse_args()
    load = Load(
        given.bootstrap_servers,
        given.topic,
        given.records,
        given.keys,
        given.partitions,
        given.seed,
    )
    fill(load)
    print(f"{load.records:,} records of up to {load.keys:,} users were written to {load.topic}")


if __name__ == "__main__":
    main()

"""Fills a topic with the benchmark's records, the same ones for the same seed.

A record is an event of about 70 bytes of JSON under the key of its user:

    user-4242 → {"id":1234567,"user":"user-4242","amount":17.55,"kind":"add-to-cart"}

One comes a millisecond, by their timestamps; the last one comes about now. What the jobs must make
of them is worked out here too, so that every run can be checked. Run alone it fills a topic of
yours:

    python benchmarks/load.py --bootstrap-servers localhost:9092 --topic events --records 1000000
"""

from __future__ import annotations

import argparse
import random
import struct
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

USERS = 10_000
KINDS = ("page-view", "add-to-cart", "purchase", "refund")
#: The stateless job keeps amounts above this: three records in five.
PASS_ABOVE = 40.0
#: The job with windows cuts time by this.
WINDOW_MS = 60_000
SEED = 20

#: Bound of the producer's queue, in records; a full queue is waited for.
QUEUE_RECORDS = 500_000
DELIVERY_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Expected:
    """What a correct run leaves on the output topics.

    Windows are told by the bytes of their keys: those of the user, then the start.
    """

    records: int
    passed: int
    cents: int
    count_of_user: dict[str, int]
    cents_of_window: dict[bytes, int]


def cents(amount: float) -> int:
    """The price with a tax of 20 %: what one job adds as a field and another one sums."""
    return int(amount * 120)


def events(count: int, seed: int = SEED) -> Iterator[tuple[int, float, str]]:
    """User number, amount and JSON text of each record, in order of production."""
    draw = random.Random(seed).random
    kinds = len(KINDS)
    for number in range(count):
        user = int(draw() * USERS)
        amount = int(draw() * 10_000) / 100
        kind = KINDS[number % kinds]
        yield (
            user,
            amount,
            f'{{"id":{number},"user":"user-{user}","amount":{amount},"kind":"{kind}"}}',
        )


class Writer:
    """Writes many records to one topic, partitioned as Java does it.

    Args:
        bootstrap_servers: the broker.
        topic: where to write.
        compression: of the batches.
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

        # Knows nothing of the writer, so that the producer goes with it, at once.
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

    def send(self, key: bytes, value: bytes, timestamp: int = 0) -> None:
        """Writes one record, as of now if there is no timestamp; waits where the queue is full.

        Raises:
            KafkaException: an earlier record was not written.
        """
        while True:
            try:
                self._producer.produce(self._topic, value, key, timestamp=timestamp)
                break
            except BufferError:
                self._producer.poll(0.1)
        if self._failures:
            raise KafkaException(self._failures[0])

    def flush(self) -> None:
        """Waits until everything is written.

        Raises:
            KafkaException: a record was not.
        """
        unsent = self._producer.flush(DELIVERY_TIMEOUT_S)
        if self._failures or unsent:
            error = self._failures[0] if self._failures else KafkaError(KafkaError._TIMED_OUT)
            raise KafkaException(error)


def fill(bootstrap_servers: str, topic: str, count: int, seed: int = SEED) -> Expected:
    """Writes `count` records to `topic` and says what the jobs must make of them.

    Raises:
        KafkaException: a record was not written.
    """
    writer = Writer(bootstrap_servers, topic)
    names = [f"user-{user}" for user in range(USERS)]
    keys = [name.encode() for name in names]
    counts = [0] * USERS
    passed = total_cents = 0
    sums: defaultdict[bytes, int] = defaultdict(int)
    began_ms = time.time_ns() // 1_000_000 - count
    for number, (user, amount, text) in enumerate(events(count, seed)):
        timestamp = began_ms + number
        price = cents(amount)
        counts[user] += 1
        if amount > PASS_ABOVE:
            passed += 1
            total_cents += price
        sums[keys[user] + struct.pack(">q", timestamp - timestamp % WINDOW_MS)] += price
        writer.send(keys[user], text.encode(), timestamp)
    writer.flush()
    count_of_user = {names[user]: times for user, times in enumerate(counts) if times}
    return Expected(count, passed, total_cents, count_of_user, dict(sums))


def create_topic(
    bootstrap_servers: str, topic: str, partitions: int, cleanup_policy: str = "delete"
) -> None:
    """A topic without replicas, whose records never expire.

    Raises:
        KafkaException: it exists already, or the broker refused it.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    config = {"retention.ms": "-1", "cleanup.policy": cleanup_policy}
    wanted = NewTopic(topic, partitions, 1, config=config)
    admin.create_topics([wanted], operation_timeout=30)[topic].result(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    create_topic(options.bootstrap_servers, options.topic, options.partitions)
    expected = fill(options.bootstrap_servers, options.topic, options.records, options.seed)
    print(
        f"{expected.records:,} records of {len(expected.count_of_user):,} users on "
        f"{options.topic}; {expected.passed:,} have an amount above {PASS_ABOVE}"
    )


if __name__ == "__main__":
    main()

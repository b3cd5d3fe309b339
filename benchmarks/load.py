"""Fills a topic with the benchmark's records, the same ones for the same seed.

A record is an event of about 70 bytes of JSON under the key of its user:

    user-4242 → {"id":1234567,"user":"user-4242","amount":17.55,"kind":"add-to-cart"}

What the two jobs must make of them is worked out here too, so that every run can be checked.
Run alone it fills a topic of yours:

    python benchmarks/load.py --bootstrap-servers localhost:9092 --topic events --records 1000000
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

USERS = 10_000
KINDS = ("page-view", "add-to-cart", "purchase", "refund")
#: The stateless job keeps amounts above this: three records in five.
PASS_ABOVE = 40.0
SEED = 20

#: Bound of the producer's queue, in records; a full queue is waited for.
QUEUE_RECORDS = 500_000
DELIVERY_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Expected:
    """What a correct run leaves on the output topics."""

    records: int
    passed: int
    cents: int
    count_of_user: dict[str, int]


def cents(amount: float) -> int:
    """The price with a tax of 20 %: the field that the stateless job adds."""
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


def fill(bootstrap_servers: str, topic: str, count: int, seed: int = SEED) -> Expected:
    """Writes `count` records to `topic` and says what the jobs must make of them.

    Raises:
        KafkaException: a record was not written.
    """
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "delivery.report.only.error": True,
            "on_delivery": on_delivery,
            "log_level": 3,
        }
    )
    names = [f"user-{user}" for user in range(USERS)]
    keys = [name.encode() for name in names]
    counts = [0] * USERS
    passed = total_cents = 0
    for user, amount, text in events(count, seed):
        counts[user] += 1
        if amount > PASS_ABOVE:
            passed += 1
            total_cents += cents(amount)
        _produce(producer, topic, keys[user], text.encode())
        if failures:
            raise KafkaException(failures[0])
    unsent = producer.flush(DELIVERY_TIMEOUT_S)
    if failures or unsent:
        raise KafkaException(failures[0] if failures else KafkaError(KafkaError._TIMED_OUT))
    count_of_user = {names[user]: times for user, times in enumerate(counts) if times}
    return Expected(count, passed, total_cents, count_of_user)


def _produce(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, key)
            return
        except BufferError:
            producer.poll(0.1)


def create_topic(bootstrap_servers: str, topic: str, partitions: int) -> None:
    """A topic without replicas, whose records never expire.

    Raises:
        KafkaException: it exists already, or the broker refused it.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 4})
    wanted = NewTopic(topic, partitions, 1, config={"retention.ms": "-1"})
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

"""Data clients on a real broker, and what they read."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.data.batch_limits import BatchLimits
from millstream.kafka.data.consumer import RecordConsumer
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.data.transactions import TransactionalRecordProducer
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition
from support.broker.topics import unique
from support.waiting import gather, wait_for

TIMEOUT_MS = 20_000

#: More than topics with max.message.bytes=1000 take, however it is compressed.
LARGE = random.Random(1).randbytes(5_000)


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Read(NamedTuple):
    """A record that was read."""

    partition: int
    value: bytes | None
    timestamp: int


class Clients:
    """Makes data clients for one broker and closes them.

    Args:
        bootstrap: the broker.
        speedups: as the setting, for all of them.
    """

    def __init__(self, bootstrap: str, speedups: bool | None = None) -> None:
        self.bootstrap = bootstrap
        self.speedups = speedups
        self._opened: list[Any] = []

    def config(self, **settings: Any) -> StreamsConfig:
        return StreamsConfig(
            **{
                "application_id": "app",
                "bootstrap_servers": self.bootstrap,
                **settings,
            }
        )

    def consumer(self, **settings: Any) -> RecordConsumer:
        told = librdkafka_settings(self.config(**settings), "main_consumer", "c")
        return self._keep(RecordConsumer(told, speedups=self.speedups))

    def producer(
        self, *, own: Any = None, limited: bool = False, **settings: Any
    ) -> RecordProducer:
        told = {**librdkafka_settings(self.config(**settings), "producer", "p"), **(own or {})}
        limits = BatchLimits(self.admin(), SystemClock(), TIMEOUT_MS) if limited else None
        return self._keep(
            RecordProducer(told, limits=limits, max_block_ms=2_000, speedups=self.speedups)
        )

    def transactions(
        self, transactional_id: str, *, own: Any = None
    ) -> TransactionalRecordProducer:
        config = self.config(processing_guarantee="exactly_once_v2")
        told = {**librdkafka_settings(config, "producer", "p"), **(own or {})}
        return self._keep(
            TransactionalRecordProducer(
                told, transactional_id, max_block_ms=2_000, speedups=self.speedups
            )
        )

    def begun(
        self, *, transactional: bool, own: Any = None
    ) -> tuple[RecordProducer, Callable[[int], None]]:
        """A producer, and what it finishes with: a commit or a flush."""
        if not transactional:
            producer = self.producer(own=own)
            return producer, producer.flush
        transactions = self.transactions(unique("tx"), own=own)
        transactions.init_transactions(TIMEOUT_MS)
        return transactions, transactions.commit_transaction

    def admin(self, **settings: Any) -> ClusterAdmin:
        return self._keep(ClusterAdmin(librdkafka_settings(self.config(**settings), "admin", "a")))

    def _keep(self, client: C) -> C:
        self._opened.append(client)
        return client

    def close(self) -> None:
        for client in self._opened:
            client.close()


def begin_again(producer: RecordProducer) -> None:
    """What whoever sends does after a purge, which may have replaced the client."""
    if isinstance(producer, TransactionalRecordProducer) and not producer.is_ready:
        producer.init_transactions(TIMEOUT_MS)


def place(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def numbered(count: int, start: int = 0) -> tuple[list[bytes], list[bytes], list[int]]:
    numbers = range(start, start + count)
    return (
        [b"k%d" % n for n in numbers],
        [b"v%d" % n for n in numbers],
        [1_000 + n for n in numbers],
    )


def poll(consumer: RecordConsumer, max_records: int, timeout_ms: int) -> list[Read]:
    """The next records, those of each partition in order."""
    return [
        Read(place.partition, value, timestamp)
        for place, columns in consumer.poll_columns(max_records, timeout_ms).items()
        for value, timestamp in zip(columns.values, columns.timestamps, strict=True)
    ]


def poll_values(consumer: RecordConsumer, count: int, max_records: int = 500) -> list[bytes | None]:
    """The values of the next `count` records."""
    return gather(
        lambda: [record.value for record in poll(consumer, max_records, 500)],
        lambda values: len(values) >= count,
    )


def until_end(consumer: RecordConsumer, partition: TopicPartition) -> list[Read]:
    """Every record up to the end."""
    return gather(lambda: poll(consumer, 500, 500), lambda _: consumer.at_end(partition))


def poll_until_error(consumer: RecordConsumer, values: list[bytes | None]) -> None:
    """Collect values until a poll raises; at most 20 s."""
    for _ in range(40):
        values += [record.value for record in poll(consumer, 100, 500)]


def queued_so_far(consumer: RecordConsumer, other: TopicPartition) -> None:
    """Wait until the client has queued what it knows of the partitions assigned so far.

    A partition that is assigned after them is fetched after them.
    """
    consumer.assign({other: 0})
    wait_for(lambda: consumer.high_watermark(other), 20, f"{other} is fetched")

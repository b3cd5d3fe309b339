"""Data clients on a real broker, and the records that they read."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from millstream.clock import SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.kafka.clients.producer_clients import BatchLimits
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TopicPartition
from support.broker.topics import unique
from support.waiting import gather, wait_for

TIMEOUT_MS = 20_000

#: A value that topics with max.message.bytes=1000 reject, even when it is compressed.
LARGE = random.Random(1).randbytes(5_000)


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class PolledRecord(NamedTuple):
    """A record that a poll returned."""

    partition: int
    value: bytes | None
    timestamp: int


class Clients:
    """Creates data clients for one broker and closes them."""

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
        config = librdkafka_settings(self.config(**settings), "main_consumer", "c")
        return self._keep(RecordConsumer(config, speedups=self.speedups))

    def producer(
        self, *, own: Any = None, limited: bool = False, **settings: Any
    ) -> RecordProducer:
        config = {**librdkafka_settings(self.config(**settings), "producer", "p"), **(own or {})}
        limits = BatchLimits(self.admin(), SystemClock(), TIMEOUT_MS) if limited else None
        return self._keep(
            RecordProducer(config, limits=limits, max_block_ms=2_000, speedups=self.speedups)
        )

    def transactions(
        self, transactional_id: str, *, own: Any = None
    ) -> TransactionalRecordProducer:
        config = self.config(processing_guarantee="exactly_once_v2")
        client_settings = {**librdkafka_settings(config, "producer", "p"), **(own or {})}
        return self._keep(
            TransactionalRecordProducer(
                client_settings, transactional_id, max_block_ms=2_000, speedups=self.speedups
            )
        )

    def begun(
        self, *, transactional: bool, own: Any = None
    ) -> tuple[RecordProducer, Callable[[int], None]]:
        """A producer, and the call that finishes its work: a commit or a flush."""
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
    """Start a transaction again after a purge, which may have replaced the client."""
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


def poll(consumer: RecordConsumer, max_records: int, timeout_ms: int) -> list[PolledRecord]:
    """The next records; those of each partition are in order."""
    return [
        PolledRecord(place.partition, value, timestamp)
        for place, columns in consumer.poll_columns(max_records, timeout_ms).items()
        for value, timestamp in zip(columns.values, columns.timestamps, strict=True)
    ]


def poll_values(consumer: RecordConsumer, count: int, max_records: int = 500) -> list[bytes | None]:
    """The values of the next `count` records."""
    return gather(
        lambda: [record.value for record in poll(consumer, max_records, 500)],
        lambda values: len(values) >= count,
    )


def until_end(consumer: RecordConsumer, partition: TopicPartition) -> list[PolledRecord]:
    """Every record up to the end."""
    return gather(lambda: poll(consumer, 500, 500), lambda _: consumer.at_end(partition))


def poll_until_error(consumer: RecordConsumer, values: list[bytes | None]) -> None:
    """Collect values until a poll raises an error; at most 20 s."""
    for _ in range(40):
        values += [record.value for record in poll(consumer, 100, 500)]


def queued_so_far(consumer: RecordConsumer, other: TopicPartition) -> None:
    """Wait until the client has queued the known records of all assigned partitions.

    A partition that is assigned later is fetched later.
    """
    consumer.assign({other: 0})
    wait_for(lambda: consumer.high_watermark(other), 20, f"{other} is fetched")

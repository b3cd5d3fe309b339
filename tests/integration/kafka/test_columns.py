"""Records as columns on a real broker: faults that each implementation could have, and faults of
the C extension."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from support.broker.data_clients import TIMEOUT_MS, Clients, numbered, place
from support.broker.topics import BrokerTopics, fill, unique
from support.strictness import needed_speedups
from support.waiting import gather, wait_for

from millstream.errors import ProductionError
from millstream.kafka.clients.reader import ColumnReader, FetchEvents
from millstream.kafka.clients.record_columns import RecordColumns, append_columns
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.partitioner import partition_for
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TopicPartition

Columns = dict[TopicPartition, RecordColumns]


def add(found: Columns, more: Columns) -> int:
    """Append columns to those found before, and return the number of records."""
    for partition, columns in more.items():
        found[partition] = (
            append_columns(found[partition], columns) if partition in found else columns
        )
    return sum(len(columns.values) for columns in more.values())


def read(consumer: RecordConsumer, count: int, most: int = 500) -> Columns:
    """The next records."""
    found: Columns = {}
    gather(
        lambda: [None] * add(found, consumer.poll_columns(most, 500)),
        lambda taken: len(taken) >= count,
    )
    return found


def test_gaps_in_offsets(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Goal: transaction markers and aborted records have offsets that no other record gets."""
    topic = make_topic()
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    for number in range(6):
        producer.send_many(topic, 0, *numbered(2, start=2 * number))
        if number % 3 == 1:
            producer.flush(TIMEOUT_MS)
            producer.purge(TIMEOUT_MS)
        else:
            producer.commit_transaction(TIMEOUT_MS)
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    consumer.assign({place(topic): 0})
    found = read(consumer, 8)[place(topic)]
    assert list(found.offsets) == [0, 1, 6, 7, 9, 10, 15, 16]
    assert found.values == [b"v%d" % number for number in (0, 1, 4, 5, 6, 7, 10, 11)]


def test_large_and_empty(clients: Clients, make_topic: Callable[..., str]) -> None:
    """An empty topic, an empty value, and a million bytes, next to each other."""
    topic = make_topic()
    large = random.Random(3).randbytes(1_000_000)
    values = [None, large, b"", large[::-1], None]
    headers: list[Any] = [None, [("large", large[:1_000])], None, (), [("ü", None), ("", b"")]]
    producer = clients.producer()
    producer.send_many(topic, 0, values[::-1], values[:1] * 5, [1] * 5)
    producer.send_many(topic, 0, [None] * 5, values, [1] * 5, headers)
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic): 0})
    found = read(consumer, 10)[place(topic)]
    assert found.keys == [*values[::-1], *[None] * 5]
    assert found.values == [*[None] * 5, *values]
    assert found.headers == [*[()] * 5, *(tuple(one or ()) for one in headers)]


def test_many_partitions(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Each record comes from its key's partition, in order, regardless of interleaved records."""
    topic, count = make_topic(partitions=60), 3_000
    keys, values, timestamps = numbered(count)
    producer = clients.producer()
    producer.send_many(topic, None, keys, values, timestamps)
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic, number): 0 for number in range(60)})
    found = read(consumer, count, most=2_000)
    for number in range(60):
        belonging = [i for i in range(count) if partition_for(keys[i], 60) == number]
        assert found[place(topic, number)].values == [values[i] for i in belonging]
        assert found[place(topic, number)].timestamps == [timestamps[i] for i in belonging]
        assert found[place(topic, number)].offsets == range(len(belonging))


@pytest.mark.parametrize("kind", ["plain", "tracked", "transactional"])
def test_records_that_the_broker_finds_invalid(
    clients: Clients, make_topic: Callable[..., str], kind: str
) -> None:
    """Goal: a broker may report individual errors for several records of a batch instead of an
    error of the batch. None of these records may count as written."""
    topic = make_topic(cleanup_policy="compact")
    own = {"linger.ms": 100}
    producer, finish = clients.begun(transactional=kind == "transactional", own=own)
    if kind == "tracked":
        producer.track(topic)
    producer.send_many(topic, 0, [None] * 5, [b"v"] * 5, [1] * 5)
    with pytest.raises(ProductionError):
        finish(TIMEOUT_MS)
    assert producer.acked_offsets() == {}


class StandaloneReader:
    """A reader without a consumer, on a client that the test can access."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.ends: list[int] = []
        self.errors: list[Any] = []
        self.topic_errors: list[Any] = []
        self.client, native = needed_speedups().create(Consumer, settings)
        events = FetchEvents(
            lambda _, end: self.ends.append(end),
            lambda *error: self.errors.append(error),
            self.topic_errors.append,
        )
        self.reader = ColumnReader(self.client, native, events)

    def assign(self, partition: TopicPartition, offset: int) -> None:
        self.reader.begin([partition])
        self.client.incremental_assign([ClientPartition(*partition, offset)])

    def unassign(self, partition: TopicPartition) -> None:
        self.client.incremental_unassign([ClientPartition(*partition)])
        self.reader.end([partition])

    def read(self, count: int) -> Columns:
        found: Columns = {}
        gather(
            lambda: [None] * add(found, self.reader.read(1_000, 10, None).columns),
            lambda taken: len(taken) >= count,
        )
        return found

    def misdirected(self) -> list[bytes | None]:
        """Records in the client's own queue."""
        return [each.value() for each in self.client.consume(1_000, 0.1) if each.error() is None]

    def close(self) -> None:
        self.reader.close()
        self.client.close()


@pytest.fixture
def reading(clients: Clients, speedups: bool) -> Iterator[StandaloneReader]:
    if not speedups:
        pytest.fail("only for the extension: use only_columns")
    made = StandaloneReader(librdkafka_settings(clients.config(), "main_consumer", "c"))
    yield made
    made.close()


only_columns = pytest.mark.parametrize("speedups", ["columns"], indirect=True)


@only_columns
def test_no_record_arrives_in_the_clients_queue(
    reading: StandaloneReader, make_topic: Callable[..., str]
) -> None:
    """Goal: confluent-kafka's queue is only for events. librdkafka drops a partition's queue
    when the partition is unassigned, possibly after it is assigned again."""
    topic = make_topic()
    partition = place(topic)
    fill_numbers(reading, topic, 2_000)
    chance = random.Random(5)
    for _ in range(25):
        start = chance.randrange(1_500)
        reading.assign(partition, start)
        found = reading.read(chance.choice((1, 100)))[partition]
        assert found.values == numbers(start, len(found.values))
        if chance.random() < 0.3:
            reading.client.pause([ClientPartition(*partition)])
            assert reading.reader.read(10, 10, None).columns == {}
            reading.client.resume([ClientPartition(*partition)])
            after = start + len(found.values)
            assert after == 2_000 or reading.read(1)[partition].offsets[0] == after
        if chance.random() < 0.3:
            reading.client.seek(ClientPartition(*partition, 7))
            assert reading.read(1)[partition].values[0] == b"7"
        assert reading.misdirected() == []
        reading.unassign(partition)
        if chance.random() < 0.5:
            assert reading.reader.read(1_000, 10, None).columns == {}
    assert reading.errors == []


@only_columns
def test_a_deleted_topic_is_reported(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Detects a crash of the process: librdkafka reports the error among the records, where
    confluent-kafka's callbacks must not be called. It accepts the deletion only of a topic that
    has been in its metadata for some time."""
    topic = make_topic()
    fill(clients.bootstrap, topic, [(None, b"v")])
    settings = librdkafka_settings(clients.config(), "main_consumer", "c")
    soon = {"topic.metadata.propagation.max.ms": 300, "topic.metadata.refresh.interval.ms": 100}
    client_errors: list[Any] = []
    reading = StandaloneReader({**settings, **soon, "error_cb": client_errors.append})
    reading.assign(place(topic), 0)
    reading.read(1)
    known_since = time.monotonic()

    def poll() -> bool:
        return not reading.reader.read(10, 10, None).columns

    wait_for(
        lambda: poll() and time.monotonic() > known_since + 0.6,
        10,
        lambda: "the topic counts as known",
    )
    BrokerTopics(clients.bootstrap).delete(topic)
    wait_for(
        lambda: poll() and any("exist" in each.str() for each in reading.topic_errors),
        30,
        lambda: f"the error is reported; {reading.topic_errors}, {client_errors}, {reading.errors}",
    )
    assert reading.errors == []
    reading.close()


@only_columns
def test_records_in_the_clients_queue_come_first(
    reading: StandaloneReader, make_topic: Callable[..., str]
) -> None:
    """Goal: records that are in the client's own queue when a partition is forwarded are neither
    lost nor overtaken."""
    topic = make_topic()
    partition = place(topic)
    fill_numbers(reading, topic, 50)
    position = ClientPartition(*partition, 0)
    reading.client.incremental_assign([position])
    wait_for(
        lambda: reading.client.get_watermark_offsets(position, 1, True)[1] == 50, 20, "fetched"
    )
    first = reading.client.consume(5, 5)
    reading.reader.begin([partition])
    fill_numbers(reading, topic, 50, start=50)
    found = reading.read(95)[partition]
    assert [message.value() for message in first] == numbers(0, 5)
    assert found.values == numbers(5, 95)


def numbers(start: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def fill_numbers(reading: StandaloneReader, topic: str, count: int, start: int = 0) -> None:
    brokers = [
        f"{broker.host}:{broker.port}"
        for broker in reading.client.list_topics(timeout=20).brokers.values()
    ]
    fill(brokers[0], topic, [(b"k", number) for number in numbers(start, count)])


def test_memory_is_released(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Goal: neither written nor read records leak memory, with or without headers and gaps."""
    topic = make_topic()
    keys, values, timestamps = numbered(2_000)
    headers = [[("name", value)] for value in values]
    producer, consumer = clients.producer(), clients.consumer()
    consumer.assign({place(topic): 0})

    def go_round() -> int:
        producer.send_many(topic, 0, keys, values, timestamps, headers)
        producer.flush(TIMEOUT_MS)
        read(consumer, 2_000)
        return sys.getallocatedblocks()

    warm = [go_round() for _ in range(3)][-1]
    grown = [go_round() - warm for _ in range(5)][-1]
    assert grown < 2_000

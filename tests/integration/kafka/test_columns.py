"""Records as columns on a real broker: what each way of reading and writing them could get wrong,
and what the C extension alone could."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from support.broker.data_clients import TIMEOUT_MS, Clients, numbered, place
from support.broker.topics import fill, unique
from support.speedups import needed_speedups
from support.waiting import gather, wait_for

from millstream.errors import ProductionError
from millstream.kafka.data.column_reader import ColumnReader
from millstream.kafka.data.consumer import RecordConsumer
from millstream.kafka.data.reader import Events
from millstream.kafka.data.record_columns import RecordColumns, append_columns
from millstream.kafka.partitioner import partition_for
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TopicPartition

Columns = dict[TopicPartition, RecordColumns]


def add(found: Columns, more: Columns) -> int:
    """Put columns behind those that were found before; how many records there were."""
    for where, columns in more.items():
        found[where] = append_columns(found[where], columns) if where in found else columns
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
    """Aim: markers and aborted records have offsets, which no record may be given."""
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
    """Nothing, an empty value, and a million bytes, next to each other."""
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
    """Each record comes from where its key belongs, in order, whatever lies between."""
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
    """Aim: the broker may tell of several records of a batch what is wrong with each, instead of an
    error of the batch. None may pass for written."""
    topic = make_topic(cleanup_policy="compact")
    own = {"linger.ms": 100}
    producer, finish = clients.begun(transactional=kind == "transactional", own=own)
    if kind == "tracked":
        producer.track(topic)
    producer.send_many(topic, 0, [None] * 5, [b"v"] * 5, [1] * 5)
    with pytest.raises(ProductionError):
        finish(TIMEOUT_MS)
    assert producer.acked_offsets() == {}


class Reading:
    """A reader by itself, on a client that the test has at hand."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.ends: list[int] = []
        self.errors: list[Any] = []
        self.told: list[Any] = []
        self.client, native = needed_speedups().create(Consumer, settings)
        events = Events(
            lambda _, end: self.ends.append(end),
            lambda *told: self.errors.append(told),
            self.told.append,
        )
        self.reader = ColumnReader(self.client, native, events)

    def assign(self, where: TopicPartition, offset: int) -> None:
        self.reader.begin([where])
        self.client.incremental_assign([ClientPartition(*where, offset)])

    def unassign(self, where: TopicPartition) -> None:
        self.client.incremental_unassign([ClientPartition(*where)])
        self.reader.end([where])

    def read(self, count: int) -> Columns:
        found: Columns = {}
        gather(
            lambda: [None] * add(found, self.reader.read(1_000, 10, None).columns),
            lambda taken: len(taken) >= count,
        )
        return found

    def strays(self) -> list[bytes | None]:
        """Records that are in the client's own queue."""
        return [each.value() for each in self.client.consume(1_000, 0.1) if each.error() is None]

    def close(self) -> None:
        self.reader.close()
        self.client.close()


@pytest.fixture
def reading(clients: Clients, speedups: bool) -> Iterator[Reading]:
    if not speedups:
        pytest.fail("of the extension only: choose columns")
    made = Reading(librdkafka_settings(clients.config(), "main_consumer", "c"))
    yield made
    made.close()


only_columns = pytest.mark.parametrize("speedups", ["columns"], indirect=True)


@only_columns
def test_nothing_comes_the_other_way(reading: Reading, make_topic: Callable[..., str]) -> None:
    """Aim: confluent-kafka's queue is for events; librdkafka forgets where to put records when a
    partition is given up, and it may do so after the partition is back."""
    topic = make_topic()
    where = place(topic)
    fill_numbers(reading, topic, 2_000)
    chance = random.Random(5)
    for _ in range(25):
        start = chance.randrange(1_500)
        reading.assign(where, start)
        found = reading.read(chance.choice((1, 100)))[where]
        assert found.values == numbers(start, len(found.values))
        if chance.random() < 0.3:
            reading.client.pause([ClientPartition(*where)])
            assert reading.reader.read(10, 10, None).columns == {}
            reading.client.resume([ClientPartition(*where)])
            after = start + len(found.values)
            assert after == 2_000 or reading.read(1)[where].offsets[0] == after
        if chance.random() < 0.3:
            reading.client.seek(ClientPartition(*where, 7))
            assert reading.read(1)[where].values[0] == b"7"
        assert reading.strays() == []
        reading.unassign(where)
        if chance.random() < 0.5:
            assert reading.reader.read(1_000, 10, None).columns == {}
    assert reading.errors == []


@only_columns
def test_what_is_said_of_a_topic_that_is_gone(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Hunts for the end of the process: librdkafka tells it among the records, where no callback of
    confluent-kafka's may be called. It believes it when it has known the topic for some time."""
    topic = make_topic()
    fill(clients.bootstrap, topic, [(None, b"v")])
    settings = librdkafka_settings(clients.config(), "main_consumer", "c")
    soon = {"topic.metadata.propagation.max.ms": 300, "topic.metadata.refresh.interval.ms": 100}
    told_by_client: list[Any] = []
    reading = Reading({**settings, **soon, "error_cb": told_by_client.append})
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
    admin = AdminClient({"bootstrap.servers": clients.bootstrap})
    admin.delete_topics([topic])[topic].result(10)
    wait_for(
        lambda: poll() and any("exist" in each.str() for each in reading.told),
        30,
        lambda: f"it is told; {reading.told}, {told_by_client}, {reading.errors}",
    )
    assert reading.errors == []
    reading.close()


@only_columns
def test_what_came_the_other_way_goes_ahead(
    reading: Reading, make_topic: Callable[..., str]
) -> None:
    """Aim: records that lie in the client's own queue when a partition is forwarded are neither
    lost nor overtaken."""
    topic = make_topic()
    where = place(topic)
    fill_numbers(reading, topic, 50)
    position = ClientPartition(*where, 0)
    reading.client.incremental_assign([position])
    wait_for(
        lambda: reading.client.get_watermark_offsets(position, 1, True)[1] == 50, 20, "fetched"
    )
    first = reading.client.consume(5, 5)
    reading.reader.begin([where])
    fill_numbers(reading, topic, 50, start=50)
    found = reading.read(95)[where]
    assert [message.value() for message in first] == numbers(0, 5)
    assert found.values == numbers(5, 95)


def numbers(start: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def fill_numbers(reading: Reading, topic: str, count: int, start: int = 0) -> None:
    brokers = [
        f"{broker.host}:{broker.port}"
        for broker in reading.client.list_topics(timeout=20).brokers.values()
    ]
    fill(brokers[0], topic, [(b"k", number) for number in numbers(start, count)])


def test_memory_is_given_back(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Aim: neither what is written nor what is read stays behind, with headers and gaps or not."""
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

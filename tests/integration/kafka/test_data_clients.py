"""The data clients against a real broker: reading, writing, transactions, topics."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, Protocol, TypeVar

import pytest
from confluent_kafka import Consumer, Message
from support.broker.topics import fill, read_all, topic_names, unique
from support.waiting import gather, wait_for

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    OffsetOutOfRangeError,
    ProductionError,
    RecordRefusedError,
    TaskMigratedError,
    TopologyError,
    UnknownTopicError,
)
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.data.batch_limits import BatchLimits
from millstream.kafka.data.consumer import OFFSET_BEGINNING, OFFSET_END, RecordConsumer
from millstream.kafka.data.group_metadata import GroupMetadata
from millstream.kafka.data.producer import RecordProducer
from millstream.kafka.data.producer_errors import Changelog
from millstream.kafka.data.record_columns import RecordColumns
from millstream.kafka.data.transactions import TransactionalRecordProducer
from millstream.kafka.member.events import CommitOffset
from millstream.kafka.partitioner import partition_for
from millstream.kafka.settings.clients import librdkafka_settings
from millstream.record import TaskId, TopicPartition
from millstream.testing import EmbeddedKafka

TIMEOUT_MS = 20_000

#: More than topics with max.message.bytes=1000 take, however it is compressed.
LARGE = random.Random(1).randbytes(5_000)


class Closable(Protocol):
    def close(self) -> None: ...


C = TypeVar("C", bound=Closable)


class Clients:
    """Makes data clients for one broker and closes them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
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
        return self._keep(
            RecordConsumer(librdkafka_settings(self.config(**settings), "main_consumer", "c"))
        )

    def producer(
        self, *, own: Any = None, limited: bool = False, **settings: Any
    ) -> RecordProducer:
        told = {**librdkafka_settings(self.config(**settings), "producer", "p"), **(own or {})}
        limits = BatchLimits(self.admin(), SystemClock(), TIMEOUT_MS) if limited else None
        return self._keep(RecordProducer(told, limits=limits, max_block_ms=2_000))

    def transactions(
        self, transactional_id: str, *, own: Any = None
    ) -> TransactionalRecordProducer:
        config = self.config(processing_guarantee="exactly_once_v2")
        told = {**librdkafka_settings(config, "producer", "p"), **(own or {})}
        return self._keep(TransactionalRecordProducer(told, transactional_id, max_block_ms=2_000))

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


@pytest.fixture
def clients(kafka: EmbeddedKafka) -> Iterator[Clients]:
    made = Clients(kafka.bootstrap_servers)
    yield made
    made.close()


@pytest.fixture
def make_topic(kafka: EmbeddedKafka) -> Callable[..., str]:
    def make(partitions: int = 1, **config: str) -> str:
        name = unique("data")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topic(name, partitions=partitions, config=settings)
        return name

    return make


def place(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def numbered(count: int, start: int = 0) -> tuple[list[bytes], list[bytes], list[int]]:
    numbers = range(start, start + count)
    return (
        [b"k%d" % n for n in numbers],
        [b"v%d" % n for n in numbers],
        [1_000 + n for n in numbers],
    )


def poll_values(consumer: RecordConsumer, count: int, max_records: int = 500) -> list[bytes | None]:
    """The values of the next `count` records."""
    return gather(
        lambda: [message.value() for message in consumer.poll(max_records, 500)],
        lambda values: len(values) >= count,
    )


def until_end(consumer: RecordConsumer, partition: TopicPartition) -> list[Message]:
    """Every record up to the end."""
    return gather(lambda: consumer.poll(500, 500), lambda _: consumer.at_end(partition))


def poll_until_error(consumer: RecordConsumer, values: list[bytes | None]) -> None:
    """Collect values until a poll raises; at most 20 s."""
    for _ in range(40):
        values += [message.value() for message in consumer.poll(100, 500)]


def queued_so_far(consumer: RecordConsumer, other: TopicPartition) -> None:
    """Wait until the client has queued what it knows of the partitions assigned so far.

    A partition that is assigned after them is fetched after them.
    """
    consumer.assign({other: 0})
    wait_for(lambda: consumer.high_watermark(other), 20, f"{other} is fetched")


# Reading and writing


def test_records_come_back_as_they_were(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Keys, values, times and headers, None and empty included, in order."""
    topic = make_topic()
    keys = [b"k", None, b"", b"\x00\xff"]
    values = [None, b"v", b"", b"\xff" * 1_000]
    timestamps = [5, 1_700_000_000_000, 2**40, 7]
    headers = [(), [("a", b"1"), ("a", None), ("b", b"")], None, ()]
    producer = clients.producer()
    producer.send_many(topic, 0, keys, values, timestamps, headers)
    producer.send(topic, 0, b"one", b"more", 9, [("h", b"x")])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic): 0})
    columns: dict[TopicPartition, RecordColumns] = {}
    while not columns:
        columns = consumer.poll_columns(100, 1_000)
    found = columns[place(topic)]
    assert found.keys == [*keys, b"one"]
    assert found.values == [*values, b"more"]
    assert found.timestamps == [*timestamps, 9]
    assert list(found.offsets) == [0, 1, 2, 3, 4]
    assert found.headers == [(), tuple(headers[1] or ()), (), (), (("h", b"x"),)]
    assert found.leader_epoch is not None


def test_the_epoch_itself_is_not_now(clients: Clients, make_topic: Callable[..., str]) -> None:
    """librdkafka takes timestamp 0 for "now": it must not."""
    topic = make_topic()
    producer = clients.producer()
    producer.send_many(topic, 0, [None, None], [b"a", b"b"], [0, 3])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic): 0})
    times = [message.timestamp()[1] for message in until_end(consumer, place(topic))]
    assert times == [1, 3]


def test_partitions_are_javas(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Without a partition the key decides as in Java; a list may mix both."""
    topic = make_topic(partitions=5)
    keys, values, timestamps = numbered(200)
    producer = clients.producer()
    producer.send_many(topic, None, keys, values, timestamps)
    producer.send_many(topic, [3, None, 4], keys[:3], [b"x", b"y", b"z"], timestamps[:3])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic, number): 0 for number in range(5)})
    found: dict[bytes | None, int | None] = {}
    while len(found) < 203:
        for message in consumer.poll(100, 1_000):
            found[message.value()] = message.partition()
    for key, value in zip(keys, values, strict=True):
        assert found[value] == partition_for(key, 5)
    assert (found[b"x"], found[b"y"], found[b"z"]) == (3, partition_for(keys[1], 5), 4)


def test_a_lone_record_passes_at_once(clients: Clients, make_topic: Callable[..., str]) -> None:
    """poll waits for the first record only, however many it may return."""
    topic = make_topic()
    consumer, producer = clients.consumer(), clients.producer()
    consumer.assign({place(topic): 0})
    until_end(consumer, place(topic))
    producer.send(topic, 0, b"k", b"v", 1)
    started = time.monotonic()
    assert len(consumer.poll(10_000, 15_000)) == 1
    assert time.monotonic() - started < 5


def test_poll_is_bounded(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Never more than asked for, none twice, none lost."""
    topic = make_topic()
    fill(clients.bootstrap, topic, [(b"k", b"%d" % number) for number in range(1_000)])
    consumer = clients.consumer()
    consumer.assign({place(topic): OFFSET_BEGINNING})
    sizes, values = list[int](), list[bytes | None]()
    while len(values) < 1_000:
        records = consumer.poll(7, 1_000)
        sizes.append(len(records))
        values += [record.value() for record in records]
    assert max(sizes) <= 7
    assert values == [b"%d" % number for number in range(1_000)]
    assert consumer.poll(7, 0) == []


def test_end_and_watermark(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Known without asking the broker, and over as soon as there is more to read."""
    topic, other = make_topic(), place("other")
    consumer = clients.consumer()
    here = place(topic)
    assert consumer.position(other) is None
    assert (consumer.at_end(other), consumer.high_watermark(other)) == (False, None)
    consumer.assign({here: 0})
    assert (consumer.position(here), consumer.at_end(here)) == (0, False)
    assert until_end(consumer, here) == []
    assert (consumer.position(here), consumer.high_watermark(here)) == (0, 0)
    fill(clients.bootstrap, topic, [(b"k", b"v")] * 10)
    assert len(poll_values(consumer, 4, max_records=4)) == 4
    assert (consumer.position(here), consumer.at_end(here)) == (4, False)
    until_end(consumer, here)
    assert (consumer.position(here), consumer.high_watermark(here)) == (10, 10)
    assert consumer.end_offsets([here]) == {here: 10}
    assert consumer.beginning_offsets([here]) == {here: 0}
    assert consumer.end_offsets([]) == {}


def test_partitions_come_and_go(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Each from its own offset, without disturbing the others."""
    topic, second = make_topic(partitions=2), make_topic()
    fill(clients.bootstrap, second, [(b"k", b"s%d" % number) for number in range(3)])
    producer = clients.producer()
    for partition in (0, 1):
        producer.send_many(topic, partition, *numbered(50, start=100 * partition))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic, 0): 40})
    assert poll_values(consumer, 10) == [b"v%d" % number for number in range(40, 50)]
    consumer.assign({place(topic, 1): 45, place(second): OFFSET_BEGINNING})
    assert sorted(poll_values(consumer, 8)) == [  # type: ignore[type-var]
        *(b"s%d" % number for number in range(3)),
        *(b"v%d" % number for number in range(145, 150)),
    ]
    assert consumer.assigned == {place(topic, 0), place(topic, 1), place(second)}
    with pytest.raises(IllegalStateError, match="Already assigned"):
        consumer.assign({place(topic, 1): 0})
    consumer.unassign([place(topic, 1), place("never", 3)])
    producer.send(topic, 1, b"k", b"not read", 1)
    producer.send(topic, 0, b"k", b"read", 1)
    producer.flush(TIMEOUT_MS)
    assert poll_values(consumer, 1) == [b"read"]
    consumer.assign({place(topic, 1): 50})
    assert poll_values(consumer, 1) == [b"not read"]
    consumer.unassign([place(topic, 1)])
    consumer.assign({place(topic, 1): OFFSET_END})
    until_end(consumer, place(topic, 1))
    assert consumer.position(place(topic, 1)) == 51


def test_what_was_fetched_before_a_partition_was_unassigned_does_not_come(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Method: take partitions away and give them back elsewhere, at random moments of fetching.

    Records come from assigned partitions only, one after the other from where each was assigned.
    """
    count, rounds, chance = 20_000, 300, random.Random(1)
    topic, other = make_topic(partitions=2), make_topic()
    places = [place(topic, 0), place(topic, 1), place(other)]
    producer = clients.producer()
    for each in places:
        producer.send_many(each.topic, each.partition, *numbered(count))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    position: dict[TopicPartition, int] = {}
    taken = 0
    for _ in range(rounds):
        for each in places:
            if each in position and chance.random() < 0.5:
                consumer.unassign([each])
                del position[each]
            if each not in position and chance.random() < 0.5:
                position[each] = chance.randrange(count // 2)
                consumer.assign({each: position[each]})
        for _ in range(chance.randrange(3)):
            most, wait_ms = chance.choice((10, 500)), chance.choice((0, 5, 20))
            for each, columns in consumer.poll_columns(most, wait_ms).items():
                first, last = columns.offsets[0], columns.offsets[-1]
                assert first == position[each]
                assert columns.values == numbered(last + 1 - first, start=first)[1]
                position[each] = last + 1
                taken += len(columns.offsets)
    assert taken > rounds


def test_pause_and_resume(clients: Clients, make_topic: Callable[..., str]) -> None:
    """A paused partition gives nothing, the others go on; then it goes on where it stopped."""
    topic = make_topic(partitions=2)
    producer = clients.producer()
    for partition in (0, 1):
        producer.send_many(topic, partition, *numbered(10, start=100 * partition))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    stopped, other = place(topic, 0), place(topic, 1)
    consumer.assign({stopped: 5})
    assert poll_values(consumer, 3, max_records=3) == [b"v5", b"v6", b"v7"]
    consumer.pause([stopped])
    consumer.assign({other: 0})
    assert poll_values(consumer, 10) == [b"v%d" % number for number in range(100, 110)]
    assert consumer.poll(10, 300) == []
    consumer.resume([stopped, other])
    assert poll_values(consumer, 2) == [b"v8", b"v9"]
    consumer.pause([stopped])
    consumer.unassign([stopped])
    consumer.assign({stopped: 9})
    assert poll_values(consumer, 1) == [b"v9"]
    assert until_end(consumer, stopped) == []
    consumer.pause([stopped])
    consumer.resume([stopped])
    assert not consumer.at_end(stopped), "more may have come"
    assert until_end(consumer, stopped) == []
    assert consumer.at_end(stopped)


def test_offsets_for_times(clients: Clients, make_topic: Callable[..., str]) -> None:
    """The first record at or after a time; a partition without one is left out."""
    topic = make_topic(partitions=2)
    producer = clients.producer()
    producer.send_many(topic, 0, [None] * 3, [b"a", b"b", b"c"], [100, 200, 300])
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    first, second = place(topic, 0), place(topic, 1)
    assert consumer.offsets_for_times({first: 150, second: 150}) == {first: 1}
    assert consumer.offsets_for_times({first: 301}) == {}


def test_an_offset_that_is_gone(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Raised with its place, after what other partitions had to say; then reading goes on."""
    topic = make_topic(partitions=2)
    producer = clients.producer()
    producer.send_many(topic, 0, *numbered(3))
    producer.send_many(topic, 1, *numbered(3))
    producer.flush(TIMEOUT_MS)
    for future in clients.admin().delete_records({place(topic, 1): 2}).values():
        future.result(20)
    for offset in (1, 99):
        consumer = clients.consumer()
        consumer.assign({place(topic, 0): 0, place(topic, 1): offset})
        values: list[bytes | None] = []
        with pytest.raises(OffsetOutOfRangeError) as raised:
            poll_until_error(consumer, values)
        assert (raised.value.topic, raised.value.partition) == (topic, 1)
        assert raised.value.offset == offset
        assert raised.value.offsets == {place(topic, 1): offset}
        consumer.unassign([place(topic, 1)])
        consumer.assign({place(topic, 1): OFFSET_BEGINNING})
        values += poll_values(consumer, 4 - len(values))
        assert sorted(values) == [b"v0", b"v1", b"v2", b"v2"]  # type: ignore[type-var]


def test_all_offsets_that_are_gone_are_told(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """librdkafka tells of each once and then reads it no further, so none may be forgotten."""
    topic = make_topic(partitions=4)
    producer = clients.producer()
    for partition in range(4):
        producer.send(topic, partition, None, b"%d" % partition, 1)
    producer.flush(TIMEOUT_MS)
    wrong = {place(topic, 0): 50, place(topic, 1): 51, place(topic, 3): 53}
    consumer = clients.consumer()
    consumer.assign(wrong)
    queued_so_far(consumer, place(topic, 2))
    told: dict[TopicPartition, int] = {}
    values: list[bytes | None] = []
    while told.keys() != wrong.keys():
        with pytest.raises(OffsetOutOfRangeError) as raised:
            poll_until_error(consumer, values)
        error = raised.value
        assert not told.keys() & error.offsets.keys()
        told.update(error.offsets)
        consumer.unassign(error.offsets)
        consumer.assign(dict.fromkeys(error.offsets, OFFSET_BEGINNING))
    assert told == wrong
    values += poll_values(consumer, 4 - len(values))
    assert sorted(values) == [b"0", b"1", b"2", b"3"]  # type: ignore[type-var]


def test_a_failure_goes_with_its_partition(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Found behind records of another partition, it waits for the next poll. Who gave the partition
    up in between hears nothing of it, not even when the partition is back."""
    topic = make_topic(partitions=3)
    producer = clients.producer()
    for partition in range(3):
        producer.send_many(topic, partition, *numbered(1))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    gone = place(topic, 1)
    consumer.assign({gone: 99})
    queued_so_far(consumer, place(topic, 0))
    queued_so_far(consumer, place(topic, 2))
    assert consumer.poll(100, 5_000)
    consumer.unassign([gone])
    assert consumer.poll(100, 300) == []
    consumer.assign({gone: 0})
    assert poll_values(consumer, 1) == [b"v0"]


def test_what_does_not_exist(clients: Clients, make_topic: Callable[..., str]) -> None:
    """An error at once, naming it; nothing is created, nothing is half assigned."""
    topic = make_topic()
    consumer = clients.consumer()
    absent = unique("missing")
    for missing in (place(absent), place(topic, 1)):
        with pytest.raises(UnknownTopicError) as raised:
            consumer.assign({place(topic): 0, missing: 0})
        assert raised.value.topic == missing.topic
        with pytest.raises(UnknownTopicError):
            consumer.end_offsets([missing])
        with pytest.raises(UnknownTopicError):
            clients.admin().end_offsets([missing])
    assert consumer.assigned == frozenset()
    assert absent not in topic_names(clients.bootstrap)


# Failures of records, and acknowledgements


@pytest.mark.parametrize("kind", ["plain", "tracked"])
def test_a_record_that_fails_is_seen(
    clients: Clients, make_topic: Callable[..., str], kind: str
) -> None:
    """Refused by the broker long after it was handed over: raised with its place, again and again,
    so that nothing is committed past it, until it is given up with everything around it."""
    topic = make_topic(partitions=2, max_message_bytes="1000")
    producer = clients.producer()
    if kind == "tracked":
        producer.track(topic, Changelog("counts", 4))
    producer.send(topic, 1, b"k", b"fine", 1)
    producer.flush(TIMEOUT_MS)
    producer.send(topic, 1, b"k", LARGE, 1)
    with pytest.raises(ProductionError) as raised:
        producer.flush(TIMEOUT_MS)
    assert (raised.value.topic, raised.value.partition) == (topic, 1)
    assert ("store 'counts'" in str(raised.value)) is (kind == "tracked")
    assert raised.value.task_id == (TaskId(4, 1) if kind == "tracked" else None)
    for _ in range(2):
        with pytest.raises(ProductionError) as again:
            producer.send(topic, 1, b"k", b"not taken", 1)
        assert str(again.value) == str(raised.value)
        assert again.value is not raised.value
        with pytest.raises(ProductionError):
            producer.flush(TIMEOUT_MS)
    producer.purge()
    assert producer.acked_offsets() == {}
    producer.send(topic, 1, b"k", b"fine again", 1)
    producer.flush(TIMEOUT_MS)
    assert [value for _, value in read_all(clients.bootstrap, topic)] == [b"fine", b"fine again"]
    assert producer.acked_offsets() == ({place(topic, 1): 1} if kind == "tracked" else {})


def test_a_client_at_its_end_is_replaced_by_a_purge(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """librdkafka takes nothing any more after a fatal error. That stays until the purge, which
    makes the producer whole."""
    topic = make_topic(max_message_bytes="1000")
    producer = clients.producer(own={"enable.gapless.guarantee": True})
    producer.send(topic, 0, None, b"a", 1)
    producer.flush(TIMEOUT_MS)
    producer.send(topic, 0, None, LARGE, 1)
    for _ in range(3):
        with pytest.raises((ProductionError, TaskMigratedError)):
            producer.flush(TIMEOUT_MS)
        with pytest.raises((ProductionError, TaskMigratedError)):
            producer.send(topic, 0, None, b"late", 1)
    producer.purge()
    producer.send(topic, 0, None, b"b", 1)
    producer.flush(TIMEOUT_MS)
    assert [value for _, value in read_all(clients.bootstrap, topic)] == [b"a", b"b"]


def test_the_next_send_raises_as_well(clients: Clients, make_topic: Callable[..., str]) -> None:
    """A failure must not wait for the commit."""
    topic = make_topic(max_message_bytes="1000")
    producer = clients.producer()
    producer.send(topic, 0, b"k", LARGE, 1)
    other = make_topic()

    def send() -> bool:
        try:
            producer.send(other, 0, None, b"v", 1)
        except ProductionError as error:
            return error.topic == topic
        return False

    wait_for(send, 20, "the failure of the first record")


@pytest.mark.parametrize("kind", ["plain", "tracked", "transactional"])
def test_purged_records_are_not_written(
    clients: Clients, make_topic: Callable[..., str], kind: str
) -> None:
    """What waits is dropped, what was acknowledged stays, and what comes next is written, in order
    and once."""
    topic = make_topic()
    lingering = {"linger.ms": 5_000}
    producer, finish = clients.begun(transactional=kind == "transactional", own=lingering)
    if kind == "tracked":
        producer.track(topic)
    written = []
    for round_number in range(3):
        written.append(b"kept %d" % round_number)
        producer.send(topic, 0, None, written[-1], 1)
        finish(TIMEOUT_MS)
        producer.send_many(topic, 0, *numbered(500))
        assert producer.unacknowledged >= 500
        producer.purge(TIMEOUT_MS)
        assert producer.unacknowledged == 0
        assert producer.acked_offsets() == {}
    written.append(b"last")
    producer.send(topic, 0, None, written[-1], 1)
    finish(TIMEOUT_MS)
    producer.send_many(topic, 0, *numbered(500))
    producer.purge(TIMEOUT_MS)
    began = time.monotonic()
    producer.close(TIMEOUT_MS)
    assert time.monotonic() - began < 3
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    consumer.assign({place(topic): 0})
    assert [record.value() for record in until_end(consumer, place(topic))] == written


def test_a_log_that_was_cut_is_noticed_by_its_leader_epoch(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Aim: an offset that is there again, with other records before it, is out of range as well."""
    topic = make_topic()
    producer = clients.producer()
    producer.send_many(topic, 0, *numbered(10))
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer()
    consumer.assign({place(topic): 4}, leader_epochs={place(topic): 0})
    assert len(poll_values(consumer, 6)) == 6
    # Of an epoch in which this log was never written.
    consumer = clients.consumer()
    consumer.assign({place(topic): 4}, leader_epochs={place(topic): 7})
    with pytest.raises(OffsetOutOfRangeError) as raised:
        poll_values(consumer, 1)
    assert set(raised.value.offsets) == {place(topic)}


@pytest.mark.parametrize("tracked", [False, True])
def test_batches_are_no_larger_than_the_topic_takes(
    clients: Clients, make_topic: Callable[..., str], tracked: bool
) -> None:
    """Aim: librdkafka does not split a batch that the broker refuses, so none may be too large,
    since random bytes do not compress. A record that alone is too large is an error still."""
    topic = make_topic(max_message_bytes="20000")
    other = make_topic()
    producer = clients.producer(limited=True, producer={"linger.ms": 50})
    if tracked:
        producer.track(topic)
    values = [b"%06d" % number + os.urandom(94) for number in range(20_000)]
    for begin in range(0, len(values), 5_000):
        part = values[begin : begin + 5_000]
        producer.send_many(topic, 0, [None] * len(part), part, [1] * len(part))
        producer.send_many(other, 0, [None] * len(part), part, [1] * len(part))
    producer.flush(TIMEOUT_MS)
    for written in (topic, other):
        assert [value for _, value in read_all(clients.bootstrap, written)] == values
    if tracked:
        assert producer.acked_offsets() == {place(topic): len(values) - 1}
    producer.send(topic, 0, None, os.urandom(30_000), 1)
    with pytest.raises(ProductionError, match="larger than") as raised:
        producer.flush(TIMEOUT_MS)
    assert raised.value.topic == topic
    producer.purge()
    producer.send(topic, 0, None, b"later", 1)
    producer.flush(TIMEOUT_MS)


def test_a_record_that_is_refused(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Too large for the producer itself: the error has its index, those before it are written."""
    topic = make_topic()
    producer = clients.producer()
    values = [b"a", b"b", b"x" * 2_000_000, b"c"]
    with pytest.raises(RecordRefusedError) as raised:
        producer.send_many(topic, 0, [None] * 4, values, [1] * 4)
    assert (raised.value.index, raised.value.topic, raised.value.partition) == (2, topic, 0)
    producer.send_many(topic, 0, [None], values[3:], [1])
    producer.flush(TIMEOUT_MS)
    assert [value for _, value in read_all(clients.bootstrap, topic)] == [b"a", b"b", b"c"]


def test_a_partition_that_does_not_exist(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Seen at the latest by the flush."""
    topic = make_topic()
    producer = clients.producer()
    producer.send(topic, 0, None, b"v", 1)
    producer.flush(TIMEOUT_MS)

    def send_and_flush() -> None:
        producer.send(topic, 7, None, b"v", 1)
        producer.flush(TIMEOUT_MS)

    with pytest.raises(ProductionError) as raised:
        send_and_flush()
    assert (raised.value.topic, raised.value.partition) == (topic, 7)


def test_a_full_queue_is_waited_for(clients: Clients, make_topic: Callable[..., str]) -> None:
    """With room for ten records, a thousand get through, in order, each once."""
    topic, log = make_topic(), make_topic()
    producer = clients.producer(own={"queue.buffering.max.messages": 10})
    producer.track(log)
    for name in (topic, log):
        producer.send_many(name, 0, *numbered(1_000))
    producer.flush(TIMEOUT_MS)
    for name in (topic, log):
        values = [value for _, value in read_all(clients.bootstrap, name)]
        assert values == [b"v%d" % number for number in range(1_000)]
    assert producer.acked_offsets() == {place(log): 999}


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_acknowledged_offsets(
    clients: Clients, make_topic: Callable[..., str], guarantee: str
) -> None:
    """After a flush or commit: the last record of each partition of tracked topics, no others."""
    log, sink = make_topic(partitions=3), make_topic(partitions=3)
    producer, finish = clients.begun(transactional=guarantee == "exactly_once")
    producer.track(log)
    expected = {}
    for partition, count in ((0, 7), (2, 3)):
        producer.send_many(log, partition, *numbered(count))
        producer.send_many(log, partition, *numbered(2))
        expected[place(log, partition)] = count + 1
        producer.send_many(sink, None, *numbered(5))
    finish(TIMEOUT_MS)
    assert producer.acked_offsets() == expected
    producer.send_many(log, 2, *numbered(1))
    finish(TIMEOUT_MS)
    # In the log, a commit marker precedes it under exactly-once.
    expected[place(log, 2)] += 2 if guarantee == "exactly_once" else 1
    assert producer.acked_offsets() == expected
    with pytest.raises(IllegalStateError, match="explicit partition"):
        producer.send_many(log, None, *numbered(1))


# Transactions


def test_committed_and_aborted(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Readers of committed records see those only, and pass over the markers to the very end."""
    topic = make_topic()
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    assert not producer.in_transaction
    for number in range(4):
        producer.send(topic, 0, None, b"%d" % number, 1)
        assert producer.in_transaction
        producer.flush(TIMEOUT_MS)
        finish = producer.commit_transaction if number % 2 == 0 else producer.abort_transaction
        finish(TIMEOUT_MS)
        assert not producer.in_transaction
    producer.commit_transaction(TIMEOUT_MS)
    producer.abort_transaction(TIMEOUT_MS)
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    here = place(topic)
    consumer.assign({here: 0})
    records = until_end(consumer, here)
    assert [record.value() for record in records] == [b"0", b"2"]
    assert consumer.position(here) == consumer.end_offsets([here])[here]
    # Four records and four markers.
    assert consumer.position(here) == 8


def test_an_open_transaction_is_the_end(clients: Clients, make_topic: Callable[..., str]) -> None:
    """What is not committed is not there to be read, but the admin's end offset counts it."""
    topic = make_topic()
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    producer.send(topic, 0, None, b"done", 1)
    producer.commit_transaction(TIMEOUT_MS)
    producer.send(topic, 0, None, b"open", 1)
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    here = place(topic)
    consumer.assign({here: 0})
    assert [record.value() for record in until_end(consumer, here)] == [b"done"]
    assert consumer.position(here) == 2
    assert consumer.end_offsets([here]) == {here: 2}
    assert clients.admin().end_offsets([here]) == {here: 3}
    producer.commit_transaction(TIMEOUT_MS)
    assert poll_values(consumer, 1) == [b"open"]


def test_a_failed_record_fails_its_transaction(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Wherever in a send it was; after aborting, the next transaction is fine."""
    topic, strict = make_topic(), make_topic(partitions=2, max_message_bytes="1000")
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    nobody = GroupMetadata(1, unique("group"), "nobody")
    for values in ([LARGE, b"small"], [b"small", LARGE]):
        producer.send(topic, 0, None, b"lost with it", 1)
        producer.send_many(strict, [0, 1], [None] * 2, values, [1, 1])
        for _ in range(2):
            with pytest.raises(ProductionError):
                producer.commit_transaction(TIMEOUT_MS)
        with pytest.raises(ProductionError):
            producer.send(topic, 0, None, b"not taken", 1)
        with pytest.raises(ProductionError):
            producer.send_offsets({place(topic): CommitOffset(1)}, nobody, TIMEOUT_MS)
        producer.abort_transaction(TIMEOUT_MS)
    producer.send(topic, 0, None, b"fine", 1)
    producer.commit_transaction(TIMEOUT_MS)
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    consumer.assign({place(topic): 0, place(strict, 0): 0, place(strict, 1): 0})
    assert poll_values(consumer, 1) == [b"fine"]
    assert until_end(consumer, place(strict, 0)) == until_end(consumer, place(strict, 1)) == []


def test_zombies_are_fenced(clients: Clients, make_topic: Callable[..., str]) -> None:
    """A second owner of the transactional id ends the first one's work."""
    topic, name = make_topic(), unique("tx")
    zombie = clients.transactions(name)
    zombie.init_transactions(TIMEOUT_MS)
    zombie.send(topic, 0, None, b"zombie", 1)
    zombie.flush(TIMEOUT_MS)
    owner = clients.transactions(name)
    owner.init_transactions(TIMEOUT_MS)
    with pytest.raises(TaskMigratedError):
        zombie.commit_transaction(TIMEOUT_MS)
    owner.send(topic, 0, None, b"owner", 1)
    owner.commit_transaction(TIMEOUT_MS)
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    consumer.assign({place(topic): 0})
    assert [record.value() for record in until_end(consumer, place(topic))] == [b"owner"]


def test_offsets_are_fenced_by_generation(clients: Clients, make_topic: Callable[..., str]) -> None:
    """A real member's metadata, built here, is taken; of another generation or member not."""
    topic, group = make_topic(), unique("group")
    member = Consumer(
        {"bootstrap.servers": clients.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        member.subscribe([topic])

        def joined() -> bool:
            member.poll(0.1)
            return bool(member.assignment())

        wait_for(joined, 30, "joining the group")
        actual = member.consumer_group_metadata()
        member_id = member.memberid()
        assert member_id is not None
        generation = int.from_bytes(actual[7:11], "little")
        joined_as = GroupMetadata(generation, group, member_id)
        assert joined_as.encoded() == actual
        producer = clients.transactions(unique("tx"))
        producer.init_transactions(TIMEOUT_MS)
        for wrong in (
            GroupMetadata(generation + 1, group, member_id),
            GroupMetadata(generation, group, "somebody else"),
        ):
            with pytest.raises(TaskMigratedError):
                producer.send_offsets({place(topic): CommitOffset(5)}, wrong, TIMEOUT_MS)
            producer.abort_transaction(TIMEOUT_MS)
        offset = CommitOffset(7, "text", 0)
        producer.send_offsets({place(topic): offset}, joined_as, TIMEOUT_MS)
        producer.commit_transaction(TIMEOUT_MS)
        (committed,) = member.committed(member.assignment(), timeout=20)
        assert (committed.offset, committed.metadata, committed.leader_epoch) == (7, "text", 0)
    finally:
        member.close()


def test_close_aborts_and_frees(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Closing in a transaction commits nothing; a plain producer sends what it has."""
    topic = make_topic()
    transactional = clients.transactions(unique("tx"))
    transactional.init_transactions(TIMEOUT_MS)
    transactional.send(topic, 0, None, b"dropped", 1)
    transactional.close()
    transactional.close()
    plain = clients.producer(producer={"linger.ms": 2_000})
    plain.send(topic, 0, None, b"kept", 1)
    assert plain.unacknowledged == 1
    plain.close()
    with pytest.raises(IllegalStateError):
        plain.send(topic, 0, None, b"late", 1)
    with pytest.raises(IllegalStateError):
        plain.flush(1_000)
    consumer = clients.consumer()
    consumer.assign({place(topic): 0})
    assert [record.value() for record in until_end(consumer, place(topic))] == [b"kept"]


# Topics


def test_topics_are_created_once(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Visible afterwards, with their config; another time is fine; another count is not."""
    admin = clients.admin()
    names = [unique("made") for _ in range(2)]
    wanted = [(names[0], 3, {"cleanup.policy": "compact"}), (names[1], 1, {})]
    for _ in range(2):
        admin.create_topics(wanted, TIMEOUT_MS)
    absent = unique("absent")
    assert admin.partition_counts([*names, absent, "no name!"]) == {names[0]: 3, names[1]: 1}
    assert admin.replica_racks(names) == {}, "this broker has no broker.rack"
    configs = admin.topic_configs([*names, absent])
    assert {name: config["cleanup.policy"] for name, config in configs.items()} == {
        names[0]: "compact",
        names[1]: "delete",
    }
    with pytest.raises(TopologyError, match="3 partitions, but 4") as raised:
        admin.create_topics([(names[0], 4, {})], TIMEOUT_MS)
    assert raised.value.topic == names[0]
    for bad in ((unique("x"), 1, {"cleanup.policy": "burn"}), ("no name!", 1, {})):
        with pytest.raises(TopologyError, match="does not create"):
            admin.create_topics([bad], TIMEOUT_MS)
    assert absent not in topic_names(clients.bootstrap)


def test_more_replicas_than_brokers(clients: Clients) -> None:
    """Waited for, since brokers may be starting; then told with what the broker said of it."""
    settings = librdkafka_settings(clients.config(), "admin", "replicas")
    with (
        closing(ClusterAdmin(settings, replication_factor=3)) as admin,
        pytest.raises(BrokerUnavailableError) as raised,
    ):
        admin.create_topics([(unique("replicated"), 1, {})], 4_000)
    assert "only 1 broker(s) are registered" in str(raised.value)
    assert "lower replication_factor" in str(raised.value)


def test_a_topic_is_created_after_its_deletion(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """The deletion may still be under way."""
    admin = clients.admin()
    name = make_topic(partitions=2)
    for future in admin._client.delete_topics([name]).values():
        future.result(20)
    admin.create_topics([(name, 5, {})], TIMEOUT_MS)
    assert admin.partition_counts([name]) == {name: 5}


def test_topics_matching(clients: Clients, make_topic: Callable[..., str]) -> None:
    """The whole name has to match, and the broker's own topics never do."""
    name = make_topic()
    admin = clients.admin()
    assert admin.topics_matching(name) == [name]
    assert admin.topics_matching(name[1:]) == admin.topics_matching(name + "-") == []
    everything = admin.topics_matching(".*")
    assert name in everything
    assert not any(topic.startswith("__") for topic in everything)


def test_deleting_records(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Asynchronous; a partition that does not exist fails by itself."""
    topic = make_topic()
    fill(clients.bootstrap, topic, [(b"k", b"v")] * 5)
    admin = clients.admin()
    here, missing = place(topic), place(unique("missing"))
    futures = admin.delete_records({here: 3, missing: 1})
    assert futures[here].exception(20) is None
    assert futures[missing].exception(20) is not None
    assert admin.beginning_offsets([here]) == {here: 3}
    assert admin.end_offsets([here]) == {here: 5}
    assert admin.delete_records({}) == {}


def test_many_threads_may_ask_one_admin(clients: Clients, make_topic: Callable[..., str]) -> None:
    """As the member's thread and the processing loop do: each gets its own answers."""
    names = {make_topic(partitions=count): count for count in (1, 2, 3)}
    admin = clients.admin()

    def ask(number: int) -> None:
        mine = unique("asked")
        for _ in range(5):
            admin.create_topics([(mine, 1, {})], TIMEOUT_MS)
            assert admin.partition_counts([*names, mine]) == {**names, mine: 1}
            name = list(names)[number % 3]
            ends = dict.fromkeys((place(name, one) for one in range(names[name])), 0)
            assert admin.end_offsets(ends) == ends
            with pytest.raises(UnknownTopicError) as raised:
                admin.end_offsets([place(unique("absent"), number)])
            assert raised.value.partition == number

    with ThreadPoolExecutor(6) as threads:
        for asked in [threads.submit(ask, number) for number in range(6)]:
            asked.result(60)


def test_closing_an_admin_does_not_change_what_others_are_told() -> None:
    """A call under way in another thread fails for its own reason."""
    admin = Clients("127.0.0.1:9").admin()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(admin.partition_counts, ["x"], 1_500)
        time.sleep(0.5)
        admin.close()
        with pytest.raises(BrokerUnavailableError):
            asked.result(20)
    with pytest.raises(IllegalStateError):
        admin.partition_counts(["x"])


def test_a_wrong_address_is_named() -> None:
    """Within the deadline, with the client's own reason."""
    nobody = Clients("127.0.0.1:9")
    admin = nobody.admin()
    started = time.monotonic()
    with pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9.*refused") as raised:
        admin.check_reachable(1_500)
    assert time.monotonic() - started < 10
    assert raised.value.retriable
    with pytest.raises(BrokerUnavailableError):
        admin.partition_counts(["x"], 500)
    with pytest.raises(BrokerUnavailableError):
        nobody.consumer().assign({place("x"): 0}, 500)
    with pytest.raises(BrokerUnavailableError):
        nobody.transactions(unique("tx")).init_transactions(500)
    nobody.close()


def test_a_reachable_broker(clients: Clients) -> None:
    """Says nothing."""
    clients.admin().check_reachable(TIMEOUT_MS)

"""When a reader has reached the end of a partition: never while records are pending, and always
eventually, regardless of transactions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from support.broker.data_clients import poll
from support.broker.topics import fill, unique
from support.waiting import gather, wait_for

from millstream.config.streams_config import StreamsConfig
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TopicPartition
from millstream.testing import EmbeddedKafka

LEVELS = ["read_uncommitted", "read_committed"]

Reader = Callable[..., RecordConsumer]


@pytest.fixture
def here(kafka: EmbeddedKafka) -> TopicPartition:
    name = unique("ends")
    kafka.create_topic(name, partitions=1)
    return TopicPartition(name, 0)


@pytest.fixture
def reader(kafka: EmbeddedKafka, speedups: bool) -> Iterator[Reader]:
    """Create consumers, and close them after the test."""
    with contextlib.ExitStack() as opened:

        def make(level: str, **settings: object) -> RecordConsumer:
            config = StreamsConfig(
                application_id="app",
                bootstrap_servers=kafka.bootstrap_servers,
                consumer={"isolation.level": level},
            )
            client_settings = {**librdkafka_settings(config, "main_consumer", "c"), **settings}
            consumer = RecordConsumer(client_settings, speedups=speedups)
            opened.callback(consumer.close)
            return consumer

        yield make


class Transactions:
    """A transactional producer for one partition."""

    def __init__(self, kafka: EmbeddedKafka, place: TopicPartition) -> None:
        self._place = place
        self._producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": unique("tx")}
        )
        self._producer.init_transactions(20)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def write(self, *values: bytes) -> None:
        """Write records, and wait until the broker has them."""
        for value in values:
            self._producer.produce(self._place.topic, value, partition=self._place.partition)
        assert self._producer.flush(20) == 0

    def end(self, how: str) -> None:
        producer = self._producer
        (producer.commit_transaction if how == "commit" else producer.abort_transaction)(20)


def poll_to_end(consumer: RecordConsumer, place: TopicPartition) -> list[bytes | None]:
    """Poll up to the end, which must be reached, and return the values."""
    return gather(
        lambda: [record.value for record in poll(consumer, 100, 100)],
        lambda _: consumer.at_end(place),
    )


def await_watermark(consumer: RecordConsumer, place: TopicPartition, high: int) -> None:
    """Wait until the client has received a high watermark, without polling."""
    wait_for(lambda: consumer.high_watermark(place) == high, 20, f"a watermark of {high}")


@pytest.mark.parametrize("level", LEVELS)
def test_pending_records_are_not_the_end(
    kafka: EmbeddedKafka, reader: Reader, here: TopicPartition, level: str
) -> None:
    """Goal: an end is invalid as soon as more is fetched, not only after the next poll.

    Otherwise the records of a co-partitioned topic would overtake them.
    """
    fill(kafka.bootstrap_servers, here.topic, [(b"k", b"first")])
    consumer = reader(level)
    consumer.assign({here: 0})
    assert poll_to_end(consumer, here) == [b"first"]
    fill(kafka.bootstrap_servers, here.topic, [(b"k", b"%d" % number) for number in range(10)])
    await_watermark(consumer, here, 11)
    assert not consumer.at_end(here)
    values = [record.value for record in poll(consumer, 4, 5_000)]
    assert len(values) == 4
    assert not consumer.at_end(here)
    while len(values) < 10:
        assert not consumer.at_end(here)
        values += [record.value for record in poll(consumer, 10 - len(values), 5_000)]
    # Only the watermark shows that there is no eleventh record.
    assert consumer.at_end(here)
    assert values == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("how", ["commit", "abort"])
@pytest.mark.parametrize("level", LEVELS)
def test_the_end_is_after_a_transaction_marker(
    kafka: EmbeddedKafka, reader: Reader, here: TopicPartition, level: str, how: str
) -> None:
    """Goal: the last record is followed by a marker, which is never returned.

    The end is reached nevertheless, by readers that were there before, and by those that start
    before or at the marker.
    """
    waiting = reader(level)
    waiting.assign({here: 0})
    assert poll_to_end(waiting, here) == []
    transactions = Transactions(kafka, here)
    expected = [b"kept"] if how == "commit" or level == "read_uncommitted" else []
    for round_number in range(2):
        transactions.begin()
        transactions.write(b"kept")
        transactions.end(how)
        high = 2 * (round_number + 1)
        await_watermark(waiting, here, high)
        assert not waiting.at_end(here)
        assert poll_to_end(waiting, here) == expected
        assert waiting.position(here) == high
    for start, count in ((0, 2), (1, 1), (2, 1), (3, 0), (4, 0)):
        fresh = reader(level)
        fresh.assign({here: start})
        assert poll_to_end(fresh, here) == expected * count


def test_an_open_transaction_does_not_block_the_end(
    kafka: EmbeddedKafka, reader: Reader, here: TopicPartition
) -> None:
    """Goal: the watermark can exceed the readable end for hours without any report; the readable
    end counts. When the transaction ends, its records come first."""
    consumer = reader("read_committed")
    consumer.assign({here: 0})
    assert poll_to_end(consumer, here) == []
    transactions = Transactions(kafka, here)
    transactions.begin()
    for count in (1, 2):
        transactions.write(b"open")
        await_watermark(consumer, here, count)
        assert not consumer.at_end(here)
        assert poll_to_end(consumer, here) == []
        assert poll(consumer, 10, 200) == []
        assert consumer.at_end(here)
    transactions.end("commit")
    await_watermark(consumer, here, 3)
    assert not consumer.at_end(here)
    assert poll_to_end(consumer, here) == [b"open", b"open"]

    fresh = reader("read_committed")
    transactions.begin()
    transactions.write(b"open again")
    fresh.assign({here: 0})
    assert poll_to_end(fresh, here) == [b"open", b"open"]


def test_a_growing_transaction_does_not_block_the_end(
    kafka: EmbeddedKafka, reader: Reader, here: TopicPartition
) -> None:
    """Goal: the watermark moves with every fetch; polls reach the readable end nevertheless."""
    consumer = reader("read_committed")
    consumer.assign({here: 0})
    poll_to_end(consumer, here)
    transactions = Transactions(kafka, here)
    transactions.begin()
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.005):
            transactions.write(b"more")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        poll_to_end(consumer, here)
        before = consumer.high_watermark(here)
        reached = []
        for _ in range(50):
            assert poll(consumer, 100, 30) == []
            reached.append(consumer.at_end(here))
        assert consumer.high_watermark(here) != before
        assert sum(reached) > 35
    finally:
        stop.set()
        writer.join()


@pytest.mark.parametrize("level", LEVELS)
def test_aborted_records_are_not_the_end(
    kafka: EmbeddedKafka, reader: Reader, here: TopicPartition, level: str
) -> None:
    """Goal: repeated fetches return only aborted records; the records after them are not lost."""
    consumer = reader(level, **{"fetch.message.max.bytes": 20_000})
    consumer.assign({here: 0})
    assert poll_to_end(consumer, here) == []
    transactions = Transactions(kafka, here)
    transactions.begin()
    for _ in range(40):
        transactions.write(b"x" * 19_000)
    if level == "read_committed":
        assert poll_to_end(consumer, here) == []
    transactions.end("abort")
    fill(kafka.bootstrap_servers, here.topic, [(b"k", b"behind")])
    await_watermark(consumer, here, 42)
    assert not consumer.at_end(here)
    values = poll_to_end(consumer, here)
    assert values[-1] == b"behind"
    assert len(values) == (1 if level == "read_committed" else 41)


@pytest.mark.parametrize("level", LEVELS)
def test_the_end_is_reached_again_after_a_pause(
    kafka: EmbeddedKafka, reader: Reader, here: TopicPartition, level: str
) -> None:
    """Goal: the state after a pause is unknown; then the end is reached again, even if nothing
    has changed, and including records that the pause has discarded."""
    consumer = reader(level)
    consumer.assign({here: 0})
    assert poll_to_end(consumer, here) == []
    consumer.resume([here])
    assert consumer.at_end(here)
    for records in ([], [(b"k", b"one"), (b"k", b"two")]):
        fetched = consumer.high_watermark(here)
        assert fetched is not None
        consumer.pause([here, TopicPartition("never", 1)])
        fill(kafka.bootstrap_servers, here.topic, records)
        assert poll(consumer, 10, 300) == []
        consumer.resume([here])
        assert not consumer.at_end(here)
        assert poll_to_end(consumer, here) == [value for _, value in records]
    fill(kafka.bootstrap_servers, here.topic, [(b"k", b"three")])
    await_watermark(consumer, here, 3)
    consumer.pause([here])
    consumer.resume([here])
    assert poll_to_end(consumer, here) == [b"three"]

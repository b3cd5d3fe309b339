"""Records that cannot be written, and acknowledged offsets."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from support.broker.data_clients import (
    LARGE,
    TIMEOUT_MS,
    Clients,
    begin_again,
    numbered,
    place,
    until_end,
)
from support.broker.topics import read_all
from support.waiting import NEVER_S, hang_guard, wait_for

from millstream.errors import (
    IllegalStateError,
    ProductionError,
    RecordRefusedError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients.producer_errors import Changelog
from millstream.record import TaskId


@pytest.mark.parametrize("kind", ["plain", "tracked"])
def test_a_failed_record_is_reported(
    clients: Clients, make_topic: Callable[..., str], kind: str
) -> None:
    """The broker rejects it long after the send: the error is raised with its partition,
    repeatedly, so that nothing after it is committed, until a purge gives up everything around
    it."""
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


def test_a_purge_replaces_a_client_after_a_fatal_error(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """After a fatal error librdkafka accepts no more records.

    This lasts until a purge, which replaces the client.
    """
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
    """A failure must not be reported only by the commit."""
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
def test_lingering_records_can_be_sent_early(
    clients: Clients, make_topic: Callable[..., str], kind: str
) -> None:
    """Long before `linger.ms`, for all partitions; a single call may be too short."""
    topic = make_topic(partitions=2)
    lingering = {"linger.ms": 9_000}
    producer, finish = clients.begun(transactional=kind == "transactional", own=lingering)
    if kind == "tracked":
        producer.track(topic)
    for partition in (0, 1):
        producer.send_many(topic, partition, *numbered(3))
    assert (producer.unflushed_records, producer.unacknowledged) == (6, 6)

    def flush_lingering() -> bool:
        producer.send_lingering()
        return producer.unacknowledged == 0

    wait_for(flush_lingering, 5, "the records are written")
    assert producer.unflushed_records == 0
    producer.send(topic, 0, None, b"last", 1)
    assert producer.unflushed_records == 1
    finish(TIMEOUT_MS)
    assert producer.unflushed_records == 0


@pytest.mark.parametrize("kind", ["plain", "tracked", "transactional"])
def test_purged_records_are_not_written(
    clients: Clients, make_topic: Callable[..., str], kind: str
) -> None:
    """Pending records are dropped, acknowledged ones stay, and later ones are written, in order
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
        begin_again(producer)
    written.append(b"last")
    producer.send(topic, 0, None, written[-1], 1)
    finish(TIMEOUT_MS)
    producer.send_many(topic, 0, *numbered(500))
    producer.purge(TIMEOUT_MS)
    with hang_guard("the close"):
        producer.close(int(NEVER_S * 1_000))
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    consumer.assign({place(topic): 0})
    assert [record.value for record in until_end(consumer, place(topic))] == written


@pytest.mark.parametrize("tracked", [False, True])
def test_batches_respect_the_limit_of_the_topic(
    clients: Clients, make_topic: Callable[..., str], tracked: bool
) -> None:
    """Goal: librdkafka does not split a batch that the broker rejects, so no batch may be too
    large (random bytes do not compress). A single record that is too large is still an error."""
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


def test_a_record_rejected_by_the_producer(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
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


def test_a_missing_partition(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Detected by the flush at the latest."""
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
    """With room for ten records, a thousand are written, in order, each once."""
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
    """After a flush or commit: the last record of each partition of tracked topics, and no
    others."""
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
    # Under exactly-once, a commit marker precedes it in the log.
    expected[place(log, 2)] += 2 if guarantee == "exactly_once" else 1
    assert producer.acked_offsets() == expected
    with pytest.raises(IllegalStateError, match="explicit partition"):
        producer.send_many(log, None, *numbered(1))


class SkippingHandler:
    """Continues without each rejected record."""

    def __init__(self) -> None:
        self.rejected: dict[int, str] = {}

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        assert not transaction_lost
        self.rejected[index] = error.message
        return None


@pytest.mark.extended
@pytest.mark.parametrize("wrong", [[1], [0], [5], [1, 4], [0, 1, 2, 3, 4, 5]])
@pytest.mark.parametrize("reason", ["no key", "old", "in the future"])
def test_a_rejected_record_affects_no_others(
    clients: Clients, make_topic: Callable[..., str], reason: str, wrong: list[int]
) -> None:
    """The broker rejects a whole batch because of some of its records: the others are written."""
    config = {
        "no key": {"cleanup_policy": "compact"},
        "old": {"message_timestamp_before_max_ms": "3600000"},
        "in the future": {"message_timestamp_after_max_ms": "3600000"},
    }
    topic, now_ms = make_topic(**config[reason]), int(time.time() * 1_000)
    producer, watch = clients.producer(), SkippingHandler()
    keys: list[bytes | None] = [b"k"] * 6
    values: list[bytes | None] = [b"%d" % number for number in range(6)]
    times = [now_ms] * 6
    for index in wrong:
        if reason == "no key":
            keys[index] = None
        else:
            times[index] = 1 if reason == "old" else 2 * now_ms
    producer.send_with_handler(topic, [0] * 6, keys, values, times, None, watch)
    producer.flush(TIMEOUT_MS)
    assert sorted(watch.rejected) == wrong
    advice = "needs a key if" if reason == "no key" else "message.timestamp.before.max.ms"
    assert all(advice in message for message in watch.rejected.values()), watch.rejected
    consumer = clients.consumer()
    consumer.assign({place(topic): 0})
    written = [each.value or b"" for each in until_end(consumer, place(topic))]
    assert sorted(written) == [b"%d" % number for number in range(6) if number not in wrong]
    if reason == "no key" or len(wrong) > 1:
        # The two possible records with the wrong timestamp are sent after the others.
        assert written == sorted(written)

"""Transactions on a real broker: committed, aborted, fenced."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer
from support.broker.data_clients import (
    LARGE,
    TIMEOUT_MS,
    Clients,
    begin_again,
    place,
    poll_values,
    until_end,
)
from support.broker.topics import unique
from support.waiting import NEVER_S, wait_for

from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    IllegalStateError,
    ProductionError,
    StreamsError,
    TaskMigratedError,
)
from millstream.kafka.clients import transactional_producer
from millstream.kafka.clients.group_metadata import GroupMetadata
from millstream.kafka.clients.transactional_producer import BackgroundCall
from millstream.kafka.membership.member_events import CommitOffset
from millstream.testing import EmbeddedKafka


def test_committed_and_aborted(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Read-committed consumers see only committed records, and skip the markers up to the end."""
    topic = make_topic()
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    assert not producer.in_transaction
    for number in range(4):
        producer.send(topic, 0, None, b"%d" % number, 1)
        assert producer.in_transaction
        producer.flush(TIMEOUT_MS)
        finish = producer.commit_transaction if number % 2 == 0 else producer.purge
        finish(TIMEOUT_MS)
        assert not producer.in_transaction
    producer.commit_transaction(TIMEOUT_MS)
    producer.purge(TIMEOUT_MS)
    assert producer.is_ready
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    input_partition = place(topic)
    consumer.assign({input_partition: 0})
    records = until_end(consumer, input_partition)
    assert [record.value for record in records] == [b"0", b"2"]
    assert (
        consumer.position(input_partition)
        == consumer.end_offsets([input_partition])[input_partition]
    )
    # Four records and four markers.
    assert consumer.position(input_partition) == 8


def test_an_open_transaction_ends_the_readable_records(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """Uncommitted records cannot be read, but count in the admin's end offset."""
    topic = make_topic()
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    producer.send(topic, 0, None, b"done", 1)
    producer.commit_transaction(TIMEOUT_MS)
    producer.send(topic, 0, None, b"open", 1)
    producer.flush(TIMEOUT_MS)
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    input_partition = place(topic)
    consumer.assign({input_partition: 0})
    assert [record.value for record in until_end(consumer, input_partition)] == [b"done"]
    assert consumer.position(input_partition) == 2
    assert consumer.end_offsets([input_partition]) == {input_partition: 2}
    assert clients.admin().end_offsets([input_partition]) == {input_partition: 3}
    producer.commit_transaction(TIMEOUT_MS)
    assert poll_values(consumer, 1) == [b"open"]


def test_a_failed_record_fails_its_transaction(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    """For any position in a send, as soon as it has failed; after a purge the next transaction
    succeeds, including the partition that rejected the record."""
    topic, strict = make_topic(), make_topic(partitions=2, max_message_bytes="1000")
    # Each record is a request of its own: those after the failed one are out of sequence.
    # The broker does not abort the transaction during the test.
    own = {"batch.num.messages": 1, "linger.ms": 0, "transaction.timeout.ms": int(NEVER_S * 1_000)}
    producer = clients.transactions(unique("tx"), own=own)
    unknown_member = GroupMetadata(1, unique("group"), "nobody")
    for values in ([LARGE, b"small"], [b"small", LARGE]):
        producer.init_transactions(TIMEOUT_MS)
        producer.send(topic, 0, None, b"lost with it", 1)
        producer.send_many(strict, [0, 1] * 5, [None] * 10, values * 5, [1] * 10)
        for _ in range(2):
            with pytest.raises(ProductionError):
                producer.commit_transaction(TIMEOUT_MS)
        with pytest.raises(ProductionError):
            producer.send(topic, 0, None, b"not taken", 1)
        with pytest.raises(ProductionError):
            producer.send_offsets({place(topic): CommitOffset(1)}, unknown_member, TIMEOUT_MS)
        producer.purge(TIMEOUT_MS)
        assert not producer.is_ready
    producer.init_transactions(TIMEOUT_MS)
    producer.send_many(strict, [0, 1], [None] * 2, [b"fine", b"fine"], [1, 1])
    producer.send(topic, 0, None, b"fine", 1)
    producer.commit_transaction(TIMEOUT_MS)
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    consumer.assign({place(topic): 0, place(strict, 0): 0, place(strict, 1): 0})
    assert poll_values(consumer, 3) == [b"fine"] * 3
    assert until_end(consumer, place(strict, 0)) == until_end(consumer, place(strict, 1)) == []


@dataclass
class FailAlways:
    """Raises the error of each record, and stores its index."""

    value: bytes
    failures: list[tuple[bytes, bool]]

    def failed(
        self, index: int, error: ProductionError, *, transaction_lost: bool
    ) -> StreamsError | None:
        assert index == 0
        self.failures.append((self.value, transaction_lost))
        return error


@pytest.mark.parametrize("is_watched", [True, False])
def test_an_unreported_failure_is_not_attributed_to_the_next_record(
    clients: Clients, make_topic: Callable[..., str], is_watched: bool
) -> None:
    """librdkafka rejects further records as soon as one has failed, and reports that one
    afterwards."""
    topic, strict = make_topic(), make_topic(max_message_bytes="1000")
    producer = clients.transactions(unique("tx"), own={"linger.ms": 0})
    producer.init_transactions(TIMEOUT_MS)
    failures: list[tuple[bytes, bool]] = []
    first, second = FailAlways(LARGE, failures), FailAlways(b"small", failures)
    producer.send_with_handler(strict, [0], [None], [LARGE], [1], None, first)
    # No poll, so that nothing is reported.
    wait_for(lambda: producer.why_lost() is not None, what="the transaction fails")
    assert failures == []

    def send_next() -> None:
        if is_watched:
            producer.send_with_handler(topic, [0], [None], [b"small"], [1], None, second)
        else:
            producer.send(topic, 0, None, b"small", 1)

    with pytest.raises(ProductionError, match="larger than") as raised:
        send_next()
    assert raised.value.topic == strict
    assert failures == [(LARGE, True)]


def test_a_transaction_timeout_above_the_brokers_is_a_config_error(
    clients: Clients,
) -> None:
    producer = clients.transactions(unique("tx"), own={"transaction.timeout.ms": 16 * 60 * 1_000})
    with pytest.raises(ConfigError, match=r"transaction\.timeout\.ms is above the brokers'"):
        producer.init_transactions(TIMEOUT_MS)


def test_an_unreported_failure_replaces_the_client(
    kafka: EmbeddedKafka, clients: Clients, make_topic: Callable[..., str]
) -> None:
    """librdkafka reports it only for the record, and would begin the next transaction as if
    nothing had failed; its failure counter would fail that transaction's commit."""
    topic = make_topic()
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    assert kafka.pid is not None
    # Without a response, the client has no metadata of the topic yet.
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        producer.send(topic, 7, None, b"for no partition", 1)
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    with pytest.raises(ProductionError, match="partition"):
        producer.flush(TIMEOUT_MS)
    producer.purge(TIMEOUT_MS)
    assert not producer.is_ready
    producer.init_transactions(TIMEOUT_MS)
    producer.send(topic, 0, None, b"fine", 1)
    producer.commit_transaction(TIMEOUT_MS)


def test_a_record_rejected_immediately_keeps_the_client_usable(
    clients: Clients, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    producer.send(topic, 0, None, b"fetches the metadata", 1)
    producer.commit_transaction(TIMEOUT_MS)
    with pytest.raises(ProductionError, match="partition"):
        producer.send(topic, 7, None, b"for no partition", 1)
    producer.purge(TIMEOUT_MS)
    assert producer.is_ready
    producer.send(topic, 0, None, b"fine", 1)
    producer.commit_transaction(TIMEOUT_MS)


def test_zombies_are_fenced(clients: Clients, make_topic: Callable[..., str]) -> None:
    """A second owner of the transactional id aborts the first one's transaction."""
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
    assert [record.value for record in until_end(consumer, place(topic))] == [b"owner"]


def test_offsets_are_fenced_by_generation(clients: Clients, make_topic: Callable[..., str]) -> None:
    """The metadata of a real member, built here, are accepted; those of another generation or
    member are not."""
    topic, group = make_topic(), unique("group")
    member = Consumer(
        {"bootstrap.servers": clients.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        member.subscribe([topic])

        def joined() -> bool:
            member.poll(0.1)
            return bool(member.assignment())

        wait_for(joined, 30, "the consumer joins the group")
        actual = member.consumer_group_metadata()
        member_id = member.memberid()
        assert member_id is not None
        generation = int.from_bytes(actual[7:11], "little")
        joined_as = GroupMetadata(generation, group, member_id)
        assert joined_as.encoded() == actual
        producer = clients.transactions(unique("tx"))
        for wrong in (
            GroupMetadata(generation + 1, group, member_id),
            GroupMetadata(generation, group, "somebody else"),
        ):
            producer.init_transactions(TIMEOUT_MS)
            with pytest.raises(TaskMigratedError):
                producer.send_offsets({place(topic): CommitOffset(5)}, wrong, TIMEOUT_MS)
            producer.purge(TIMEOUT_MS)
        producer.init_transactions(TIMEOUT_MS)
        offset = CommitOffset(7, "text", 0)
        producer.send_offsets({place(topic): offset}, joined_as, TIMEOUT_MS)
        producer.commit_transaction(TIMEOUT_MS)
        (committed,) = member.committed(member.assignment(), timeout=20)
        assert (committed.offset, committed.metadata, committed.leader_epoch) == (7, "text", 0)
    finally:
        member.close()


class DelayedCalls(BackgroundCall):
    """Offset commits that reach the coordinator only after a test releases them."""

    released = threading.Event()

    def run(self, request: object, call: Callable[[], object], timeout_ms: int) -> None:
        def delayed() -> None:
            self.released.wait()
            call()

        super().run(request, delayed, timeout_ms)


@pytest.mark.parametrize("answered", ["before the purge", "never"])
def test_a_late_offset_commit_ends_with_its_transaction(
    clients: Clients,
    make_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    answered: str,
) -> None:
    """The next transaction sends its offsets itself: otherwise its records would be committed
    without them, and processed again later."""
    monkeypatch.setattr(transactional_producer, "BackgroundCall", DelayedCalls)
    monkeypatch.setattr(DelayedCalls, "released", threading.Event())
    topic, source, group = make_topic(), make_topic(), unique("group")
    input_partition, member = place(source), GroupMetadata(-1, group, "")
    producer = clients.transactions(unique("tx"))
    producer.init_transactions(TIMEOUT_MS)
    producer.send(topic, 0, None, b"given up", 1)
    with pytest.raises(BrokerUnavailableError):
        producer.send_offsets({input_partition: CommitOffset(1)}, member, 100)
    if answered == "before the purge":
        DelayedCalls.released.set()
        # Only librdkafka's thread has seen the broker's answer.
        wait_for(lambda: "send-offsets" not in thread_names(), 20, "the coordinator answers")
    producer.purge(TIMEOUT_MS)
    # A client with a pending call can neither abort nor begin a transaction.
    assert producer.is_ready == (answered == "before the purge")
    DelayedCalls.released.set()
    begin_again(producer)
    producer.send(topic, 0, None, b"done again", 1)
    producer.send_offsets({input_partition: CommitOffset(1)}, member, TIMEOUT_MS)
    producer.commit_transaction(TIMEOUT_MS)
    assert clients.admin().committed_offsets(group, [input_partition]) == {input_partition: 1}
    consumer = clients.consumer(processing_guarantee="exactly_once_v2")
    consumer.assign({place(topic): 0})
    assert [record.value for record in until_end(consumer, place(topic))] == [b"done again"]


def thread_names() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_close_aborts_and_releases(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Closing during a transaction commits nothing; a plain producer sends its records."""
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
    assert [record.value for record in until_end(consumer, place(topic))] == [b"kept"]

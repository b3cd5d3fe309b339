"""The data clients during a broker outage: no record is lost, no call waits forever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ClientPartition
from support.broker.data_clients import poll
from support.broker.topics import read_all, unique
from support.waiting import NEVER_S, gather, hang_guard, wait_for

from millstream.config.streams_config import StreamsConfig
from millstream.errors import BrokerUnavailableError, ProductionError
from millstream.kafka.clients.record_consumer import RecordConsumer
from millstream.kafka.clients.record_producer import RecordProducer
from millstream.kafka.clients.transactional_producer import TransactionalRecordProducer
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings
from millstream.record import TopicPartition
from millstream.testing import EmbeddedKafka

pytestmark = pytest.mark.extended


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker of this module, because it is stopped and killed."""
    with EmbeddedKafka() as kafka:
        yield kafka


@pytest.fixture
def topic(broker: EmbeddedKafka) -> str:
    name = unique("outage")
    broker.create_topic(name)
    return name


def config(broker: EmbeddedKafka, **settings: Any) -> StreamsConfig:
    return StreamsConfig(
        application_id="app", bootstrap_servers=broker.bootstrap_servers, **settings
    )


def producer(
    broker: EmbeddedKafka,
    speedups: bool,
    own: dict[str, Any] | None = None,
    timeout_ms: int = 0,
    **settings: Any,
) -> RecordProducer:
    client_settings = librdkafka_settings(config(broker, **settings), "producer", "p")
    return RecordProducer(
        {**client_settings, **(own or {})},
        max_block_ms=1_000,
        task_timeout_ms=timeout_ms,
        speedups=speedups,
    )


def reader_of(broker: EmbeddedKafka, speedups: bool) -> RecordConsumer:
    settings = librdkafka_settings(config(broker), "main_consumer", "c")
    return RecordConsumer(settings, speedups=speedups)


class Frozen:
    """The broker does not answer, but its connections stay open."""

    def __init__(self, broker: EmbeddedKafka) -> None:
        assert broker.pid is not None
        self._pid = broker.pid

    def __enter__(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)
        # The kernel stops one thread after another, and some may still answer.
        wait_for(self._is_stopped, 10, "the broker is stopped")

    def _is_stopped(self) -> bool:
        states = [
            thread.read_text().rpartition(")")[2].split()[0]
            for thread in Path(f"/proc/{self._pid}/task").glob("*/stat")
        ]
        return set(states) == {"T"}

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGCONT)


def send(client: RecordProducer, topic: str, values: list[bytes]) -> None:
    client.send_many(topic, 0, [None] * len(values), values, [1] * len(values))


_READ_OFFSETS = """
import sys
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.record import TopicPartition
admin = ClusterAdmin({"bootstrap.servers": sys.argv[1]})
print(admin.committed_offsets("group", [TopicPartition(sys.argv[2], 0)], 30_000))
admin.close()
"""


def test_committed_offsets_of_a_cluster_without_a_coordinator(
    broker: EmbeddedKafka, topic: str
) -> None:
    """First in its module: the broker has not served a group yet.

    Detects a crash of librdkafka, so another process sends the request. In two of three runs the
    broker reports that it is not the coordinator.
    """
    completed = subprocess.run(
        [sys.executable, "-c", _READ_OFFSETS, broker.bootstrap_servers, topic],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout == f"{{TopicPartition(topic='{topic}', partition=0): None}}\n"
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "group"})
    consumer.commit(offsets=[ClientPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    with closing(ClusterAdmin({"bootstrap.servers": broker.bootstrap_servers})) as admin:
        assert admin.committed_offsets("group", [TopicPartition(topic, 0)]) == {
            TopicPartition(topic, 0): 7
        }


def test_records_survive_a_crash_of_the_broker(
    broker: EmbeddedKafka, topic: str, speedups: bool
) -> None:
    """Unacknowledged records are sent afterwards, each once and in order; the reader continues."""
    client = producer(broker, speedups)
    reader = reader_of(broker, speedups)
    reader.assign({TopicPartition(topic, 0): 0})
    send(client, topic, [b"1", b"2"])
    client.flush(20_000)
    broker.kill()
    try:
        send(client, topic, [b"3", b"4"])
        with pytest.raises(BrokerUnavailableError, match="2 records were not acknowledged"):
            client.flush(500)
    finally:
        broker.start()
    client.flush(60_000)
    send(client, topic, [b"5"])
    client.flush(20_000)
    expected = [b"1", b"2", b"3", b"4", b"5"]
    assert [value for _, value in read_all(broker.bootstrap_servers, topic)] == expected
    values = gather(
        lambda: [record.value for record in poll(reader, 100, 500)],
        lambda values: len(values) >= 5,
        60,
    )
    assert values == expected
    reader.close()
    client.close()


def test_the_wait_for_a_full_queue_is_bounded(
    broker: EmbeddedKafka, topic: str, speedups: bool
) -> None:
    """The records before it are still sent when the broker is back."""
    client = producer(broker, speedups, own={"queue.buffering.max.messages": 5})
    send(client, topic, [b"a"])
    client.flush(20_000)
    with (
        Frozen(broker),
        pytest.raises(BrokerUnavailableError, match="queue has been full") as raised,
    ):
        send(client, topic, [b"%d" % number for number in range(9)])
    assert raised.value.topic == topic
    client.flush(30_000)
    values = [value for _, value in read_all(broker.bootstrap_servers, topic)]
    assert values == [b"a", b"0", b"1", b"2", b"3", b"4"]
    client.close()


def test_a_full_queue_is_waited_for_up_to_the_task_timeout(
    broker: EmbeddedKafka, topic: str, speedups: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: max.block.ms limits one wait, after which a warning is logged; task.timeout.ms
    limits all waits together. The sender's watchdog is notified in the meantime."""
    client = producer(broker, speedups, own={"queue.buffering.max.messages": 5}, timeout_ms=60_000)
    send(client, topic, [b"a"])
    client.flush(20_000)
    notifications = Counter[int]()

    def warnings() -> int:
        return sum("waiting for space" in message for message in caplog.messages)

    client.on_wait = lambda: notifications.update([warnings()])
    with ThreadPoolExecutor(1) as pool:
        with Frozen(broker):
            sent = pool.submit(send, client, topic, [b"%d" % number for number in range(9)])
            wait_for(lambda: warnings() >= 2 or sent.done(), 20, "two warnings are logged")
        sent.result(30)
    client.flush(30_000)
    values = [value for _, value in read_all(broker.bootstrap_servers, topic)]
    assert values == [b"a", *(b"%d" % number for number in range(9))]
    # Each warning is logged after a wait of a second.
    assert min(notifications[number] for number in range(2)) > 5
    client.close()


def test_timed_out_records_are_reported(broker: EmbeddedKafka, topic: str, speedups: bool) -> None:
    """delivery.timeout.ms has passed without an answer."""
    client = producer(
        broker, speedups, producer={"delivery.timeout.ms": 1_500, "request.timeout.ms": 1_000}
    )
    send(client, topic, [b"a"])
    client.flush(20_000)
    with Frozen(broker):
        send(client, topic, [b"late"])
        with pytest.raises(ProductionError, match=r"delivery\.timeout\.ms") as raised:
            client.flush(20_000)
    assert raised.value.topic == topic
    client.close()


@pytest.mark.parametrize("kind", ["plain", "tracked"])
def test_purged_records_are_not_written_after_the_next_owners(
    broker: EmbeddedKafka, topic: str, speedups: bool, kind: str
) -> None:
    """The purge during an outage is bounded, and no pending record is sent after the outage.

    Only bytes that are already in the socket can still be written; they are all from before the
    purge.
    """
    own = {"max.in.flight.requests.per.connection": 1, "batch.num.messages": 1, "linger.ms": 0}
    client = producer(broker, speedups, own=own)
    if kind == "tracked":
        client.track(topic)
    send(client, topic, [b"a"])
    client.flush(20_000)
    with Frozen(broker):
        send(client, topic, [b"sent"])
        # The only request that can be in flight is in flight now.
        with pytest.raises(BrokerUnavailableError):
            client.flush(500)
        send(client, topic, [b"%d" % number for number in range(100)])
        with hang_guard("purge and close"):
            client.purge(500)
            assert client.unacknowledged == 0
            client.close(int(NEVER_S * 1_000))
    next_owner = producer(broker, speedups)
    send(next_owner, topic, [b"next"])
    next_owner.flush(20_000)
    values = [value for _, value in read_all(broker.bootstrap_servers, topic)]
    assert [value for value in values if value != b"sent"] == [b"a", b"next"]
    next_owner.close()


def test_a_purge_waits_for_records_in_flight(
    broker: EmbeddedKafka, topic: str, speedups: bool
) -> None:
    """A record in flight is written before the next owner may write, if possible."""
    client = producer(broker, speedups, own={"linger.ms": 0})
    send(client, topic, [b"a"])
    client.flush(20_000)
    with Frozen(broker):
        send(client, topic, [b"sent"])
        with pytest.raises(BrokerUnavailableError):
            client.flush(500)
        thaw = Timer(1.0, lambda: os.kill(broker.pid or 0, signal.SIGCONT))
        thaw.start()
        client.purge(20_000)
        thaw.join()
    values = [value for _, value in read_all(broker.bootstrap_servers, topic)]
    assert values == [b"a", b"sent"]
    client.close()


def test_closing_is_bounded(broker: EmbeddedKafka, topic: str, speedups: bool) -> None:
    """Even in a transaction while the broker does not answer."""
    once = config(broker, processing_guarantee="exactly_once_v2")
    transactional = TransactionalRecordProducer(
        librdkafka_settings(once, "producer", "p"), unique("tx"), speedups=speedups
    )
    transactional.init_transactions(20_000)
    plain = producer(broker, speedups)
    reader = reader_of(broker, speedups)
    reader.assign({TopicPartition(topic, 0): 0})
    for client in (transactional, plain):
        send(client, topic, [b"v"])
        client.flush(20_000)
    with Frozen(broker):
        send(transactional, topic, [b"w"])
        send(plain, topic, [b"w"])
        with hang_guard("the calls"):
            with pytest.raises(BrokerUnavailableError):
                transactional.commit_transaction(500)
            transactional.purge(500)
            assert not transactional.is_ready
            transactional.close(1_000)
            plain.close(1_000)
            reader.close()

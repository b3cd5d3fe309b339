"""EmbeddedKafka from a user's perspective: a real broker that starts, works, crashes, and stops."""

from __future__ import annotations

import doctest
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from support.doc_examples import compare, examples_of
from support.machine.leftovers import runs
from support.machine.scripts import python
from support.waiting import gather, wait_for

from millstream.embedded import embedded_kafka as embedded
from millstream.errors import EmbeddedKafkaError, IllegalStateError
from millstream.testing import EmbeddedKafka

# A test run in the background ignores Ctrl-C, as would its child processes.
OWNER = """
import signal, time
from millstream.testing import EmbeddedKafka
signal.signal(signal.SIGINT, signal.default_int_handler)
with EmbeddedKafka() as kafka:
    print("broker", kafka.pid, kafka.brokers[0].folder, flush=True)
    time.sleep(300)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """A broker of this module, because its tests kill it."""
    with EmbeddedKafka() as started:
        yield started


def produce(broker: EmbeddedKafka, topic: str, values: list[bytes], timestamp_ms: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, timestamp=timestamp_ms)
    assert producer.flush(20) == 0


def consume(broker: EmbeddedKafka, topic: str, count: int, **config: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )

    def more() -> list[bytes]:
        records = consumer.consume(count, 0.5)
        assert not any(record.error() for record in records)
        return [record.value() or b"" for record in records]

    try:
        consumer.subscribe([topic])
        return gather(more, lambda values: len(values) >= count)
    finally:
        consumer.close()


def test_records_are_produced_and_consumed(broker: EmbeddedKafka) -> None:
    """Produced records are consumed, however far in the past or future their timestamps are."""
    broker.create_topic("through", partitions=3)
    produce(broker, "through", [b"old"], timestamp_ms=1)
    produce(broker, "through", [b"new"], timestamp_ms=4_000_000_000_000)
    assert sorted(consume(broker, "through", 2)) == [b"new", b"old"]


def test_both_group_protocols_work(broker: EmbeddedKafka) -> None:
    """The cluster has the features of its version, including the new group protocol."""
    broker.create_topic("protocols")
    produce(broker, "protocols", [b"x"])
    assert consume(broker, "protocols", 1, group_protocol="consumer") == [b"x"]


def test_a_crash_keeps_the_data_and_the_address(broker: EmbeddedKafka) -> None:
    """kill() is a SIGKILL; start() restarts the same broker with every acknowledged record."""
    broker.create_topic("crash", partitions=1)
    produce(broker, "crash", [b"before"])
    address, pid = broker.bootstrap_servers, broker.pid
    assert pid is not None
    broker.kill()
    assert not runs(pid)
    assert broker.pid is None
    with pytest.raises(IllegalStateError, match="is not running"):
        broker.kill()
    broker.start()
    assert broker.bootstrap_servers == address
    assert broker.pid not in (None, pid)
    produce(broker, "crash", [b"after"])
    assert consume(broker, "crash", 2) == [b"before", b"after"]


@pytest.mark.extended
def test_a_transaction_aborted_after_a_crash_is_aborted_on_all_partitions() -> None:
    """Detects KAFKA-20734: records of an aborted transaction that are committed by the next one,
    because its partition had no leader for a moment.

    Method: a transaction that is open when the broker is killed has timed out at the next start,
    and is aborted before the broker is registered.
    """
    interval_ms = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
    with EmbeddedKafka(properties=interval_ms) as broker:
        broker.create_topic("ended")
        settings = {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "writer",
            "transaction.timeout.ms": 1_000,
            "socket.timeout.ms": 1_000,
            "log_level": 0,
        }
        first = Producer(settings)
        first.init_transactions(20)
        first.begin_transaction()
        first.produce("ended", b"given up")
        assert first.flush(20) == 0
        broker.kill()
        broker.start()
        second = Producer(settings)
        second.init_transactions(20)
        second.begin_transaction()
        second.produce("ended", b"committed")
        second.commit_transaction(20)
        assert consume(broker, "ended", 1) == [b"committed"]


def test_topic_settings_and_errors(broker: EmbeddedKafka) -> None:
    """Topic settings reach the broker; an existing topic and an invalid setting are errors."""
    broker.create_topic("settings", config={"cleanup.policy": "compact", "preallocate": False})
    with pytest.raises(EmbeddedKafkaError, match=r"already exists.*topic settings"):
        broker.create_topic("settings")
    with pytest.raises(EmbeddedKafkaError, match="cleanup"):
        broker.create_topic("settings-2", config={"cleanup.policy": "banana"})


def test_a_port_in_use_is_named(broker: EmbeddedKafka) -> None:
    """A broker on an occupied port does not start and leaves nothing behind."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        other = EmbeddedKafka(port=taken.getsockname()[1])
        with pytest.raises(
            EmbeddedKafkaError, match=f"Port {taken.getsockname()[1]} cannot be used"
        ):
            other.start()
    assert other.brokers == ()


def test_the_log_of_a_broker_that_fails_to_start_is_in_the_error() -> None:
    """The reason is in the error, not only in a deleted file."""
    broker = EmbeddedKafka(properties={"log.cleaner.threads": "banana"})
    with pytest.raises(EmbeddedKafkaError, match=r"(?s)exit code 1.*Invalid value banana"):
        broker.start()
    assert broker.pid is None
    assert broker.brokers == ()


def test_stop_leaves_nothing() -> None:
    """No process, no guard, no folder; a second stop does nothing, a new start is a new cluster."""
    broker = EmbeddedKafka().start()
    (node,) = broker.brokers
    folder, guard, pid = node.folder, node._home._guard.pid, broker.pid
    assert pid is not None
    broker.stop()
    broker.stop()
    assert not runs(pid)
    assert not runs(guard)
    assert not folder.exists()
    with pytest.raises(IllegalStateError, match="before start"):
        _ = broker.bootstrap_servers


@pytest.mark.parametrize(
    "ending",
    [
        signal.SIGKILL,
        *(
            pytest.param(each, marks=pytest.mark.extended)
            for each in (signal.SIGTERM, signal.SIGINT)
        ),
    ],
)
def test_the_broker_ends_with_its_owner(ending: signal.Signals) -> None:
    """However the owning process ends, neither the broker nor its folder remains."""
    with python(OWNER) as owner:
        pid, folder = owner.wait_for_line("broker ").split()
        assert runs(int(pid))
        owner.signal(ending)
        owner.wait_ended(30)
        wait_for(lambda: not runs(int(pid)), 8, "the broker has ended")
        wait_for(lambda: not Path(folder).exists(), 8, "its folder is deleted")


@pytest.mark.extended
def test_a_forked_child_does_not_stop_the_broker(broker: EmbeddedKafka) -> None:
    """A forked copy of the owner that exits normally does not stop the broker."""
    script = """
import os, sys
from millstream.testing import EmbeddedKafka
with EmbeddedKafka() as kafka:
    child = os.fork()
    if child == 0:
        sys.exit(0)
    os.waitpid(child, 0)
    print(kafka.is_running)
"""
    del broker
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "True\n"


@pytest.mark.extended
@pytest.mark.parametrize("example", examples_of(embedded), ids=lambda example: example.name)
def test_the_examples_in_its_docstrings_run(example: doctest.DocTest) -> None:
    """The examples of all other docstrings run without a broker, in tests/docs."""
    compare(example)


def test_an_address_of_another_machine_is_rejected() -> None:
    """Nothing is started, and the error explains the problem."""
    with pytest.raises(EmbeddedKafkaError, match=r"cannot listen on 192\.0\.2\.77"):
        EmbeddedKafka(host="192.0.2.77").start()

"""EmbeddedKafka with three brokers: behavior when one of them fails, and when two do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from support.broker.topics import read_all
from support.machine.leftovers import runs
from support.waiting import wait_for

from millstream.errors import ConfigError, EmbeddedKafkaError, IllegalStateError
from millstream.testing import EmbeddedKafka


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(brokers=3) as started:
        yield started


def producer(cluster: EmbeddedKafka) -> Producer:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    return Producer({**settings, "delivery.timeout.ms": 30_000})


def written(client: Producer, topic: str, value: bytes) -> KafkaError | None:
    """Write a record, and return the delivery error."""
    errors: list[KafkaError | None] = []
    client.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert client.flush(60) == 0
    (error,) = errors
    return error


def leader(cluster: EmbeddedKafka, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)


def test_topics_have_three_replicas(cluster: EmbeddedKafka) -> None:
    """All brokers are members of one cluster, and each partition has a replica on all of them."""
    cluster.create_topic("replicated", partitions=3)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    metadata = admin.list_topics(timeout=10)
    assert sorted(metadata.brokers) == [broker.node_id for broker in cluster.brokers] == [1, 2, 3]
    partitions = metadata.topics["replicated"].partitions.values()
    assert [sorted(partition.replicas) for partition in partitions] == [[1, 2, 3]] * 3


@pytest.mark.extended
def test_a_killed_leader_loses_nothing(cluster: EmbeddedKafka) -> None:
    """Acknowledged records stay readable while the leader is down, another broker accepts new
    ones, and the old leader catches up on its data after its restart."""
    cluster.create_topic("killed")
    client = producer(cluster)
    assert written(client, "killed", b"before") is None
    old = leader(cluster, "killed")
    broker = cluster.brokers[old - 1]
    broker.kill()
    assert not broker.is_running
    assert not cluster.is_running
    wait_for(lambda: leader(cluster, "killed") not in (old, -1), 30, "another broker is the leader")
    assert written(client, "killed", b"meanwhile") is None
    broker.start()
    cluster.wait_in_sync()
    assert cluster.is_running
    values = [value for _, value in read_all(cluster.bootstrap_servers, "killed")]
    assert values == [b"before", b"meanwhile"]


@pytest.mark.slow
def test_a_paused_broker_loses_its_leadership_and_returns(cluster: EmbeddedKafka) -> None:
    """A leader that is suspended keeps its connections open, but not its leadership."""
    cluster.create_topic("paused")
    client = producer(cluster)
    assert written(client, "paused", b"before") is None
    old = leader(cluster, "paused")
    broker = cluster.brokers[old - 1]
    others = [each for each in cluster.brokers if each is not broker]
    broker.pause()
    admin = AdminClient({"bootstrap.servers": others[0].address, "log_level": 0})

    def moved() -> bool:
        try:
            partition = admin.list_topics("paused", timeout=2).topics["paused"].partitions[0]
        except KafkaException:
            return False
        return partition.leader not in (old, -1)

    wait_for(moved, 30, "another broker is the leader")
    broker.resume()
    cluster.wait_in_sync()
    assert written(client, "paused", b"after") is None


@pytest.mark.slow
def test_records_are_rejected_with_too_few_replicas_in_sync(cluster: EmbeddedKafka) -> None:
    """With two brokers down nothing is acknowledged, because one replica is less than the
    minimum."""
    cluster.create_topic("refused")
    assert written(producer(cluster), "refused", b"before") is None
    for broker in cluster.brokers[1:]:
        broker.stop()
    settings = {"bootstrap.servers": cluster.brokers[0].address, "log_level": 0}
    client = Producer({**settings, "delivery.timeout.ms": 3_000})
    assert written(client, "refused", b"lost") is not None
    with pytest.raises(EmbeddedKafkaError, match="Not all replicas were in sync after 1 s"):
        cluster.wait_in_sync(timedelta(seconds=1))
    assert cluster.start().is_running
    cluster.wait_in_sync()
    assert written(producer(cluster), "refused", b"after") is None


@pytest.mark.slow
def test_a_stopped_broker_cannot_be_killed_or_paused(cluster: EmbeddedKafka) -> None:
    """The error names the broker."""
    broker = cluster.brokers[2]
    broker.stop()
    try:
        for action in (broker.kill, broker.pause, broker.resume):
            with pytest.raises(IllegalStateError, match="Broker 3 of EmbeddedKafka is not running"):
                action()
    finally:
        broker.start()
        cluster.wait_in_sync()


@pytest.mark.slow
def test_a_stopped_cluster_leaves_nothing() -> None:
    """Neither processes nor folders of any broker remain, whichever of them are running."""
    with EmbeddedKafka(brokers=3, security_protocol="SASL_SSL", users={"ann": "pw"}) as kafka:
        pids = [broker.pid for broker in kafka.brokers]
        folders: list[Path] = [broker.folder for broker in kafka.brokers]
        assert len({*pids}) == 3
        # All brokers present the single certificate that clients trust.
        client = AdminClient(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "ann",
                "sasl.password": "pw",
                "ssl.ca.location": kafka.client_settings("ann")["ssl.truststore.location"],
                "log_level": 0,
            }
        )
        assert len(client.list_topics(timeout=20).brokers) == 3
        kafka.brokers[1].kill()
    assert not any(runs(pid) for pid in pids if pid is not None)
    assert not any(folder.exists() for folder in folders)


@pytest.mark.parametrize("brokers", [0, 10])
def test_numbers_of_brokers_out_of_range_are_rejected(brokers: int) -> None:
    with pytest.raises(ConfigError, match=f"brokers is {brokers}, but must be from 1 to 9"):
        EmbeddedKafka(brokers=brokers)


def test_each_broker_needs_its_own_port() -> None:
    with pytest.raises(ConfigError, match="port has 1 ports, but there are 3 brokers"):
        EmbeddedKafka(brokers=3, port=20_500)

"""Topics are created, found and deleted; unreachable brokers are reported."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from support.broker.data_clients import (
    TIMEOUT_MS,
    Clients,
    place,
)
from support.broker.topics import fill, topic_names, unique
from support.waiting import hang_guard

from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    TopologyError,
    UnknownTopicError,
)
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.librdkafka_settings import librdkafka_settings


@pytest.fixture
def speedups() -> None:
    """No records are read or written here."""


def test_topics_are_created_once(clients: Clients, make_topic: Callable[..., str]) -> None:
    """They exist afterwards, with their config; a second creation is harmless; a different
    partition count is an error."""
    admin = clients.admin()
    names = [unique("made") for _ in range(2)]
    topics_to_create = [(names[0], 3, {"cleanup.policy": "compact"}), (names[1], 1, {})]
    for _ in range(2):
        admin.create_topics(topics_to_create, TIMEOUT_MS)
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
        with pytest.raises(TopologyError, match="broker rejects the topic"):
            admin.create_topics([bad], TIMEOUT_MS)
    assert absent not in topic_names(clients.bootstrap)


def test_more_replicas_than_brokers(clients: Clients) -> None:
    """The admin waits, because brokers may be starting; then it reports the broker's answer."""
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
    """The deletion may still be in progress."""
    admin = clients.admin()
    name = make_topic(partitions=2)
    for future in admin._client.delete_topics([name]).values():
        future.result(20)
    admin.create_topics([(name, 5, {})], TIMEOUT_MS)
    assert admin.partition_counts([name]) == {name: 5}


def test_topics_matching(clients: Clients, make_topic: Callable[..., str]) -> None:
    """The whole name must match, and the broker's internal topics never do."""
    name = make_topic()
    admin = clients.admin()
    assert admin.topics_matching(name) == [name]
    assert admin.topics_matching(name[1:]) == admin.topics_matching(name + "-") == []
    everything = admin.topics_matching(".*")
    assert name in everything
    assert not any(topic.startswith("__") for topic in everything)


def test_deleting_records(clients: Clients, make_topic: Callable[..., str]) -> None:
    """Asynchronous; a partition that does not exist fails on its own."""
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


def test_threads_can_share_an_admin(clients: Clients, make_topic: Callable[..., str]) -> None:
    """As the member's thread and the processing loop do: each gets its own answers."""
    names = {make_topic(partitions=count): count for count in (1, 2, 3)}
    admin = clients.admin()

    def use_admin(number: int) -> None:
        mine = unique("shared")
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
        for result in [threads.submit(use_admin, number) for number in range(6)]:
            result.result(60)


def test_closing_an_admin_does_not_change_errors_of_other_calls() -> None:
    """A call in progress on another thread fails for its own reason."""
    admin = Clients("127.0.0.1:9").admin()
    with ThreadPoolExecutor(1) as threads:
        pending = threads.submit(admin.partition_counts, ["x"], 1_500)
        time.sleep(0.5)
        admin.close()
        with pytest.raises(BrokerUnavailableError):
            pending.result(20)
    with pytest.raises(IllegalStateError):
        admin.partition_counts(["x"])


def test_a_wrong_address_is_named() -> None:
    """Within the deadline, with the client's own reason."""
    unreachable = Clients("127.0.0.1:9")
    admin = unreachable.admin()
    with (
        hang_guard("the check"),
        pytest.raises(BrokerUnavailableError, match=r"127\.0\.0\.1:9.*refused") as raised,
    ):
        admin.check_reachable(1_500)
    assert raised.value.retriable
    with pytest.raises(BrokerUnavailableError):
        admin.partition_counts(["x"], 500)
    with pytest.raises(BrokerUnavailableError):
        unreachable.consumer().assign({place("x"): 0}, 500)
    with pytest.raises(BrokerUnavailableError):
        unreachable.transactions(unique("tx")).init_transactions(500)
    unreachable.close()


def test_a_reachable_broker(clients: Clients) -> None:
    """Nothing is reported."""
    clients.admin().check_reachable(TIMEOUT_MS)

"""Topics that are made, found, deleted, and asked for at brokers that are not there."""

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

from millstream.errors import (
    BrokerUnavailableError,
    IllegalStateError,
    TopologyError,
    UnknownTopicError,
)
from millstream.kafka.cluster.admin import ClusterAdmin
from millstream.kafka.settings.clients import librdkafka_settings


@pytest.fixture
def speedups() -> None:
    """No records are read or written here."""


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

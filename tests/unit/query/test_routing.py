"""Goal: who has which partition of a store, and where a key is, as Kafka Streams tells it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from millstream import (
    ClientState,
    HostInfo,
    IllegalStateError,
    KeyQueryMetadata,
    LagInfo,
    StreamsBuilder,
    StreamsConfig,
    StreamsNotStartedError,
    TopicPartition,
)
from millstream.kafka.partitioner import partition_for
from millstream.query.metadata import UNAVAILABLE, Hosts
from millstream.query.routing import Routing, lags_of
from millstream.query.stores import KnownStores
from millstream.runtime.queries.questions import StoreOffset
from millstream.serdes import LONG, STRING

ONE, OTHER = HostInfo("one", 1), HostInfo("other", 2)


class FakeCluster:
    """Every topic has four partitions."""

    looked = 0

    def partitions_by_topic(self, store: Any) -> dict[str, int]:
        return dict.fromkeys(store.upstream.topics, 4)

    def look_anew(self) -> None:
        self.looked += 1


class Bench:
    """Routing of an application with two sub-topologies and a global store, on instance ONE."""

    def __init__(self) -> None:
        builder = StreamsBuilder()
        grouped = builder.stream("in", key=STRING, value=STRING).group_by_key()
        grouped.count(store="counts")
        builder.stream("other", key=LONG, value=STRING).group_by_key().count(store="others")
        builder.global_table("places", key=STRING, value=STRING, store="places")
        config = StreamsConfig(application_id="app", bootstrap_servers="nowhere:9092")
        self.state = ClientState.RUNNING
        self.stores = KnownStores(builder.build(), config)
        cluster: Any = FakeCluster()
        self.routing = Routing(self.stores, cluster, lambda: self.state, ONE)

    def learn(self) -> None:
        self.routing.learn(
            Hosts(
                {ONE: places("in", 0, 1), OTHER: places("in", 2) | places("other", 0)},
                {ONE: places("in", 2), OTHER: places("in", 0, 1)},
            )
        )


def places(topic: str, *partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


def key_in(partition: int) -> str:
    return next(k for k in map(str, range(1_000)) if partition_for(k.encode(), 4) == partition)


def test_where_a_key_is() -> None:
    """Its active instance and those with copies; nobody, for a partition that nobody has."""
    bench = Bench()
    assert bench.routing.of_key("counts", "k", STRING, None) is KeyQueryMetadata.NOT_AVAILABLE
    bench.learn()
    of_key = bench.routing.of_key
    found = of_key("counts", key_in(2), STRING, None)
    assert found == KeyQueryMetadata(OTHER, frozenset({ONE}), 2)
    assert of_key("counts", key_in(2), None, None) == found
    assert of_key("counts", key_in(3), STRING, None) == KeyQueryMetadata(
        UNAVAILABLE, frozenset(), 3
    )
    chosen = of_key("counts", key_in(2), STRING, lambda topic, key, value, count: count - 4)
    assert chosen == KeyQueryMetadata(ONE, frozenset({OTHER}), 0)
    assert of_key("places", "k", STRING, None) == KeyQueryMetadata(ONE, frozenset(), -1)
    assert of_key("nothing", "k", STRING, None) is None
    one_of_several: Any = lambda topic, key, value, count: {count - 4}  # noqa: E731
    several = of_key("counts", key_in(2), STRING, one_of_several)
    assert several == chosen
    for wrong in (None, [], [0, 1]):
        with pytest.raises(ValueError, match=re.escape(f"chose {wrong!r} for the key 'k'")):
            of_key("counts", "k", STRING, lambda *_, wrong=wrong: wrong)
    with pytest.raises(ValueError, match="give a key"):
        of_key("counts", None, STRING, None)
    bench.state = ClientState.REBALANCING
    assert of_key("counts", "k", STRING, None) is KeyQueryMetadata.NOT_AVAILABLE


def test_what_instances_have() -> None:
    """Stores by the topics that reach them; global ones everywhere; copies apart."""
    bench = Bench()
    assert bench.routing.clients_of("counts") == []
    bench.learn()
    one, other = bench.routing.all_clients()
    assert (one.host_info, other.host_info) == (ONE, OTHER)
    assert one.state_store_names == {"counts", "places"}
    assert other.state_store_names == {"counts", "others", "places"}
    assert one.standby_state_store_names == {"counts"}
    assert one.standby_topic_partitions == places("in", 2)
    assert [each.host_info for each in bench.routing.clients_of("others")] == [OTHER]
    assert len(bench.routing.clients_of("places")) == 2
    assert bench.routing.clients_of("nothing") == []


def test_whom_else_to_ask() -> None:
    """Not itself; those with copies after all others, if they may be asked."""
    bench = Bench()
    store = bench.stores.find("counts")
    assert list(bench.routing.others(store, standbys=True)) == []
    bench.learn()
    assert list(bench.routing.others(store, standbys=False)) == [(OTHER, frozenset({2}))]
    assert list(bench.routing.others(store, standbys=True)) == [
        (OTHER, frozenset({2})),
        (OTHER, frozenset({0, 1})),
    ]


def test_a_task_and_its_copy_in_one_instance() -> None:
    """On two of its hosts: both are found where the instance is."""
    bench = Bench()
    everything = places("in", 0, 1, 2, 3)
    bench.routing.learn(Hosts({ONE: everything}, {ONE: everything}))
    store = bench.stores.find("counts")
    assert bench.routing.here(store) == frozenset(range(4))
    assert list(bench.routing.others(store, standbys=True)) == []
    told = bench.routing.of_key("counts", "k", None, None)
    partition = partition_for(b"k", 4)
    assert told == KeyQueryMetadata(ONE, frozenset([ONE]), partition)
    (instance,) = bench.routing.all_clients()
    assert instance.topic_partitions == instance.standby_topic_partitions == everything
    assert instance.standby_state_store_names == frozenset(["counts"])


def test_an_application_that_does_not_run_tells_nothing() -> None:
    """Before the start, and after the end."""
    bench = Bench()
    for state, error in (
        (ClientState.CREATED, StreamsNotStartedError),
        (ClientState.NOT_RUNNING, IllegalStateError),
    ):
        bench.state = state
        with pytest.raises(error):
            bench.routing.all_clients()
        with pytest.raises(error):
            bench.routing.of_key("counts", "k", STRING, None)


def test_lags() -> None:
    """A running task has none; what ends before its position has none either."""
    place, beside = TopicPartition("log", 0), TopicPartition("log", 1)
    offsets = [
        StoreOffset("counts", place, None),
        StoreOffset("counts", beside, 7),
        StoreOffset("gone", TopicPartition("gone", 0), 7),
    ]
    lags = lags_of(offsets, {place: 9, beside: 10})
    assert lags == {"counts": {0: LagInfo(9, 9), 1: LagInfo(7, 10)}}
    assert [lag.offset_lag for lag in lags["counts"].values()] == [0, 3]

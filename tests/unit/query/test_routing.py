"""Goal: metadata about partitions and keys of stores, as in Kafka Streams."""

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
from millstream.query.key_routing import StoreRouting, compute_lags
from millstream.query.store_catalog import StoreCatalog
from millstream.query.streams_metadata import UNAVAILABLE, PartitionOwners
from millstream.runtime.queries.query_messages import StoreOffset
from millstream.serdes import LONG, STRING

ONE, OTHER = HostInfo("one", 1), HostInfo("other", 2)


class FakeCluster:
    """Every topic has four partitions."""

    invalidated = 0

    def partitions_by_topic(self, store: Any) -> dict[str, int]:
        return dict.fromkeys(store.upstream.topics, 4)

    def invalidate(self) -> None:
        self.invalidated += 1


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
        self.stores = StoreCatalog(builder.build(), config)
        cluster: Any = FakeCluster()
        self.routing = StoreRouting(self.stores, cluster, lambda: self.state, ONE)

    def apply_assignment(self) -> None:
        self.routing.apply_assignment(
            PartitionOwners(
                {ONE: places("in", 0, 1), OTHER: places("in", 2) | places("other", 0)},
                {ONE: places("in", 2), OTHER: places("in", 0, 1)},
            )
        )


def places(topic: str, *partitions: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


def key_in(partition: int) -> str:
    return next(k for k in map(str, range(1_000)) if partition_for(k.encode(), 4) == partition)


def test_locating_a_key() -> None:
    """Its active instance and those with standbys; none for an unassigned partition."""
    bench = Bench()
    assert bench.routing.key_metadata("counts", "k", STRING, None) is KeyQueryMetadata.NOT_AVAILABLE
    bench.apply_assignment()
    key_metadata = bench.routing.key_metadata
    found = key_metadata("counts", key_in(2), STRING, None)
    assert found == KeyQueryMetadata(OTHER, frozenset({ONE}), 2)
    assert key_metadata("counts", key_in(2), None, None) == found
    assert key_metadata("counts", key_in(3), STRING, None) == KeyQueryMetadata(
        UNAVAILABLE, frozenset(), 3
    )
    chosen = key_metadata("counts", key_in(2), STRING, lambda topic, key, value, count: count - 4)
    assert chosen == KeyQueryMetadata(ONE, frozenset({OTHER}), 0)
    assert key_metadata("places", "k", STRING, None) == KeyQueryMetadata(ONE, frozenset(), -1)
    assert key_metadata("nothing", "k", STRING, None) is None
    one_of_several: Any = lambda topic, key, value, count: {count - 4}  # noqa: E731
    several = key_metadata("counts", key_in(2), STRING, one_of_several)
    assert several == chosen
    for wrong in (None, [], [0, 1]):
        with pytest.raises(ValueError, match=re.escape(f"chose {wrong!r} for the key 'k'")):
            key_metadata("counts", "k", STRING, lambda *_, wrong=wrong: wrong)
    with pytest.raises(ValueError, match="cannot be located"):
        key_metadata("counts", None, STRING, None)
    bench.state = ClientState.REBALANCING
    assert key_metadata("counts", "k", STRING, None) is KeyQueryMetadata.NOT_AVAILABLE


def test_metadata_of_instances() -> None:
    """Stores by their source topics; global stores on all instances; standbys separately."""
    bench = Bench()
    assert bench.routing.clients_with_store("counts") == []
    bench.apply_assignment()
    one, other = bench.routing.all_clients()
    assert (one.host_info, other.host_info) == (ONE, OTHER)
    assert one.state_store_names == {"counts", "places"}
    assert other.state_store_names == {"counts", "others", "places"}
    assert one.standby_state_store_names == {"counts"}
    assert one.standby_topic_partitions == places("in", 2)
    assert [each.host_info for each in bench.routing.clients_with_store("others")] == [OTHER]
    assert len(bench.routing.clients_with_store("places")) == 2
    assert bench.routing.clients_with_store("nothing") == []


def test_other_instances_to_query() -> None:
    """Without itself; those with standbys come last, if they may be queried."""
    bench = Bench()
    store = bench.stores.find("counts")
    assert list(bench.routing.remote_partitions(store, standbys=True)) == []
    bench.apply_assignment()
    assert list(bench.routing.remote_partitions(store, standbys=False)) == [(OTHER, frozenset({2}))]
    assert list(bench.routing.remote_partitions(store, standbys=True)) == [
        (OTHER, frozenset({2})),
        (OTHER, frozenset({0, 1})),
    ]


def test_an_active_task_and_its_standby_in_one_instance() -> None:
    """On two of its hosts: both are found at the instance."""
    bench = Bench()
    everything = places("in", 0, 1, 2, 3)
    bench.routing.apply_assignment(PartitionOwners({ONE: everything}, {ONE: everything}))
    store = bench.stores.find("counts")
    assert bench.routing.local_partitions(store) == frozenset(range(4))
    assert list(bench.routing.remote_partitions(store, standbys=True)) == []
    metadata = bench.routing.key_metadata("counts", "k", None, None)
    partition = partition_for(b"k", 4)
    assert metadata == KeyQueryMetadata(ONE, frozenset([ONE]), partition)
    (instance,) = bench.routing.all_clients()
    assert instance.topic_partitions == instance.standby_topic_partitions == everything
    assert instance.standby_state_store_names == frozenset(["counts"])


def test_an_application_that_is_not_running_has_no_metadata() -> None:
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
            bench.routing.key_metadata("counts", "k", STRING, None)


def test_lags() -> None:
    """A running task has no lag, nor does a topic that ends before the store's position."""
    place, other_place = TopicPartition("log", 0), TopicPartition("log", 1)
    offsets = [
        StoreOffset("counts", place, None),
        StoreOffset("counts", other_place, 7),
        StoreOffset("gone", TopicPartition("gone", 0), 7),
    ]
    lags = compute_lags(offsets, {place: 9, other_place: 10})
    assert lags == {"counts": {0: LagInfo(9, 9), 1: LagInfo(7, 10)}}
    assert [lag.offset_lag for lag in lags["counts"].values()] == [0, 3]

"""Goal: each instance returns the answer of the whole application, or a typed error.

Method: two instances with a thread each share the partitions; one of them is closed later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import keyed
from support.running.applications import Application
from support.running.peer_server import PeerServer, peer_server
from support.waiting import wait_for

from millstream import (
    HostInfo,
    KafkaStreams,
    KeyQuery,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsBuilder,
    Topology,
)
from millstream.kafka.partitioner import partition_for
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

_PARTITIONS = 4
_KEYS = [f"k{number:03}" for number in range(80)]
_EVENTS = [(_KEYS[number * 7 % 80], 1_000 + number) for number in range(800)]
_COUNTS = Counter(key for key, _ in _EVENTS)
_KEY_VALUE = QueryableStoreTypes.key_value()


def counting(name: str) -> Topology:
    """Counts by key."""
    builder = StreamsBuilder()
    builder.stream(f"{name}-in", key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


@pytest.fixture
def application(kafka: EmbeddedKafka) -> Application:
    application = Application(kafka, counting, {"in": _PARTITIONS}, {})
    topic = application.topic("in")
    application.places.write(
        keyed(topic, _PARTITIONS, key, "x", timestamp) for key, timestamp in _EVENTS
    )
    return application


@contextmanager
def instance(
    application: Application, spark: SparkSession, folder: Path, **settings: Any
) -> Iterator[tuple[KafkaStreams, PeerServer]]:
    """A running instance of one thread that serves queries of others."""
    with (
        peer_server() as server,
        application.running(
            spark, folder, num_stream_threads=1, application_server=server.address, **settings
        ) as (streams, _),
    ):
        server.serve(streams)
        yield streams, server


def tasks_of(streams: KafkaStreams, *, standby: bool = False) -> int:
    (thread,) = streams.metadata_for_local_threads()
    return len(thread.standby_tasks if standby else thread.active_tasks)


def all_of(streams: KafkaStreams, **options: Any) -> dict[str, int]:
    try:
        return dict(streams.store("counts", _KEY_VALUE, **options).all())
    except (StateStoreNotAvailableError, StateStoreMigratedError):
        return {}


@pytest.mark.extended
def test_each_instance_answers_for_all_partitions(
    application: Application, spark: SparkSession, tmp_path: Path
) -> None:
    """Views, requests and metadata are the same on both; the remaining instance answers alone."""
    with ExitStack() as one_running, ExitStack() as other_running:
        one, one_server = one_running.enter_context(instance(application, spark, tmp_path / "one"))
        other, _ = other_running.enter_context(instance(application, spark, tmp_path / "other"))
        wait_for(lambda: tasks_of(one) == tasks_of(other) == 2, 60, "the tasks are shared")
        for streams in (one, other):
            wait_for(lambda s=streams: all_of(s) == _COUNTS, 60, "everything is counted")  # type: ignore[misc]
        before = one_server.answered
        assert all(other.store("counts", _KEY_VALUE).get(key) == _COUNTS[key] for key in _KEYS)
        assert one_server.answered > before
        request = StateQueryRequest.in_store("counts").with_query(KeyQuery("k007"))
        results = [streams.query(request) for streams in (one, other)]
        assert results[0].partition_results == results[1].partition_results
        assert set(results[0].partition_results) == set(range(_PARTITIONS))
        _agree_on_metadata(one, other)
        other_running.close()
        wait_for(lambda: all_of(one) == _COUNTS, 60, "the remaining instance has all tasks")
        assert one.store("counts", _KEY_VALUE).get("nobody") is None


def _agree_on_metadata(one: KafkaStreams, other: KafkaStreams) -> None:
    hosts = {client.host_info for client in one.metadata_for_all_streams_clients()}
    assert hosts == {client.host_info for client in other.streams_metadata_for_store("counts")}
    assert len(hosts) == 2
    for key in _KEYS[:20]:
        found = one.query_metadata_for_key("counts", key, STRING)
        assert found == other.query_metadata_for_key("counts", key, STRING)
        assert found is not None
        assert found.partition == partition_for(key.encode(), _PARTITIONS)
        assert found.active_host in hosts
    assert one.query_metadata_for_key("nothing", "k", STRING) is None


@pytest.mark.extended
def test_standbys_answer_if_permitted(
    application: Application, spark: SparkSession, tmp_path: Path
) -> None:
    """A standby answers a stale view and requests without `require_active`; its lag is reported."""
    settings = {"num_standby_replicas": 1}
    with (
        instance(application, spark, tmp_path / "one", **settings) as (one, one_server),
        instance(application, spark, tmp_path / "other", **settings) as (other, other_server),
    ):
        wait_for(lambda: tasks_of(one) == tasks_of(other) == 2, 90, "the tasks are shared")
        wait_for(lambda: tasks_of(one, standby=True) == 2, 60, "the standbys are running")
        wait_for(lambda: all_of(one) == _COUNTS, 60, "everything is counted")
        application.wait_until_done()

        def lags() -> list[int]:
            of_store = one.all_local_store_partition_lags().get("counts", {})
            return [lag.offset_lag for _, lag in sorted(of_store.items())]

        wait_for(lambda: lags() == [0] * _PARTITIONS, 30, "the standbys have caught up")
        assert set(one.query_metadata_for_key("counts", "k007").standby_hosts) <= {  # type: ignore[union-attr]
            HostInfo.parse(each) for each in (other_server.address, one_server.address)
        }
        # Each store of the other instance has a standby here: no other instance is queried.
        before = other_server.answered
        ranges = StateQueryRequest.in_store("counts").with_query(RangeQuery())
        found = one.query(ranges).partition_results
        assert {key for each in found.values() for key, _ in each.result} == set(_COUNTS)
        assert all_of(one, stale=True) == _COUNTS
        assert other_server.answered == before
        active = one.query(ranges.require_active()).partition_results
        assert other_server.answered > before
        assert all(each.is_success for each in active.values())

"""Goal: a running application answers queries of its stores over all its threads, with current
data.

Method: counts of words on two threads; views and requests are compared with the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import InputRecord, keyed
from support.running.applications import Application
from support.waiting import wait_for

from millstream import (
    FailureReason,
    InvalidStateStoreError,
    KafkaStreams,
    KeyQuery,
    Position,
    PositionBound,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    StreamsBuilder,
    StreamsNotStartedError,
    TimestampedKeyQuery,
    TimeWindows,
    Topology,
    UnknownStateStoreError,
    WindowKeyQuery,
)
from millstream.serdes import STRING
from millstream.testing import EmbeddedKafka

_KEYS = [f"k{number:03}" for number in range(60)]
_EVENTS = [(_KEYS[number * 7 % 60], "x", 1_000 + number) for number in range(600)]
_COUNTS = Counter(key for key, _, _ in _EVENTS)
#: Some partitions have more than a page of them.
_BLOB = "x" * 30_000


def counting(name: str) -> Topology:
    """Counts by key, in total and by minute."""
    builder = StreamsBuilder()
    grouped = builder.stream(f"{name}-in", key=STRING, value=STRING).group_by_key()
    grouped.count(store="counts")
    grouped.windowed_by(TimeWindows(timedelta(minutes=1))).count(store="minutes")
    builder.table(f"{name}-blobs", key=STRING, value=STRING, store="blobs")
    builder.global_table(f"{name}-places", key=STRING, value=STRING, store="places")
    return builder.build()


@pytest.fixture(scope="module")
def running(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Application, KafkaStreams]]:
    """The application, with everything counted and nothing committed: all counts are in caches."""
    application = Application(kafka, counting, {"in": 3, "blobs": 2, "places": 2}, {})
    topic = application.topic("in")
    folder = tmp_path_factory.mktemp("queries")
    with application.running(spark, folder, commit_interval_ms=600_000) as (streams, _):
        wait_for(lambda: each_has_tasks(streams), 60, "both threads have tasks")
        application.places.write(
            keyed(topic, 3, key, value, timestamp) for key, value, timestamp in _EVENTS
        )
        application.places.write(
            InputRecord(application.topic("blobs"), number % 2, f"b{number:03}", _BLOB, 1_000)
            for number in range(60)
        )
        application.places.write(
            InputRecord(
                application.topic("places"), number % 2, f"p{number}", f"place {number}", 1_000
            )
            for number in range(10)
        )
        wait_for(
            lambda: sum(dict(pairs(streams, "counts")).values()) == 600, 60, "everything is counted"
        )
        wait_for(lambda: len(pairs(streams, "blobs")) == 60, 60, "all blobs are stored")
        wait_for(lambda: len(pairs(streams, "places")) == 10, 60, "all places are stored")
        yield application, streams


def pairs(streams: KafkaStreams, store: str) -> list[tuple[str, Any]]:
    """The content of a store; empty while views are temporarily unavailable."""
    try:
        return list(streams.store(store, QueryableStoreTypes.key_value()).all())
    except InvalidStateStoreError as error:
        if error.retriable:
            return []
        raise


def each_has_tasks(streams: KafkaStreams) -> bool:
    """Whether all threads have tasks, so that no task moves any more, which would commit it."""
    return all(thread.active_tasks for thread in streams.metadata_for_local_threads())


def test_a_view_includes_caches(running: tuple[Application, KafkaStreams]) -> None:
    """By key, by range, of all partitions; with timestamps as well."""
    _, streams = running
    view = streams.store("counts", QueryableStoreTypes.key_value())
    assert view.get("k007") == _COUNTS["k007"]
    assert view.get("nobody") is None
    assert dict(view.all()) == _COUNTS
    assert sorted(view.range("k010", "k012")) == [(key, 10) for key in ("k010", "k011", "k012")]
    timed = streams.store("counts", QueryableStoreTypes.timestamped_key_value())
    found = timed.get("k007")
    assert found is not None
    assert found.timestamp == max(t for key, _, t in _EVENTS if key == "k007")


def query_store(streams: KafkaStreams, query: Any, store: str = "counts") -> Any:
    return streams.query(StateQueryRequest.in_store(store).with_query(query))


def test_requests_are_answered_by_every_partition(
    running: tuple[Application, KafkaStreams],
) -> None:
    """A key is in one partition; a range bypasses caches; positions contain the read offsets."""
    application, streams = running
    found = query_store(streams, KeyQuery("k007"))
    assert set(found.partition_results) == {0, 1, 2}
    assert found.only_partition_result.result == 10
    ends = found.position.partitions(application.topic("in"))
    assert sum(end + 1 for end in ends.values()) == 600
    timed = query_store(streams, TimestampedKeyQuery("k007")).only_partition_result.result
    assert timed.value == 10
    # Nothing has been committed.
    ranges = query_store(streams, RangeQuery())
    assert all(not list(each.result) for each in ranges.partition_results.values())
    assert not ranges.position
    wrong = query_store(streams, WindowKeyQuery("k007", 0, 10)).partition_results
    assert {each.failure_reason for each in wrong.values()} == {FailureReason.UNKNOWN_QUERY_TYPE}


def test_position_bounds(running: tuple[Application, KafkaStreams]) -> None:
    """A reached position satisfies a bound; a future position does not."""
    application, streams = running
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery("k007"))
    seen = streams.query(request).position
    again = streams.query(request.with_position_bound(PositionBound.at(seen)))
    assert again.only_partition_result is not None
    assert again.only_partition_result.result == 10
    future = Position({application.topic("in"): {0: 10_000}})
    late = streams.query(request.with_position_bound(PositionBound.at(future))).partition_results
    assert late[0].failure_reason is FailureReason.NOT_UP_TO_BOUND
    assert late[1].is_success


def test_long_answers_come_in_pages(running: tuple[Application, KafkaStreams]) -> None:
    """All pairs of a partition, in order, in several concurrent reads; closing one early does no
    harm."""
    _, streams = running
    view = streams.store("blobs", QueryableStoreTypes.key_value())
    wait_for(lambda: len(list(view.all())) == 60, 60, "all blobs are stored")
    pairs = list(view.all())
    assert {value for _, value in pairs} == {_BLOB}
    evens, odds = ([f"b{number:03}" for number in range(first, 60, 2)] for first in (0, 1))
    assert [key for key, _ in pairs] == evens + odds
    with view.reverse_all() as left, view.all() as other:
        assert next(left)[0] == evens[-1]
        assert next(other)[0] == evens[0]
        assert [key for key, _ in other] == (evens + odds)[1:]
    assert list(left) == []


def test_windows_and_global_stores(running: tuple[Application, KafkaStreams]) -> None:
    """A view of windows includes the cache; a global store has views, but no requests."""
    _, streams = running
    minutes = streams.store("minutes", QueryableStoreTypes.window())
    assert minutes.fetch("k007", 0) == 10
    assert list(minutes.fetch("k007", 0, 60_000)) == [(0, 10)]
    assert sum(value for _, value in minutes.all()) == 600
    places = streams.store("places", QueryableStoreTypes.key_value())
    wait_for(lambda: places.get("p9") == "place 9", 60, "the global table is read")
    assert len(list(places.all())) == places.approximate_num_entries() == 10
    result = query_store(streams, KeyQuery("p1"), "places")
    assert result.partition_results == {}
    assert result.global_result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE


def test_errors_explain_the_problem(
    running: tuple[Application, KafkaStreams], spark: SparkSession, tmp_path: Path
) -> None:
    """An unknown store, a wrong kind, a wrong partition, an application that was not started."""
    application, streams = running
    with pytest.raises(UnknownStateStoreError, match="blobs, counts, minutes, places"):
        streams.store("count", QueryableStoreTypes.key_value())
    with pytest.raises(InvalidStateStoreError, match="window store"):
        streams.store("minutes", QueryableStoreTypes.key_value())
    with pytest.raises(InvalidStateStoreError):
        streams.store("counts", QueryableStoreTypes.key_value(), partition=9)
    other = application.streams(spark, tmp_path)
    with pytest.raises(StreamsNotStartedError):
        other.store("counts", QueryableStoreTypes.key_value())
    other.close()

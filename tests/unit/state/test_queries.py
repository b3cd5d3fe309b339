"""All kinds of stores answer all queries as in Kafka Streams, with and without a cache.

Stores are written as processors write them, and queried with `run_query`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    FailureReason,
    KeyQuery,
    MultiVersionedKeyQuery,
    NullKeyError,
    Position,
    PositionBound,
    QueryResult,
    RangeQuery,
    Stores,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    ValueAndTimestamp,
    VersionedKeyQuery,
    VersionedRecord,
    Window,
    Windowed,
    WindowKeyQuery,
    WindowRangeQuery,
)
from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.queries.codec import codec_of
from millstream.state.queries.requests.queries import Query
from millstream.state.queries.store_reads import run_query
from millstream.state.task_stores import TaskStores

OpenTask = Callable[..., TaskStores]
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
IN = TopicPartition("in", 0)
RunQuery = Callable[..., QueryResult]


@pytest.fixture(params=["rocksdb", "in_memory"])
def in_memory(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "in_memory")


def key_value(*, in_memory: bool, timestamped: bool = False, caching: bool = False) -> StoreBuilder:
    supplier = Stores.in_memory_key_value if in_memory else Stores.persistent_key_value
    make = Stores.timestamped_key_value_builder if timestamped else Stores.key_value_builder
    return make(supplier("s"), STRING, LONG).with_caching(caching)


def query_function(stores: TaskStores, builder: StoreBuilder) -> RunQuery:
    """A function that queries the store of a task."""
    opened, codec = stores.find(builder.name), codec_of(builder, "app-s-changelog")
    assert opened is not None
    assert codec is not None

    def run(query: Query, **options: Any) -> QueryResult:
        return run_query(opened, codec, query, **options)

    return run


def result_list(result: QueryResult) -> list[Any]:
    return list(result.result)


def assert_unknown_query_types(run: RunQuery, *queries: Query) -> None:
    """The store does not support any of these queries."""
    reasons = {run(query).failure_reason for query in queries}
    assert reasons == {FailureReason.UNKNOWN_QUERY_TYPE}


def test_keys_and_ranges(open_task: OpenTask, in_memory: bool) -> None:
    """A missing key is a success. A range is in byte order, with inclusive and optional ends."""
    builder = key_value(in_memory=in_memory)
    stores = open_task(builder)
    run = query_function(stores, builder)
    stores.store("s").put_all([("b", 2), ("a", 1), ("d", 4), ("c", 3)])
    assert run(KeyQuery("c")).result == 3
    assert run(KeyQuery("x")).is_success
    assert run(KeyQuery("x")).result is None
    assert result_list(run(RangeQuery("b", "c"))) == [("b", 2), ("c", 3)]
    assert result_list(run(RangeQuery(hi="b"))) == [("a", 1), ("b", 2)]
    assert result_list(run(RangeQuery("c", descending=True))) == [("d", 4), ("c", 3)]
    assert result_list(run(RangeQuery("d", "a"))) == []
    assert_unknown_query_types(
        run,
        TimestampedKeyQuery("a"),
        TimestampedRangeQuery(),
        WindowKeyQuery("a", 0, 1),
        WindowRangeQuery(0, 1),
        WindowRangeQuery.with_key("a"),
        VersionedKeyQuery("a"),
        MultiVersionedKeyQuery("a"),
    )


def test_timestamped_queries_return_timestamps(open_task: OpenTask, in_memory: bool) -> None:
    """Plain queries strip them."""
    builder = key_value(in_memory=in_memory, timestamped=True)
    stores = open_task(builder)
    run = query_function(stores, builder)
    stores.store("s").put("a", ValueAndTimestamp(1, 7))
    assert run(KeyQuery("a")).result == 1
    assert run(TimestampedKeyQuery("a")).result == ValueAndTimestamp(1, 7)
    assert run(TimestampedKeyQuery("b")).result is None
    assert result_list(run(RangeQuery())) == [("a", 1)]
    assert result_list(run(TimestampedRangeQuery())) == [("a", ValueAndTimestamp(1, 7))]


def test_only_key_queries_read_the_cache(
    open_task: OpenTask, context: Any, in_memory: bool
) -> None:
    """Range queries and key queries with `skip_cache` read flushed values, and return their
    position.

    Kafka Streams' `CachingKeyValueStore` handles only `KeyQuery`.
    """
    builder = key_value(in_memory=in_memory, timestamped=True, caching=True)
    stores = open_task(builder)
    run = query_function(stores, builder)
    context.place, context.offset = IN, 3
    stores.store("s").put("a", ValueAndTimestamp(1, 7))
    assert run(KeyQuery("a")).result == 1
    assert run(KeyQuery("a")).position == Position({"in": {0: 3}})
    skipping = run(KeyQuery("a", skip_cache=True))
    assert (skipping.result, skipping.position) == (None, Position())
    assert result_list(run(RangeQuery())) == []
    stores.flush_cache("s")
    context.offset = 4
    stores.store("s").put("b", ValueAndTimestamp(2, 8))
    ranged = run(RangeQuery())
    assert result_list(ranged) == [("a", 1)]
    assert ranged.position == Position({"in": {0: 3}})
    assert run(TimestampedKeyQuery("a", skip_cache=True)).result == ValueAndTimestamp(1, 7)


def test_position_bounds(open_task: OpenTask, context: Any, in_memory: bool) -> None:
    """A bound only applies to the partition of the task. The error of an unmet bound contains the
    position."""
    builder = key_value(in_memory=in_memory)
    stores = open_task(builder)
    run = query_function(stores, builder)
    at = PositionBound.at
    context.place, context.offset = IN, 3
    stores.store("s").put("a", 1)
    assert run(KeyQuery("a"), bound=at(Position({"in": {0: 3}}))).result == 1
    assert run(KeyQuery("a"), bound=at(Position({"in": {1: 9}}))).result == 1
    for unmet in ({"in": {0: 4}}, {"other": {0: 0}}):
        late = run(KeyQuery("a"), bound=at(Position(unmet)))
        assert late.failure_reason is FailureReason.NOT_UP_TO_BOUND
        assert late.position == Position({"in": {0: 3}})
    # A punctuator has no record.
    context.place, context.offset = None, -1
    stores.store("s").put("b", 2)
    assert run(KeyQuery("b")).position == Position({"in": {0: 3}})
    known = Position({"in": {0: 8}})
    assert run(KeyQuery("a"), bound=at(known), reached=known).result == 1


def window_builder(*, in_memory: bool, timestamped: bool) -> StoreBuilder:
    supplier = Stores.in_memory_window if in_memory else Stores.persistent_window
    make = Stores.timestamped_window_builder if timestamped else Stores.window_builder
    return make(supplier("s", HOUR, MINUTE), STRING, LONG)


def test_windows(open_task: OpenTask, in_memory: bool) -> None:
    """By key with starts, and over all keys with windows. Both ends of the time range are
    inclusive."""
    builder = window_builder(in_memory=in_memory, timestamped=False)
    stores = open_task(builder)
    run = query_function(stores, builder)
    for key, value, start in (("a", 1, 0), ("a", 2, 60_000), ("b", 3, 60_000), ("a", 4, 120_000)):
        stores.store("s").put(key, value, start)
    assert result_list(run(WindowKeyQuery("a", 0, 60_000))) == [(0, 1), (60_000, 2)]
    assert result_list(run(WindowKeyQuery("x", 0, 60_000))) == []
    assert result_list(run(WindowRangeQuery(60_000, 60_000))) == [
        (Windowed("a", Window(60_000, 120_000)), 2),
        (Windowed("b", Window(60_000, 120_000)), 3),
    ]
    assert_unknown_query_types(run, KeyQuery("a"), RangeQuery(), WindowRangeQuery.with_key("a"))


def test_windows_with_timestamps(open_task: OpenTask, in_memory: bool) -> None:
    """As in Kafka Streams, window queries do not strip timestamps."""
    builder = window_builder(in_memory=in_memory, timestamped=True)
    stores = open_task(builder)
    run = query_function(stores, builder)
    stores.store("s").put("a", ValueAndTimestamp(1, 5), 0)
    assert result_list(run(WindowKeyQuery("a", 0, 9))) == [(0, ValueAndTimestamp(1, 5))]


def test_sessions(open_task: OpenTask, in_memory: bool) -> None:
    """The sessions of a key, by end. Other queries are not supported."""
    supplier = Stores.in_memory_session if in_memory else Stores.persistent_session
    builder = Stores.session_builder(supplier("s", HOUR), STRING, LONG)
    stores = open_task(builder)
    run = query_function(stores, builder)
    sessions = [Windowed("a", Window(0, 10)), Windowed("a", Window(50, 60))]
    for number, session in enumerate(sessions):
        stores.store("s").put(session, number)
    stores.store("s").put(Windowed("b", Window(0, 10)), 9)
    assert result_list(run(WindowRangeQuery.with_key("a"))) == list(
        zip(sessions, [0, 1], strict=True)
    )
    assert_unknown_query_types(
        run, WindowRangeQuery(0, 10), WindowKeyQuery("a", 0, 10), KeyQuery("a")
    )


def test_versioned_queries(open_task: OpenTask) -> None:
    """The latest version, the version at a time, and the versions of a time range, in both
    orders."""
    builder = Stores.versioned_builder(
        Stores.persistent_versioned("s", HOUR, segment_interval=timedelta(seconds=1)), STRING, LONG
    )
    stores = open_task(builder)
    run = query_function(stores, builder)
    for value, timestamp in ((1, 1_000), (2, 2_000), (None, 3_000), (4, 4_000)):
        stores.store("s").put("a", value, timestamp)
    first, second = VersionedRecord(1, 1_000, 2_000), VersionedRecord(2, 2_000, 3_000)
    latest = VersionedRecord(4, 4_000, None)
    assert run(VersionedKeyQuery("a")).result == latest
    assert run(VersionedKeyQuery("a", as_of=2_500)).result == second
    assert run(VersionedKeyQuery("a", as_of=3_500)).result is None
    assert run(VersionedKeyQuery("a", as_of=999)).result is None
    assert result_list(run(MultiVersionedKeyQuery("a"))) == [latest, second, first]
    assert result_list(run(MultiVersionedKeyQuery("a", descending=False))) == [
        first,
        second,
        latest,
    ]
    between = MultiVersionedKeyQuery("a", from_ms=2_000, to_ms=3_999)
    assert result_list(run(between)) == [second]
    assert result_list(run(MultiVersionedKeyQuery("a", from_ms=1_999, to_ms=2_000))) == [
        second,
        first,
    ]
    assert result_list(run(MultiVersionedKeyQuery("a", to_ms=1_000))) == [first]
    assert result_list(run(MultiVersionedKeyQuery("x"))) == []
    assert_unknown_query_types(run, KeyQuery("a"), RangeQuery(), WindowKeyQuery("a", 0, 10))
    with pytest.raises(ValueError, match="later"):
        run(MultiVersionedKeyQuery("a", from_ms=2, to_ms=1))


def test_execution_info_is_optional(open_task: OpenTask) -> None:
    """It contains the store and the duration."""
    builder = key_value(in_memory=True)
    run = query_function(open_task(builder), builder)
    assert run(KeyQuery("a")).execution_info == ()
    (info,) = run(KeyQuery("a"), execution_info=True).execution_info
    assert info.startswith("Handled in store s in ")


@pytest.mark.parametrize(
    "query",
    [
        KeyQuery,
        TimestampedKeyQuery,
        lambda key: WindowKeyQuery(key, 0, 1),
        WindowRangeQuery.with_key,
        VersionedKeyQuery,
        MultiVersionedKeyQuery,
    ],
)
def test_a_key_query_needs_a_key(query: Any) -> None:
    """The error is raised where the query is created, not where it is executed."""
    with pytest.raises(NullKeyError, match="Query needs a key, but got None"):
        query(None)

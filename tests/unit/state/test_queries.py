"""Goal: stores of every kind answer every query as Kafka Streams' do, cache or not.

Method: real stores are written as processors write them, and asked with `run_query`.
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
from millstream.query.requests.queries import Query
from millstream.record import TopicPartition
from millstream.serdes import LONG, STRING
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.queries.codec import codec_of
from millstream.state.queries.run import run_query
from millstream.state.task_stores import TaskStores

OpenTask = Callable[..., TaskStores]
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
IN = TopicPartition("in", 0)
Ask = Callable[..., QueryResult]


@pytest.fixture(params=["rocksdb", "in_memory"])
def in_memory(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "in_memory")


def key_value(*, in_memory: bool, timestamped: bool = False, caching: bool = False) -> StoreBuilder:
    supplier = Stores.in_memory_key_value if in_memory else Stores.persistent_key_value
    make = Stores.timestamped_key_value_builder if timestamped else Stores.key_value_builder
    return make(supplier("s"), STRING, LONG).with_caching(caching)


def asking(stores: TaskStores, builder: StoreBuilder) -> Ask:
    """Asks the one store of a task."""
    opened, codec = stores.find(builder.name), codec_of(builder, "app-s-changelog")
    assert opened is not None
    assert codec is not None

    def ask(query: Query, **options: Any) -> QueryResult:
        return run_query(opened, codec, query, **options)

    return ask


def listed(result: QueryResult) -> list[Any]:
    return list(result.result)


def unknown(ask: Ask, *queries: Query) -> None:
    """None of these queries is known."""
    reasons = {ask(query).failure_reason for query in queries}
    assert reasons == {FailureReason.UNKNOWN_QUERY_TYPE}


def test_keys_and_ranges(open_task: OpenTask, in_memory: bool) -> None:
    """A missing key is a success; a range is in order of bytes, ends included, open or not."""
    builder = key_value(in_memory=in_memory)
    stores = open_task(builder)
    ask = asking(stores, builder)
    stores.store("s").put_all([("b", 2), ("a", 1), ("d", 4), ("c", 3)])
    assert ask(KeyQuery("c")).result == 3
    assert ask(KeyQuery("x")).is_success
    assert ask(KeyQuery("x")).result is None
    assert listed(ask(RangeQuery("b", "c"))) == [("b", 2), ("c", 3)]
    assert listed(ask(RangeQuery(hi="b"))) == [("a", 1), ("b", 2)]
    assert listed(ask(RangeQuery("c", descending=True))) == [("d", 4), ("c", 3)]
    assert listed(ask(RangeQuery("d", "a"))) == []
    unknown(
        ask,
        TimestampedKeyQuery("a"),
        TimestampedRangeQuery(),
        WindowKeyQuery("a", 0, 1),
        WindowRangeQuery(0, 1),
        WindowRangeQuery.with_key("a"),
        VersionedKeyQuery("a"),
        MultiVersionedKeyQuery("a"),
    )


def test_timestamps_come_when_they_are_asked_for(open_task: OpenTask, in_memory: bool) -> None:
    """Plain queries strip them, timestamped ones give them."""
    builder = key_value(in_memory=in_memory, timestamped=True)
    stores = open_task(builder)
    ask = asking(stores, builder)
    stores.store("s").put("a", ValueAndTimestamp(1, 7))
    assert ask(KeyQuery("a")).result == 1
    assert ask(TimestampedKeyQuery("a")).result == ValueAndTimestamp(1, 7)
    assert ask(TimestampedKeyQuery("b")).result is None
    assert listed(ask(RangeQuery())) == [("a", 1)]
    assert listed(ask(TimestampedRangeQuery())) == [("a", ValueAndTimestamp(1, 7))]


def test_only_a_key_sees_the_cache(open_task: OpenTask, context: Any, in_memory: bool) -> None:
    """Ranges, and keys that skip it, are answered from what was flushed, and so is their position.

    Kafka Streams' `CachingKeyValueStore` knows `KeyQuery` alone.
    """
    builder = key_value(in_memory=in_memory, timestamped=True, caching=True)
    stores = open_task(builder)
    ask = asking(stores, builder)
    context.place, context.offset = IN, 3
    stores.store("s").put("a", ValueAndTimestamp(1, 7))
    assert ask(KeyQuery("a")).result == 1
    assert ask(KeyQuery("a")).position == Position({"in": {0: 3}})
    skipping = ask(KeyQuery("a", skip_cache=True))
    assert (skipping.result, skipping.position) == (None, Position())
    assert listed(ask(RangeQuery())) == []
    stores.flush_silently("s")
    context.offset = 4
    stores.store("s").put("b", ValueAndTimestamp(2, 8))
    ranged = ask(RangeQuery())
    assert listed(ranged) == [("a", 1)]
    assert ranged.position == Position({"in": {0: 3}})
    assert ask(TimestampedKeyQuery("a", skip_cache=True)).result == ValueAndTimestamp(1, 7)


def test_bounds(open_task: OpenTask, context: Any, in_memory: bool) -> None:
    """A bound counts for the partition of the task alone; what is not met says where it is."""
    builder = key_value(in_memory=in_memory)
    stores = open_task(builder)
    ask = asking(stores, builder)
    at = PositionBound.at
    context.place, context.offset = IN, 3
    stores.store("s").put("a", 1)
    assert ask(KeyQuery("a"), bound=at(Position({"in": {0: 3}}))).result == 1
    assert ask(KeyQuery("a"), bound=at(Position({"in": {1: 9}}))).result == 1
    for wanted in ({"in": {0: 4}}, {"other": {0: 0}}):
        late = ask(KeyQuery("a"), bound=at(Position(wanted)))
        assert late.failure_reason is FailureReason.NOT_UP_TO_BOUND
        assert late.position == Position({"in": {0: 3}})
    # A punctuator has no record.
    context.place, context.offset = None, -1
    stores.store("s").put("b", 2)
    assert ask(KeyQuery("b")).position == Position({"in": {0: 3}})
    known = Position({"in": {0: 8}})
    assert ask(KeyQuery("a"), bound=at(known), reached=known).result == 1


def window_builder(*, in_memory: bool, timestamped: bool) -> StoreBuilder:
    supplier = Stores.in_memory_window if in_memory else Stores.persistent_window
    make = Stores.timestamped_window_builder if timestamped else Stores.window_builder
    return make(supplier("s", HOUR, MINUTE), STRING, LONG)


def test_windows(open_task: OpenTask, in_memory: bool) -> None:
    """By key with starts, over all keys with windows; both ends of the time included."""
    builder = window_builder(in_memory=in_memory, timestamped=False)
    stores = open_task(builder)
    ask = asking(stores, builder)
    for key, value, start in (("a", 1, 0), ("a", 2, 60_000), ("b", 3, 60_000), ("a", 4, 120_000)):
        stores.store("s").put(key, value, start)
    assert listed(ask(WindowKeyQuery("a", 0, 60_000))) == [(0, 1), (60_000, 2)]
    assert listed(ask(WindowKeyQuery("x", 0, 60_000))) == []
    assert listed(ask(WindowRangeQuery(60_000, 60_000))) == [
        (Windowed("a", Window(60_000, 120_000)), 2),
        (Windowed("b", Window(60_000, 120_000)), 3),
    ]
    unknown(ask, KeyQuery("a"), RangeQuery(), WindowRangeQuery.with_key("a"))


def test_windows_with_timestamps(open_task: OpenTask, in_memory: bool) -> None:
    """Follows Kafka Streams: windows have no query that strips them."""
    builder = window_builder(in_memory=in_memory, timestamped=True)
    stores = open_task(builder)
    ask = asking(stores, builder)
    stores.store("s").put("a", ValueAndTimestamp(1, 5), 0)
    assert listed(ask(WindowKeyQuery("a", 0, 9))) == [(0, ValueAndTimestamp(1, 5))]


def test_sessions(open_task: OpenTask, in_memory: bool) -> None:
    """Those of a key, by end; no other query is known."""
    supplier = Stores.in_memory_session if in_memory else Stores.persistent_session
    builder = Stores.session_builder(supplier("s", HOUR), STRING, LONG)
    stores = open_task(builder)
    ask = asking(stores, builder)
    sessions = [Windowed("a", Window(0, 10)), Windowed("a", Window(50, 60))]
    for number, session in enumerate(sessions):
        stores.store("s").put(session, number)
    stores.store("s").put(Windowed("b", Window(0, 10)), 9)
    assert listed(ask(WindowRangeQuery.with_key("a"))) == list(zip(sessions, [0, 1], strict=True))
    unknown(ask, WindowRangeQuery(0, 10), WindowKeyQuery("a", 0, 10), KeyQuery("a"))


def test_versions(open_task: OpenTask) -> None:
    """The latest, one as of a time, and those of a stretch of time, in both orders."""
    builder = Stores.versioned_builder(
        Stores.persistent_versioned("s", HOUR, segment_interval=timedelta(seconds=1)), STRING, LONG
    )
    stores = open_task(builder)
    ask = asking(stores, builder)
    for value, timestamp in ((1, 1_000), (2, 2_000), (None, 3_000), (4, 4_000)):
        stores.store("s").put("a", value, timestamp)
    first, second = VersionedRecord(1, 1_000, 2_000), VersionedRecord(2, 2_000, 3_000)
    latest = VersionedRecord(4, 4_000, None)
    assert ask(VersionedKeyQuery("a")).result == latest
    assert ask(VersionedKeyQuery("a", as_of=2_500)).result == second
    assert ask(VersionedKeyQuery("a", as_of=3_500)).result is None
    assert ask(VersionedKeyQuery("a", as_of=999)).result is None
    assert listed(ask(MultiVersionedKeyQuery("a"))) == [latest, second, first]
    assert listed(ask(MultiVersionedKeyQuery("a", descending=False))) == [first, second, latest]
    between = MultiVersionedKeyQuery("a", from_ms=2_000, to_ms=3_999)
    assert listed(ask(between)) == [second]
    assert listed(ask(MultiVersionedKeyQuery("a", from_ms=1_999, to_ms=2_000))) == [second, first]
    assert listed(ask(MultiVersionedKeyQuery("a", to_ms=1_000))) == [first]
    assert listed(ask(MultiVersionedKeyQuery("x"))) == []
    unknown(ask, KeyQuery("a"), RangeQuery(), WindowKeyQuery("a", 0, 10))
    with pytest.raises(ValueError, match="later"):
        ask(MultiVersionedKeyQuery("a", from_ms=2, to_ms=1))


def test_execution_info_only_if_asked_for(open_task: OpenTask) -> None:
    """Who has answered, and how long it took."""
    builder = key_value(in_memory=True)
    ask = asking(open_task(builder), builder)
    assert ask(KeyQuery("a")).execution_info == ()
    (info,) = ask(KeyQuery("a"), execution_info=True).execution_info
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
def test_a_query_of_a_key_needs_one(query: Any) -> None:
    """Told where the query is made, not where it is answered."""
    with pytest.raises(NullKeyError, match="Query needs a key, but got None"):
        query(None)

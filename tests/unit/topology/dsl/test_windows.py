"""Windows, windowed tables and cogroups: rejected arguments, and models of their contents."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import (
    ConfigError,
    EmitStrategy,
    JoinWindows,
    KGroupedStream,
    KTable,
    LogAndContinueProcessingExceptionHandler,
    Materialized,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    Window,
    Windowed,
)
from millstream.kafka.partitioner import partition_for
from millstream.serdes import JSON, LONG, STRING, time_windowed
from millstream.testing import TopologyTestDriver
from millstream.topology.physical.nodes import SinkNode
from millstream.topology.physical.windowed_serdes import WindowedKeyPartitioner

MS = timedelta(milliseconds=1)

#: Timestamps of records, close enough together to share windows.
TIMES = st.lists(st.integers(0, 60), min_size=1, max_size=12)
SIZES = st.integers(1, 20)
CACHE_BYTES = st.sampled_from((0, 1_000_000))

#: (start, end) of each window, and its content.
Table = dict[tuple[int, int], Any]


def grouped() -> KGroupedStream[str, str]:
    return StreamsBuilder().stream("in", key=STRING, value=STRING).group_by_key()


def add(key: str, text: str, seen: list[str]) -> list[str]:
    """Changes the list in place, which must not have effects elsewhere."""
    if text == "bad":
        raise ValueError("bad")
    seen.append(text)
    return seen


def both(key: str, one: list[str], other: list[str]) -> list[str]:
    return sorted([*one, *other])


def table_of(
    build: Callable[[KGroupedStream[str, str]], KTable[Windowed[str], Any]],
    records: list[tuple[str, int]],
    **config: Any,
) -> Table:
    """Return the content of a table after records with these texts and timestamps."""
    builder = StreamsBuilder()
    table = build(builder.stream("in", key=STRING, value=STRING).group_by_key())
    table.to_stream(lambda key, value: list(key.window)).to("out", key=JSON, value=JSON)
    settings = StreamsConfig(
        application_id="a",
        bootstrap_servers="b:1",
        default_value_serde=JSON,
        default_dsl_store="in_memory",
        **config,
    )
    with TopologyTestDriver(builder.build(), settings) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for text, time in records:
            topic.pipe_input("k", text, time)
        changes = driver.create_output_topic("out", key=JSON, value=JSON).read_key_values()
        latest = {(start, end): value for (start, end), value in changes}
        return {window: value for window, value in latest.items() if value is not None}


def texts(times: list[int]) -> list[tuple[str, int]]:
    """Return a record for each time, with the time as its text, so that results can be compared."""
    return [(f"{time:02}", time) for time in times]


def expected_content(times: list[int], first: int, last: int) -> list[str]:
    """Return the expected content of a window from one time to another, both included."""
    return [text for text, time in sorted(texts(times)) if first <= time <= last]


def with_sorted_values(table: Table) -> Table:
    return {window: sorted(value) for window, value in table.items()}


@settings(max_examples=25, deadline=None)
@given(TIMES, SIZES, SIZES, CACHE_BYTES)
def test_time_windows_contain_the_records_between_their_bounds(
    times: list[int], size: int, advance: int, cache_bytes: int
) -> None:
    """Model: each window starts at a multiple of the advance, and does not include its end."""
    advance = min(size, advance)
    windows = TimeWindows(size * MS, advance=advance * MS, grace=timedelta(days=1))
    table = table_of(
        lambda group: group.windowed_by(windows).aggregate(list, add),
        texts(times),
        statestore_cache_max_bytes=cache_bytes,
    )
    expected = {
        (start, start + size): content
        for start in range(0, max(times) + 1, advance)
        if (content := expected_content(times, start, start + size - 1))
    }
    assert with_sorted_values(table) == expected


@settings(max_examples=25, deadline=None)
@given(TIMES, SIZES, CACHE_BYTES)
def test_sliding_windows_contain_each_combination(
    times: list[int], difference: int, cache_bytes: int
) -> None:
    """Model: a window ends with each record; another one starts after it if it contains later
    ones."""
    windows = SlidingWindows(difference * MS, grace=timedelta(days=1))
    table = table_of(
        lambda group: group.windowed_by(windows).aggregate(list, add),
        texts(times),
        statestore_cache_max_bytes=cache_bytes,
    )
    starts = {max(0, time - difference) for time in times} | {time + 1 for time in times}
    expected = {
        (start, start + difference): content
        for start in starts
        if (content := expected_content(times, start, start + difference))
    }
    assert with_sorted_values(table) == expected


@settings(max_examples=25, deadline=None)
@given(TIMES, SIZES, CACHE_BYTES)
def test_sessions_contain_records_within_the_gap(
    times: list[int], gap: int, cache_bytes: int
) -> None:
    """Model: sorted records, divided where two are further apart than the gap."""
    windows = SessionWindows(gap * MS, grace=timedelta(days=1))
    table = table_of(
        lambda group: group.windowed_by(windows).aggregate(list, add, both),
        texts(times),
        statestore_cache_max_bytes=cache_bytes,
    )
    sessions: list[list[int]] = []
    for time in sorted(times):
        if sessions and time - sessions[-1][-1] <= gap:
            sessions[-1].append(time)
        else:
            sessions.append([time])
    expected = {(each[0], each[-1]): expected_content(each, each[0], each[-1]) for each in sessions}
    assert with_sorted_values(table) == expected


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows(10 * MS, advance=5 * MS),
        SlidingWindows(10 * MS, grace=10 * MS),
    ],
)
def test_failed_record_leaves_no_traces(
    windows: TimeWindows | SlidingWindows, cache_bytes: int
) -> None:
    """The other results are the same as without the record."""

    def build(group: KGroupedStream[str, str]) -> KTable[Windowed[str], Any]:
        return group.windowed_by(windows).aggregate(list, add)

    good = [("a", 11), ("b", 12), ("c", 13)]
    config = {
        "processing_exception_handler": LogAndContinueProcessingExceptionHandler(),
        "statestore_cache_max_bytes": cache_bytes,
    }
    assert table_of(build, [*good, ("bad", 13), ("d", 14)], **config) == table_of(
        build, [*good, ("d", 14)], **config
    )


def test_windows_of_length_zero_contain_a_millisecond() -> None:
    """Unlike Kafka Streams, which fails: see differences.md."""
    table = table_of(
        lambda group: group.windowed_by(SlidingWindows(0 * MS)).count(store="s"),
        texts([5, 5, 6]),
    )
    assert table == {(5, 5): 2, (6, 6): 1}


@pytest.mark.parametrize("cache_bytes", [0, 1_000_000])
def test_cogroup_aggregates_all_groups_in_one_window(cache_bytes: int) -> None:
    """Each group has its own aggregator, and all of them share the aggregate."""
    builder = StreamsBuilder()
    first, second = (
        builder.stream(topic, key=STRING, value=STRING).group_by_key() for topic in "ab"
    )
    cogrouped = first.cogroup(add).cogroup(second, lambda key, text, seen: add(key, text * 2, seen))
    windowed = cogrouped.windowed_by(TimeWindows(10 * MS, grace=5 * MS))
    table = windowed.aggregate(list, store=Materialized(value=JSON))
    table.to_stream(lambda key, value: key.window.start_ms).to("out", key=JSON)
    config = StreamsConfig(
        application_id="a", bootstrap_servers="b:1", statestore_cache_max_bytes=cache_bytes
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        for topic, text, time in (("a", "x", 1), ("b", "y", 2), ("a", "z", 12), ("b", "z", 3)):
            driver.create_input_topic(topic, key=STRING, value=STRING).pipe_input("k", text, time)
        output = driver.create_output_topic("out", key=JSON, value=JSON).read_key_values()
    assert output == [(0, ["x"]), (0, ["x", "yy"]), (10, ["z"]), (0, ["x", "yy", "zz"])]


INVALID: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "size 0": (lambda: TimeWindows(0 * MS), ConfigError, "size=.* at least 1 ms"),
    "size in seconds": (lambda: TimeWindows(60), ConfigError, "takes a timedelta for size"),  # type: ignore[arg-type]
    "advance above size": (
        lambda: TimeWindows(MS, advance=2 * MS),
        ConfigError,
        "skip the records in between",
    ),
    "negative grace": (lambda: SlidingWindows(MS, grace=-MS), ConfigError, "at least 0"),
    "negative gap": (lambda: SessionWindows(-MS), ConfigError, "inactivity_gap"),
    "negative start": (lambda: UnlimitedWindows(-1), ConfigError, "non-negative number"),
    "windows of joins": (
        lambda: grouped().windowed_by(JoinWindows(MS)),  # type: ignore[call-overload]
        TypeError,
        "windowed_by\\(\\) takes TimeWindows",
    ),
    "final results of unlimited windows": (
        lambda: (
            grouped().windowed_by(UnlimitedWindows()).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        ),
        TopologyError,
        "never end",
    ),
    "no strategy": (
        lambda: grouped().windowed_by(SessionWindows(MS)).emit_strategy("close"),  # type: ignore[arg-type]
        TypeError,
        "takes an EmitStrategy",
    ),
    "versions of windows": (
        lambda: (
            grouped().windowed_by(TimeWindows(MS)).count(store=Materialized("s", kind="versioned"))
        ),
        TopologyError,
        "no old versions",
    ),
    "key-value store for windows": (
        lambda: (
            grouped().windowed_by(TimeWindows(MS)).count(store=Stores.persistent_key_value("s"))
        ),
        TopologyError,
        "needs a WindowStoreSupplier",
    ),
    "store for other windows": (
        lambda: (
            grouped()
            .windowed_by(TimeWindows(10 * MS))
            .count(store=Stores.in_memory_window("s", 100 * MS, 5 * MS))
        ),
        TopologyError,
        "windows of 5 ms, but the windows of the aggregation are 10 ms long",
    ),
    "store with a short retention": (
        lambda: (
            grouped()
            .windowed_by(SessionWindows(10 * MS, grace=5 * MS))
            .count(store=Stores.in_memory_session("s", 14 * MS))
        ),
        TopologyError,
        "of 14 ms, but windows are needed for 15 ms: the inactivity gap",
    ),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_arguments_are_rejected(case: str) -> None:
    """As early as possible, with the remedy."""
    make, error, message = INVALID[case]
    with pytest.raises(error, match=message):
        make()


def test_retention_that_is_too_short_is_rejected_at_its_declaration() -> None:
    """The error contains the store and the line of the program."""
    windows = grouped().windowed_by(TimeWindows(10 * MS, grace=5 * MS))
    with pytest.raises(TopologyError, match="14 ms, but windows are needed for 15 ms") as caught:
        windows.count(store=Materialized("hits", retention=14 * MS))
    line = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    assert caught.value.node == "hits"
    assert str(caught.value.declared_at).endswith(f"test_windows.py:{line}")


def test_windowed_keys_are_partitioned_by_their_key() -> None:
    """Unless the sink has a partitioner."""
    builder = StreamsBuilder()
    counts = builder.stream("in", key=STRING, value=STRING).group_by_key()
    stream = counts.windowed_by(TimeWindows(10 * MS)).count().to_stream()
    stream.to("out")
    stream.to("elsewhere", partitioner=lambda topic, key, value, count: 0)
    stream.map_values(str).to("again", key=time_windowed(STRING, 10 * MS), value=STRING)
    partitioners = {
        node.topic: node.partitioner
        for node in builder.build().nodes.values()
        if isinstance(node, SinkNode)
    }
    assert isinstance(partitioners["out"], WindowedKeyPartitioner)
    assert isinstance(partitioners["again"], WindowedKeyPartitioner)
    assert not isinstance(partitioners["elsewhere"], WindowedKeyPartitioner)
    chosen = partitioners["out"].bind(time_windowed(STRING, 10 * MS))
    for key in ("a", "b", "foobar"):
        windowed = Windowed(key, Window(10, 20))
        assert chosen("out", windowed, 1, 10) == partition_for(key.encode(), 10)
    keys = [Windowed(key, Window(10, 20)) for key in ("a", "b", "foobar")]
    assert chosen.partition_all("out", keys, 10) == [chosen("out", key, 1, 10) for key in keys]
    # A key that cannot be serialized is found by partitioning one key at a time.
    wrong: Windowed[Any] = Windowed(7, Window(10, 20))
    assert chosen.partition_all("out", [*keys, wrong], 10) is None


def test_default_serde_applies_to_the_key_in_a_windowed_key() -> None:
    """Windowed keys can be written although the program has no key serde."""
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().windowed_by(TimeWindows(10 * MS)).count()
    counts.to_stream().to("out")
    config = StreamsConfig(
        application_id="a",
        bootstrap_servers="b:1",
        default_key_serde=STRING,
        default_value_serde=STRING,
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "v", 3)
        output = driver.create_output_topic("out", key=time_windowed(STRING, 10 * MS), value=LONG)
        assert output.read_record().key == Windowed("k", Window(0, 10))

"""Partners at the edge of a join window are joined, regardless of other records."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

import pytest

from millstream import JoinWindows, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

MS = timedelta(milliseconds=1)
Store = Literal["rocksdb", "in_memory"]
Event = tuple[str, str, str, int]


def joined(
    kind: str, store: Store, windows: JoinWindows, events: list[Event], key: str = "a"
) -> list[Any]:
    """Return the final outputs for a key."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("left", "right"))
    method: Any = {"inner": left.join, "left": left.left_join, "outer": left.outer_join}[kind]
    method(right, lambda one, other: f"{one}+{other}", windows).to("out", key=STRING, value=STRING)
    config = StreamsConfig(
        application_id="app", bootstrap_servers="not-used:9092", default_dsl_store=store
    )
    ends: list[Event] = [("left", "end", "e", 10**6), ("left", "end", "e", 2 * 10**6)]
    with TopologyTestDriver(builder.build(), config, initial_wall_clock_ms=0) as driver:
        for topic, record_key, value, time in events + ends:
            driver.create_input_topic(topic, key=STRING, value=STRING).pipe_input(
                record_key, value, time
            )
            driver.advance_wall_clock_time(2000 * MS)
        out = driver.create_output_topic("out", key=STRING, value=STRING)
        return [value for record_key, value in out.read_key_values() if record_key == key]


CASES: dict[str, tuple[JoinWindows, list[Event]]] = {
    "before is 0": (
        JoinWindows(100 * MS, before=0 * MS),
        [("left", "a", "L", 0), ("left", "b", "x", 100), ("right", "a", "R", 100)],
    ),
    "after is 0": (
        JoinWindows(100 * MS, after=0 * MS),
        [("right", "a", "R", 0), ("right", "b", "x", 100), ("left", "a", "L", 100)],
    ),
    "no width": (JoinWindows(0 * MS), [("left", "a", "L", 5), ("right", "a", "R", 5)]),
    "no width at time 0": (JoinWindows(0 * MS), [("left", "a", "L", 0), ("right", "a", "R", 0)]),
    "late within the grace period": (
        JoinWindows(100 * MS, grace=50 * MS),
        [("right", "a", "R", 0), ("right", "b", "x", 250), ("left", "a", "L", 100)],
    ),
}


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
@pytest.mark.parametrize("case", CASES)
def test_partner_at_the_edge_is_joined(case: str, kind: str, store: Store) -> None:
    # The window of the right record has closed, so an outer join has forwarded the record alone.
    unmatched = ["None+R"] if kind == "outer" and case.startswith("late") else []
    assert joined(kind, store, *CASES[case]) == [*unmatched, "L+R"]


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("late_ms", [1, 60_000])
def test_partner_beyond_the_edge_is_not_joined(store: Store, late_ms: int) -> None:
    """Records are kept no longer than one additional millisecond."""
    windows = JoinWindows(100 * MS, before=0 * MS)
    time = 100 + late_ms
    events: list[Event] = [("left", "a", "L", 0), ("left", "b", "x", time)]
    assert joined("inner", store, windows, [*events, ("right", "a", "R", time)]) == []


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("optimize", [False, True])
def test_stream_is_joined_with_itself_in_windows_without_width(
    store: Store, optimize: bool
) -> None:
    builder = StreamsBuilder(optimize)
    words = builder.stream("in", key=STRING, value=STRING)
    words.join(words, lambda one, other: one + other, JoinWindows(0 * MS)).to("out", value=STRING)
    config = StreamsConfig(
        application_id="app",
        bootstrap_servers="not-used:9092",
        default_dsl_store=store,
        topology_optimization="all" if optimize else "none",
    )
    with TopologyTestDriver(builder.build(), config) as driver:
        topic = driver.create_input_topic("in", key=STRING, value=STRING)
        for value in ("1", "2"):
            topic.pipe_input("k", value, 5)
        values = driver.create_output_topic("out", key=STRING, value=STRING).read_values()
    assert values == ["11", "21", "12", "22"]


def test_retention_of_the_changelog_is_that_of_kafka_streams() -> None:
    """The additional millisecond only applies to the store."""
    builder = StreamsBuilder()
    left, right = (builder.stream(topic, key=STRING, value=STRING) for topic in ("left", "right"))
    left.join(right, lambda one, other: one, JoinWindows(100 * MS, grace=50 * MS))
    with TopologyTestDriver(builder.build()) as driver:
        retentions = {
            topic["config"]["retention.ms"]
            for topic in driver.topology_metadata()["topics"].values()
            if topic["kind"] == "changelog"
        }
    assert retentions == {str(250 + 24 * 3_600_000)}

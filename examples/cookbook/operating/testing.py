"""Testing: examples, time and properties, without Kafka and Spark.

Three kinds of tests find most mistakes. Examples compare the output for a given input with the
expected output. Tests of time cover late records and closing windows; the driver controls time to
the millisecond. Property tests check that the topology gives the same result as a plain loop for
any input; Hypothesis generates the input and reports the smallest counterexample. Each run of the
driver takes milliseconds.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import StreamsBuilder, TimeWindows, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

MINUTE_MS = 60_000


def clicks_per_minute() -> Topology:
    """Count clicks by page and minute."""
    builder = StreamsBuilder()
    (
        builder.stream("clicks", key=STRING, value=STRING)
        .group_by_key()
        .windowed_by(TimeWindows(timedelta(minutes=1), grace=timedelta(minutes=1)))
        .count(store="clicks-per-minute")
        .to_stream(lambda minute, count: f"{minute.key}@{minute.window.start_ms // MINUTE_MS}")
        .to("counts", key=STRING, value=LONG)
    )
    return builder.build()


def counted(clicks: list[tuple[str, int]]) -> dict[str, int]:
    """Return the output of the topology for clicks, given as pages and times."""
    with TopologyTestDriver(clicks_per_minute()) as driver:
        topic = driver.create_input_topic("clicks", key=STRING, value=STRING)
        for page, time_ms in clicks:
            topic.pipe_input(page, "click", timestamp=time_ms)
        counts = driver.create_output_topic("counts", key=STRING, value=LONG)
        return counts.read_key_values_to_map()


def test_an_example() -> None:
    assert counted([("home", 0), ("home", 1), ("shop", 2)]) == {"home@0": 2, "shop@0": 1}


def test_records_after_the_grace_period_are_dropped() -> None:
    assert counted([("home", 0), ("home", 2 * MINUTE_MS), ("home", 1)]) == {
        "home@0": 1,
        "home@2": 1,
    }


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 10 * MINUTE_MS)), max_size=20))
def test_counts_equal_those_of_a_loop(clicks: list[tuple[str, int]]) -> None:
    in_order = sorted(clicks, key=lambda click: click[1])
    expected = Counter(f"{page}@{time_ms // MINUTE_MS}" for page, time_ms in in_order)
    assert counted(in_order) == expected

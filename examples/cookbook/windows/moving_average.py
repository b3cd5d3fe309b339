"""Moving average: over the last minute, whenever a value comes.

Tumbling windows jump; hopping ones jump in smaller steps. `SlidingWindows` have a window that ends
with each record and holds what came within the time before it, which is what a moving average
means. An aggregate that can be extended keeps sum and count, not the average.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from millstream import Materialized, SlidingWindows, StreamsBuilder, Topology, Windowed
from millstream.serdes import DOUBLE, STRING, json_of
from millstream.testing import TopologyTestDriver

MINUTE = timedelta(minutes=1)


class Sum(msgspec.Struct, frozen=True):
    """Of the values of a window."""

    total: float = 0.0
    count: int = 0


def average(window: Windowed[str], values: Sum) -> tuple[str, float]:
    """The average, under the name of the sensor and the second in which its window ends."""
    return f"{window.key} at {window.window.end_ms // 1_000} s", values.total / values.count


def averages() -> Topology:
    """Temperatures by sensor in, averages of the last minute out."""
    builder = StreamsBuilder()
    (
        builder.stream("temperatures", key=STRING, value=DOUBLE)
        .group_by_key()
        .windowed_by(SlidingWindows(MINUTE, grace=timedelta(seconds=5)))
        .aggregate(
            Sum,
            lambda sensor, value, so_far: Sum(so_far.total + value, so_far.count + 1),
            store=Materialized("sums", value=json_of(Sum)),
        )
        .to_stream()
        .map(average)
        .to("averages", key=STRING, value=DOUBLE)
    )
    return builder.build()


def test_the_last_minute_counts() -> None:
    with TopologyTestDriver(averages()) as driver:
        temperatures = driver.create_input_topic("temperatures", key=STRING, value=DOUBLE)
        for second, value in ((60, 20.0), (90, 22.0), (130, 24.0)):
            temperatures.pipe_input("hall", value, timestamp=second * 1_000)
        found = driver.create_output_topic("averages", key=STRING, value=DOUBLE)
        latest = found.read_key_values_to_map()
    assert latest["hall at 60 s"] == 20.0
    assert latest["hall at 90 s"] == 21.0
    assert latest["hall at 130 s"] == 23.0

"""Moving average: the average of the last minute, updated with every value.

Tumbling windows advance by their whole length, and hopping windows by smaller steps. A moving
average needs `SlidingWindows`, which define a window for each record: it ends with the record and
contains the records of the minute before. If more records follow within a minute, another window
starts right after the record. The aggregate is a sum and a count, because an average alone cannot
be updated.
"""

from __future__ import annotations

from datetime import timedelta

import msgspec

from millstream import Materialized, SlidingWindows, StreamsBuilder, Topology, Windowed
from millstream.serdes import DOUBLE, STRING, json_of
from millstream.testing import TopologyTestDriver

MINUTE = timedelta(minutes=1)


class Sum(msgspec.Struct, frozen=True):
    """Sum and number of the values in a window."""

    total: float = 0.0
    count: int = 0


def average(window: Windowed[str], values: Sum) -> tuple[str, float]:
    """Return the average, keyed by the sensor and the second in which the window ends."""
    return f"{window.key} at {window.window.end_ms // 1_000} s", values.total / values.count


def averages() -> Topology:
    """Compute the average temperature of the last minute for each sensor."""
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


def test_the_average_covers_the_last_minute() -> None:
    with TopologyTestDriver(averages()) as driver:
        temperatures = driver.create_input_topic("temperatures", key=STRING, value=DOUBLE)
        for second, value in ((60, 20.0), (90, 22.0), (130, 24.0)):
            temperatures.pipe_input("hall", value, timestamp=second * 1_000)
        found = driver.create_output_topic("averages", key=STRING, value=DOUBLE)
        latest = found.read_key_values_to_map()
    assert latest["hall at 60 s"] == 20.0
    assert latest["hall at 90 s"] == 21.0
    assert latest["hall at 130 s"] == 23.0

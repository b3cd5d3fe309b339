"""Backfill: process history that the topic no longer has.

A new application needs years of data, but the topic only keeps a few days. `stream_from_lake` reads
a table that `to_lake` has written, and continues with the topic where the table ends. The result is
one stream in event-time order, without loss or duplicates ([lake
tables](../../../docs/build/lake.md#reading-a-table-before-a-topic)). If the history is in another
topic instead, such as an archive or a compacted topic, read both topics: a task always takes the
record with the smallest timestamp next. This recipe shows the second case.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import StreamsBuilder, TimeWindows, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

DAY = timedelta(days=1)
DAY_MS = DAY // timedelta(milliseconds=1)


def sales_per_day() -> Topology:
    """Count archived and new sales per day."""
    builder = StreamsBuilder()
    (
        builder.stream(["sales-archive", "sales"], key=STRING, value=STRING)
        .group_by_key()
        .windowed_by(TimeWindows(DAY, grace=timedelta(hours=1)))
        .count(store="sales-per-day")
        .to_stream(lambda day, count: f"{day.key}, day {day.window.start_ms // DAY_MS}")
        .to("sales-per-day", key=STRING, value=LONG)
    )
    return builder.build()


def test_history_and_present_are_one_stream() -> None:
    with TopologyTestDriver(sales_per_day()) as driver:
        archive = driver.create_input_topic("sales-archive", key=STRING, value=STRING)
        sales = driver.create_input_topic("sales", key=STRING, value=STRING)
        archive.pipe_input("north", "tea", timestamp=0)
        archive.pipe_input("north", "mug", timestamp=DAY_MS)
        sales.pipe_input("north", "pot", timestamp=DAY_MS + 5)
        found = driver.create_output_topic("sales-per-day", key=STRING, value=LONG)
        assert found.read_key_values_to_map() == {"north, day 0": 1, "north, day 1": 2}

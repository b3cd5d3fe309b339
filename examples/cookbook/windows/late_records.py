"""Late records: count them within the grace period, and keep the ones that arrive even later.

A window accepts late records until stream time reaches its end plus the grace period. Records that
arrive after that are dropped and counted in `dropped-records-total`. To keep them, for example to
correct a report manually, put a processor in front of the window. The processor has the same stream
time as the window, and can forward these records to a separate topic.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import Processor, Record, StreamsBuilder, TimeWindows, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

HOUR = timedelta(hours=1)
GRACE = timedelta(minutes=10)
HOUR_MS, GRACE_MS = (each // timedelta(milliseconds=1) for each in (HOUR, GRACE))


class SeparateLateRecords(Processor[str, str, str, str]):
    """A processor that separates records of closed hours."""

    def process(self, record: Record[str, str]) -> None:
        end_ms = record.timestamp // HOUR_MS * HOUR_MS + HOUR_MS
        closed = self.context.current_stream_time_ms() >= end_ms + GRACE_MS
        self.context.forward(record, "too-late" if closed else "in-time")


def sales_per_hour() -> Topology:
    """Count sales by shop and hour, and separate sales that are too late."""
    builder = StreamsBuilder()
    sales = builder.stream("sales", key=STRING, value=STRING).process(SeparateLateRecords)
    sales.to("late-sales", key=STRING, value=STRING, name="too-late")
    (
        sales.filter(lambda shop, sale: True, name="in-time")
        .group_by_key(key=STRING, value=STRING)
        .windowed_by(TimeWindows(HOUR, grace=GRACE))
        .count(store="sales-per-hour")
        .to_stream(lambda hour, count: f"{hour.key} at {hour.window.start_ms // HOUR_MS} h")
        .to("sales-per-hour", key=STRING, value=LONG)
    )
    return builder.build()


def test_late_and_too_late() -> None:
    minute = 60_000
    with TopologyTestDriver(sales_per_hour()) as driver:
        sales = driver.create_input_topic("sales", key=STRING, value=STRING)
        sales.pipe_input("north", "tea", timestamp=10 * minute)
        sales.pipe_input("north", "mug", timestamp=65 * minute)
        sales.pipe_input("north", "late", timestamp=59 * minute)
        sales.pipe_input("north", "pot", timestamp=70 * minute)
        sales.pipe_input("north", "too late", timestamp=58 * minute)
        counts = driver.create_output_topic("sales-per-hour", key=STRING, value=LONG)
        late = driver.create_output_topic("late-sales", key=STRING, value=STRING)
        assert counts.read_key_values_to_map() == {"north at 0 h": 2, "north at 1 h": 2}
        assert late.read_values() == ["too late"]

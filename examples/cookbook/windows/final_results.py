"""Final results: one message per window, after the window has closed.

By default, an application forwards the current result of a window at every commit. For alerts,
invoices and emails you only want the final one. `emit_strategy(ON_WINDOW_CLOSE)` emits it from the
aggregation itself; `suppress(until_window_closes)` emits it from a later point of the topology, for
example after a filter on the table. Both depend on stream time: if no more records arrive, the last
windows stay open.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import BufferConfig, StreamsBuilder, Suppressed, TimeWindows, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

QUARTER = timedelta(minutes=15)
ALLOWED = 2


def failed_logins() -> Topology:
    """Failed logins by user; one alarm per user with more than two in a quarter of an hour."""
    builder = StreamsBuilder()
    (
        builder.stream("failed-logins", key=STRING, value=STRING)
        .group_by_key()
        .windowed_by(TimeWindows(QUARTER, grace=timedelta(seconds=30)))
        .count(store="failed-logins")
        # Bounded: a missing alarm is worse than an application that stops.
        .suppress(
            Suppressed.until_window_closes(BufferConfig.max_records(100_000).shut_down_when_full())
        )
        .to_stream(lambda quarter, count: quarter.key)
        .filter(lambda user, count: count > ALLOWED)
        .to("alarms", key=STRING, value=LONG)
    )
    return builder.build()


def test_one_alarm_with_the_final_count() -> None:
    second = 1_000
    with TopologyTestDriver(failed_logins()) as driver:
        logins = driver.create_input_topic("failed-logins", key=STRING, value=STRING)
        for time in range(5):
            logins.pipe_input("eve", "wrong password", timestamp=time * second)
        logins.pipe_input("ann", "wrong password", timestamp=9 * second)
        alarms = driver.create_output_topic("alarms", key=STRING, value=LONG)
        assert alarms.is_empty
        logins.pipe_input("ann", "wrong password", timestamp=931 * second)
        assert alarms.read_key_values() == [("eve", 5)]

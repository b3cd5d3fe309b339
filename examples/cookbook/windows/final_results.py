"""Final results: one message per window, after the window has closed.

By default, an application forwards the current result of a window at every commit. Alerts, invoices
and emails only need the final result. `emit_strategy(ON_WINDOW_CLOSE)` emits it from the
aggregation itself; `suppress(until_window_closes)` emits it at a later point in the topology, for
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
    """Raise an alarm for users with more than two failed logins in 15 minutes."""
    builder = StreamsBuilder()
    (
        builder.stream("failed-logins", key=STRING, value=STRING)
        .group_by_key()
        .windowed_by(TimeWindows(QUARTER, grace=timedelta(seconds=30)))
        .count(store="failed-logins")
        # A full buffer ends the thread with an error: stopping is better than losing an alarm.
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

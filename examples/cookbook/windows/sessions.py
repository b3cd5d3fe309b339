"""Sessions: the pages of each visit to a website.

A visitor's session ends when there are no clicks for half an hour. `SessionWindows` finds these
gaps. A late click can merge two sessions, which is why `aggregate` takes a third function. The
session is part of the key: when a session grows, the table deletes the old one (a record without a
value) and adds the new one. With `emit_strategy`, a session is only emitted when it is complete.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import (
    EmitStrategy,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Topology,
    Windowed,
)
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

GAP = timedelta(minutes=30)
GRACE = timedelta(minutes=5)


def seconds(session: Windowed[str]) -> int:
    """Return the length of a session."""
    return (session.window.end_ms - session.window.start_ms) // 1_000


def visits() -> Topology:
    """Collect the pages that a visitor clicks, and emit each completed visit."""
    builder = StreamsBuilder()
    (
        builder.stream("clicks", key=STRING, value=STRING)
        .group_by_key()
        .windowed_by(SessionWindows(GAP, grace=GRACE))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(
            list,
            lambda visitor, page, pages: [*pages, page],
            lambda visitor, one, other: [*one, *other],
            # The record that closes a visit may arrive much later, so keep visits for a day.
            store=Materialized("visits", value=JSON, retention=timedelta(days=1)),
        )
        .to_stream(lambda session, pages: f"{session.key}, {seconds(session)} s")
        .to("visits", key=STRING, value=JSON)
    )
    return builder.build()


def test_a_gap_ends_a_visit() -> None:
    minute = 60_000
    with TopologyTestDriver(visits()) as driver:
        clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        clicks.pipe_input("ann", "/", timestamp=0)
        clicks.pipe_input("ann", "/tea", timestamp=2 * minute)
        clicks.pipe_input("ann", "/", timestamp=50 * minute)
        # Bob's click advances stream time: both of Ann's visits are complete.
        clicks.pipe_input("bob", "/", timestamp=120 * minute)
        found = driver.create_output_topic("visits", key=STRING, value=JSON).read_key_values()
    assert found == [("ann, 120 s", ["/", "/tea"]), ("ann, 0 s", ["/"])]

"""Sessions: what each visitor did until they paused.

A visitor's clicks belong together as long as no pause between two of them is longer than half an
hour. `SessionWindows` finds the pauses; a click that comes late may make two sessions one, for
which `aggregate` takes a third function. The session is part of the key: when it grows, the table
forgets the old one (a record without value) and tells the new one. With `emit_strategy` nothing is
told before the session is over.
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

PAUSE = timedelta(minutes=30)
LATENESS = timedelta(minutes=5)


def seconds(session: Windowed[str]) -> int:
    """How long a session lasted."""
    return (session.window.end_ms - session.window.start_ms) // 1_000


def visits() -> Topology:
    """Clicks (a page by visitor) in, visits out: pages in their order, when the visit is over."""
    builder = StreamsBuilder()
    (
        builder.stream("clicks", key=STRING, value=STRING)
        .group_by_key()
        .windowed_by(SessionWindows(PAUSE, grace=LATENESS))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(
            list,
            lambda visitor, page, pages: [*pages, page],
            lambda visitor, one, other: [*one, *other],
            # It is told when a later record comes, however much later: kept for a day until then.
            store=Materialized("visits", value=JSON, retention=timedelta(days=1)),
        )
        .to_stream(lambda session, pages: f"{session.key}, {seconds(session)} s")
        .to("visits", key=STRING, value=JSON)
    )
    return builder.build()


def test_a_pause_ends_a_visit() -> None:
    minute = 60_000
    with TopologyTestDriver(visits()) as driver:
        clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        clicks.pipe_input("ann", "/", timestamp=0)
        clicks.pipe_input("ann", "/tea", timestamp=2 * minute)
        clicks.pipe_input("ann", "/", timestamp=50 * minute)
        # Somebody else's click moves time on: both of Ann's visits are over.
        clicks.pipe_input("bob", "/", timestamp=120 * minute)
        found = driver.create_output_topic("visits", key=STRING, value=JSON).read_key_values()
    assert found == [("ann, 120 s", ["/", "/tea"]), ("ann, 0 s", ["/"])]

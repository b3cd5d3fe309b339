"""Tests of visits, gaps and late clicks."""

from __future__ import annotations

from collections.abc import Sequence

from clickstream_sessions import (
    CLICK,
    CLICKS,
    GAP_MS,
    VISIT,
    VISITS,
    Click,
    Visit,
    demo,
    sessions,
)

from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

MINUTE_MS = 60_000


def visits(clicks: Sequence[tuple[int, str]]) -> list[Visit]:
    """Return the visits of one visitor.

    A much later click of another visitor completes them.
    """
    with TopologyTestDriver(sessions()) as driver:
        topic = driver.create_input_topic(CLICKS, key=STRING, value=CLICK)
        for at_ms, page in clicks:
            topic.pipe_input("ann", Click(page, at_ms))
        topic.pipe_input("bob", Click("/", 100 * GAP_MS))
        return driver.create_output_topic(VISITS, key=STRING, value=VISIT).read_values()


def test_a_gap_ends_a_visit() -> None:
    assert visits([(0, "/"), (MINUTE_MS, "/tea"), (MINUTE_MS + GAP_MS + 1, "/cart")]) == [
        Visit("/", "/tea", 2, 60),
        Visit("/cart", "/cart", 1, 0),
    ]


def test_a_late_click_merges_two_visits() -> None:
    last_ms = GAP_MS + MINUTE_MS
    assert visits([(0, "/"), (last_ms, "/cart"), (2 * MINUTE_MS, "/tea")]) == [
        Visit("/", "/cart", 3, last_ms // 1_000)
    ]


def test_the_demo_succeeds() -> None:
    assert demo() == 0

"""Grouping a table whose changes are held back: a group loses no row that it never had."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream import BufferConfig, StreamsBuilder, Suppressed
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

HELD = Suppressed.until_time_limit(timedelta(milliseconds=10), BufferConfig.unbounded())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Held back, and deleted before it was let go.
        ([("p", "g", 20), ("p", None, 25)], {"g": 1}),
        # Let go, then held back and deleted: what was let go is taken away, once.
        ([("p", "g", 20), ("end", "x", 50), ("p", "h", 51), ("p", None, 52)], {"g": 1}),
        # Held back in one group, and let go in another.
        ([("p", "h", 20), ("p", "g", 25)], {"g": 2}),
        ([("p", "g", 20), ("p", "h", 25)], {"g": 1, "h": 1}),
    ],
)
def test_a_group_subtracts_what_it_added(
    changes: list[tuple[str, Any, int]], expected: dict[str, int]
) -> None:
    """Unlike Kafka Streams, where a row is subtracted that was never let go."""
    builder = StreamsBuilder()
    held = builder.table("rows", key=STRING, value=STRING, store="rows").suppress(HELD)
    grouped = held.group_by(lambda key, group: (group, key), key=STRING, value=STRING)
    grouped.count(store="counts").to_stream().to("out", value=LONG)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("rows", key=STRING, value=STRING)
        topic.pipe_input("other", "g", 0)
        for change in [*changes, ("end", "x", 1_000), ("end", "x", 2_000)]:
            topic.pipe_input(*change)
        told = driver.create_output_topic("out", key=STRING, value=LONG).read_key_values()
        kept = {key: value.value for key, value in driver.get_state_store("counts").all()}
    kept.pop("x")
    assert {group: count for group, count in kept.items() if count} == expected
    assert min(count for _, count in told) >= 0

"""Groups of a suppressed table only subtract rows that were added."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from millstream import BufferConfig, StreamsBuilder, Suppressed
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

SUPPRESSION = Suppressed.until_time_limit(timedelta(milliseconds=10), BufferConfig.unbounded())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Suppressed, and deleted before it was emitted.
        ([("p", "g", 20), ("p", None, 25)], {"g": 1}),
        # Emitted, then suppressed and deleted: the emitted row is subtracted once.
        ([("p", "g", 20), ("end", "x", 50), ("p", "h", 51), ("p", None, 52)], {"g": 1}),
        # Suppressed in one group, and emitted in another.
        ([("p", "h", 20), ("p", "g", 25)], {"g": 2}),
        ([("p", "g", 20), ("p", "h", 25)], {"g": 1, "h": 1}),
    ],
)
def test_group_subtracts_only_added_rows(
    changes: list[tuple[str, Any, int]], expected: dict[str, int]
) -> None:
    """Unlike Kafka Streams, which subtracts rows that were never emitted."""
    builder = StreamsBuilder()
    suppressed = builder.table("rows", key=STRING, value=STRING, store="rows").suppress(SUPPRESSION)
    grouped = suppressed.group_by(lambda key, group: (group, key), key=STRING, value=STRING)
    grouped.count(store="counts").to_stream().to("out", value=LONG)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("rows", key=STRING, value=STRING)
        topic.pipe_input("other", "g", 0)
        for change in [*changes, ("end", "x", 1_000), ("end", "x", 2_000)]:
            topic.pipe_input(*change)
        output = driver.create_output_topic("out", key=STRING, value=LONG).read_key_values()
        counts = {key: value.value for key, value in driver.get_state_store("counts").all()}
    counts.pop("x")
    assert {group: count for group, count in counts.items() if count} == expected
    assert min(count for _, count in output) >= 0

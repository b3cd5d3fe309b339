"""Stream joins: other users of their stores, and failing functions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from millstream import (
    JoinWindows,
    LogAndContinueProcessingExceptionHandler,
    Processor,
    Record,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.serdes import STRING
from millstream.testing import TopologyTestDriver

MS = timedelta(milliseconds=1)
NEAR = JoinWindows(10 * MS, grace=5 * MS)

Event = tuple[str, str, int]


def outputs(topology: Topology, events: list[Event]) -> list[Any]:
    """Return the output values for events (topic, value, time) of one key."""
    config = StreamsConfig(
        application_id="joins",
        bootstrap_servers="not-used:9092",
        default_dsl_store="in_memory",
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
    )
    with TopologyTestDriver(topology, config, initial_wall_clock_ms=0) as driver:
        for topic, value, time in events:
            driver.create_input_topic(topic, key=STRING, value=STRING).pipe_input("k", value, time)
        output = driver.create_output_topic("out", key=STRING, value=STRING)
        return [(record.value, record.timestamp) for record in output.read_records()]


def test_record_is_stored_although_its_joiner_fails() -> None:
    """Only the failed result is missing: the next record of the other side can be joined with the
    stored record."""

    def fail_on_bad(left: str, right: str | None) -> str:
        if right == "bad":
            raise ValueError(right)
        return f"{left}+{right}"

    builder = StreamsBuilder()
    left = builder.stream("left", key=STRING, value=STRING)
    left.left_join(builder.stream("right", key=STRING, value=STRING), fail_on_bad, NEAR).to(
        "out", value=STRING
    )
    events = [("left", "a", 0), ("right", "bad", 1), ("right", "b", 2), ("left", "c", 3)]
    # c is joined with bad first, which ends its search for partners.
    assert outputs(builder.build(), events) == [("a+b", 2)]


class Count(Processor[str, str, str, str]):
    """Forwards the number of records in the window store of a join."""

    def process(self, record: Record[str, str]) -> None:
        with self.context.get_state_store("s-this-join-store").all() as items:
            self.context.forward(record.with_value(f"{sum(1 for _ in items)} stored"))


def test_store_of_a_join_can_be_read_by_another_node() -> None:
    """Then the nodes of the join process one record at a time, with the same results."""
    builder = StreamsBuilder()
    left = builder.stream("left", key=STRING, value=STRING)
    right = builder.stream("right", key=STRING, value=STRING)
    joined = left.join(right, lambda a, b: f"{a}+{b}", NEAR, store_name="s")
    counted = builder.stream("ask", key=STRING, value=STRING).process(
        Count, stores=["s-this-join-store"]
    )
    joined.merge(counted).to("out", key=STRING, value=STRING)
    events = [
        ("left", "a", 0),
        ("ask", "?", 0),
        ("right", "b", 2),
        ("left", "c", 3),
        ("ask", "?", 3),
    ]
    assert outputs(builder.build(), events) == [
        ("1 stored", 0),
        ("a+b", 2),
        ("c+b", 3),
        ("2 stored", 3),
    ]

"""Joins of streams at work: beside other users of their stores, and where functions fail."""

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
    """The values that events (topic, value, time) of one key lead to."""
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


def test_a_record_on_which_the_joiner_fails_is_kept_all_the_same() -> None:
    """It is left out of that result only: the next record of the other side may suit it."""

    def picky(left: str, right: str | None) -> str:
        if right == "bad":
            raise ValueError(right)
        return f"{left}+{right}"

    builder = StreamsBuilder()
    left = builder.stream("left", key=STRING, value=STRING)
    left.left_join(builder.stream("right", key=STRING, value=STRING), picky, NEAR).to(
        "out", value=STRING
    )
    events = [("left", "a", 0), ("right", "bad", 1), ("right", "b", 2), ("left", "c", 3)]
    # c meets bad first, which ends its own search for partners.
    assert outputs(builder.build(), events) == [("a+b", 2)]


class Count(Processor[str, str, str, str]):
    """Forwards how many records the window store of a join holds."""

    def process(self, record: Record[str, str]) -> None:
        with self.context.get_state_store("s-this-join-store").all() as items:
            self.context.forward(record.with_value(f"{sum(1 for _ in items)} kept"))


def test_somebody_else_reads_the_store_of_a_join() -> None:
    """Then the nodes of the join take one record at a time, with the same results."""
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
        ("1 kept", 0),
        ("a+b", 2),
        ("c+b", 3),
        ("2 kept", 3),
    ]

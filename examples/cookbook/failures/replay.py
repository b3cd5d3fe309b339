"""Replay: process dead letters again after a fix.

Dead letters are unchanged input records, so their topic can be read like any input topic. This
topology reads both topics, so the fixed function also processes the dead letters. Count the
attempts in a header and limit them; otherwise a record that keeps failing is processed forever.
Order is not preserved: a dead letter is processed after later records of its key. If order matters,
stop the thread instead.
"""

from __future__ import annotations

from millstream import Processor, Record, StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

MAX_ATTEMPTS = 3
ATTEMPTS = "attempts"


class Parse(Processor[str, str, str, int]):
    """A processor that parses amounts, and retries invalid ones a few times."""

    def process(self, record: Record[str, str]) -> None:
        try:
            cents = int(record.value.replace(".", ""))
        except ValueError:
            attempts = int(dict(record.headers).get(ATTEMPTS) or b"0") + 1
            headers = [(name, value) for name, value in record.headers if name != ATTEMPTS]
            failed = record.with_headers([*headers, (ATTEMPTS, b"%d" % attempts)])
            # These two sinks accept text; only `amounts` accepts numbers.
            self.context.forward(failed, "retry" if attempts < MAX_ATTEMPTS else "given-up")  # type: ignore[arg-type]
        else:
            self.context.forward(record.with_value(cents), "amounts")


def amounts() -> Topology:
    """Read amounts as text, including amounts to retry, and write them in cents."""
    topology = Topology()
    topology.add_source("text", ["amounts-as-text", "amounts-retry"], key=STRING, value=STRING)
    topology.add_processor("parse", Parse, "text")
    topology.add_sink("amounts", "amounts", "parse", key=STRING, value=LONG)
    topology.add_sink("retry", "amounts-retry", "parse", key=STRING, value=STRING)
    topology.add_sink("given-up", "amounts-given-up", "parse", key=STRING, value=STRING)
    return topology


def test_records_have_three_attempts() -> None:
    with TopologyTestDriver(amounts()) as driver:
        text = driver.create_input_topic("amounts-as-text", key=STRING, value=STRING)
        text.pipe_key_values([("1", "12.50"), ("2", "twelve")])
        found = driver.create_output_topic("amounts", key=STRING, value=LONG)
        given_up = driver.create_output_topic("amounts-given-up", key=STRING, value=STRING)
        assert found.read_key_values() == [("1", 1250)]
        (letter,) = given_up.read_records()
    assert (letter.key, letter.value) == ("2", "twelve")
    assert dict(letter.headers)[ATTEMPTS] == b"3"


def test_the_same_with_the_dsl() -> None:
    """The DSL reads both topics as one stream, here without retries."""
    builder = StreamsBuilder()
    both = builder.stream(["orders", "orders-dead-letters"], key=STRING, value=STRING)
    both.map_values(str.strip).to("orders-again", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        letters = driver.create_input_topic("orders-dead-letters", key=STRING, value=STRING)
        letters.pipe_input("1", " tea ")
        found = driver.create_output_topic("orders-again", key=STRING, value=STRING)
        assert found.read_values() == ["tea"]

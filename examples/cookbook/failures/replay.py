"""Replay: send dead letters in again, once what was wrong is mended.

Dead letters are the input records as they were, so they can simply be read as one more input. This
topology reads both topics; the mended function gets the letters as well. Give each letter a limited
number of tries, in a header, or one that still fails goes round for ever. Order is not kept: a
letter comes after records of its key that were behind it. Where that matters, stop instead.
"""

from __future__ import annotations

from millstream import Processor, Record, StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

MOST_TRIES = 3
TRIES = "tries"


class Parse(Processor[str, str, str, int]):
    """Reads amounts; what cannot be read goes round again, and in the end to somebody's eyes."""

    def process(self, record: Record[str, str]) -> None:
        try:
            cents = int(record.value.replace(".", ""))
        except ValueError:
            tries = int(dict(record.headers).get(TRIES) or b"0") + 1
            headers = [(name, value) for name, value in record.headers if name != TRIES]
            again = record.with_headers([*headers, (TRIES, b"%d" % tries)])
            # What goes to these two is text; only amounts go on as numbers.
            self.context.forward(again, "retry" if tries < MOST_TRIES else "given-up")  # type: ignore[arg-type]
        else:
            self.context.forward(record.with_value(cents), "amounts")


def amounts() -> Topology:
    """Amounts as text in, together with those that failed before; cents out."""
    topology = Topology()
    topology.add_source("text", ["amounts-as-text", "amounts-retry"], key=STRING, value=STRING)
    topology.add_processor("parse", Parse, "text")
    topology.add_sink("amounts", "amounts", "parse", key=STRING, value=LONG)
    topology.add_sink("retry", "amounts-retry", "parse", key=STRING, value=STRING)
    topology.add_sink("given-up", "amounts-given-up", "parse", key=STRING, value=STRING)
    return topology


def test_a_letter_has_three_tries() -> None:
    with TopologyTestDriver(amounts()) as driver:
        text = driver.create_input_topic("amounts-as-text", key=STRING, value=STRING)
        text.pipe_key_values([("1", "12.50"), ("2", "twelve")])
        found = driver.create_output_topic("amounts", key=STRING, value=LONG)
        given_up = driver.create_output_topic("amounts-given-up", key=STRING, value=STRING)
        assert found.read_key_values() == [("1", 1250)]
        (letter,) = given_up.read_records()
    assert (letter.key, letter.value) == ("2", "twelve")
    assert dict(letter.headers)[TRIES] == b"3"


def test_the_builder_of_streams_can_do_the_same() -> None:
    """With words of the DSL, where nothing goes round: both topics are one stream."""
    builder = StreamsBuilder()
    both = builder.stream(["orders", "orders-dead-letters"], key=STRING, value=STRING)
    both.map_values(str.strip).to("orders-again", key=STRING, value=STRING)
    with TopologyTestDriver(builder.build()) as driver:
        letters = driver.create_input_topic("orders-dead-letters", key=STRING, value=STRING)
        letters.pipe_input("1", " tea ")
        found = driver.create_output_topic("orders-again", key=STRING, value=STRING)
        assert found.read_values() == ["tea"]

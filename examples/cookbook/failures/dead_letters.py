"""Dead letters: keep failed records, and continue.

By default, the first record that cannot be deserialized or processed ends the thread with an error,
and the application instance closes: no record is lost, but processing stops. With a handler that
returns CONTINUE and a dead-letter topic, such a record is written to the topic unchanged, with
headers for its position and the error. Distinguish the kinds of failures: an invalid record will
fail again, but an unavailable service will recover.
"""

from __future__ import annotations

from millstream import (
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.serdes import BYTES, JSON, LONG, STRING
from millstream.testing import TopologyTestDriver

DEAD_LETTERS = "orders-dead-letters"


def config(bootstrap_servers: str) -> StreamsConfig:
    """Return settings that write failed records to a dead-letter topic."""
    return StreamsConfig(
        application_id="totals",
        bootstrap_servers=bootstrap_servers,
        deserialization_exception_handler=LogAndContinueExceptionHandler(),
        processing_exception_handler=LogAndContinueProcessingExceptionHandler(),
        errors_dead_letter_queue_topic_name=DEAD_LETTERS,
    )


def totals() -> Topology:
    """Write the total of each order."""
    builder = StreamsBuilder()
    (
        builder.stream("orders", key=STRING, value=JSON)
        .map_values(lambda order: order["price"] * order["count"])
        .to("totals", key=STRING, value=LONG)
    )
    return builder.build()


def test_failed_records_are_kept_with_the_reason() -> None:
    with TopologyTestDriver(totals(), config("not-used:9092")) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=BYTES)
        orders.pipe_key_values(
            [
                ("1", b'{"price":3,"count":2}'),
                ("2", b'{"price":3'),  # truncated: deserialization fails
                ("3", b'{"price":3}'),  # a field is missing: the function fails
                ("4", b'{"price":5,"count":1}'),
            ]
        )
        totals_ = driver.create_output_topic("totals", key=STRING, value=LONG)
        dead = driver.create_output_topic(DEAD_LETTERS, key=STRING, value=BYTES)
        assert totals_.read_key_values() == [("1", 6), ("4", 5)]
        unread, failed = dead.read_records()
    assert (unread.key, unread.value) == ("2", b'{"price":3')
    assert (failed.key, failed.value) == ("3", b'{"price":3}')
    reasons = dict(failed.headers)
    assert reasons["__streams.errors.topic"] == b"orders"
    assert reasons["__streams.errors.offset"] == b"2"
    assert b"count" in (reasons["__streams.errors.message"] or b"")

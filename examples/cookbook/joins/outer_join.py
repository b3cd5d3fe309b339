"""Outer joins: orders without a payment, and payments without an order.

Two streams are joined by key *and time*: here a payment matches an order that is up to an hour
older. Pairs are emitted immediately. Unmatched records are emitted when a match is no longer
possible, that is, when stream time reaches the end of the hour plus the grace period. Stream time
advances with newer records of either stream. A payment that arrives too late for its order is
reported as unmatched.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import JoinWindows, StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

#: A payment may be up to an hour later than its order, or a minute earlier (clocks differ).
WINDOWS = JoinWindows(timedelta(hours=1), before=timedelta(minutes=1), grace=timedelta(minutes=5))


def status(ordered: int | None, paid: int | None) -> str:
    """Return the status of an order and its payment, one of which may be missing."""
    if paid is None:
        return "not paid"
    if ordered is None:
        return "no order"
    return "paid" if ordered == paid else f"paid {paid} of {ordered}"


def matched() -> Topology:
    """Write the status of each order. Orders and payments are keyed by order number."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=STRING, value=LONG)
    payments = builder.stream("payments", key=STRING, value=LONG)
    (
        orders.outer_join(payments, status, WINDOWS, store_name="orders-and-payments").to(
            "statuses", key=STRING, value=STRING
        )
    )
    return builder.build()


def test_unmatched_records_are_emitted_when_their_window_closes() -> None:
    minute = 60_000
    with TopologyTestDriver(matched()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=LONG)
        payments = driver.create_input_topic("payments", key=STRING, value=LONG)
        statuses = driver.create_output_topic("statuses", key=STRING, value=STRING)
        orders.pipe_input("1", 500, timestamp=0)
        orders.pipe_input("2", 700, timestamp=0)
        payments.pipe_input("1", 500, timestamp=20 * minute)
        payments.pipe_input("3", 100, timestamp=30 * minute)
        assert statuses.read_key_values() == [("1", "paid")]
        orders.pipe_input("4", 900, timestamp=200 * minute)
        payments.pipe_input("4", 400, timestamp=210 * minute)
        orders.pipe_input("5", 1, timestamp=600 * minute)
        found = statuses.read_key_values()
    assert sorted(found) == [
        ("2", "not paid"),
        ("3", "no order"),
        ("4", "paid 400 of 900"),
    ]

"""Outer joins: orders without a payment, and payments without an order.

Two streams are joined by key *and time*: a payment belongs to an order if it comes within an hour
of it. Pairs come out at once. What has found no partner comes out when none can come any more, that
is when stream time has passed the end of its hour by the grace period, so it takes newer records,
on either side, to move time on. A payment that comes too late for its order is told as one without.
"""

from __future__ import annotations

from datetime import timedelta

from millstream import JoinWindows, StreamsBuilder, Topology
from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver

#: A payment may come up to an hour after its order, or a minute before it (clocks differ).
IN_TIME = JoinWindows(timedelta(hours=1), before=timedelta(minutes=1), grace=timedelta(minutes=5))


def verdict(ordered: int | None, paid: int | None) -> str:
    """What an order and a payment, or only one of them, mean."""
    if paid is None:
        return "not paid"
    if ordered is None:
        return "paid for nothing"
    return "paid" if ordered == paid else f"paid {paid} of {ordered}"


def matched() -> Topology:
    """Amounts ordered and amounts paid by order number in, verdicts out."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", key=STRING, value=LONG)
    payments = builder.stream("payments", key=STRING, value=LONG)
    (
        orders.outer_join(payments, verdict, IN_TIME, store_name="orders-and-payments").to(
            "verdicts", key=STRING, value=STRING
        )
    )
    return builder.build()


def test_unmatched_ones_come_when_their_time_is_over() -> None:
    minute = 60_000
    with TopologyTestDriver(matched()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=LONG)
        payments = driver.create_input_topic("payments", key=STRING, value=LONG)
        verdicts = driver.create_output_topic("verdicts", key=STRING, value=STRING)
        orders.pipe_input("1", 500, timestamp=0)
        orders.pipe_input("2", 700, timestamp=0)
        payments.pipe_input("1", 500, timestamp=20 * minute)
        payments.pipe_input("3", 100, timestamp=30 * minute)
        assert verdicts.read_key_values() == [("1", "paid")]
        orders.pipe_input("4", 900, timestamp=200 * minute)
        payments.pipe_input("4", 400, timestamp=210 * minute)
        orders.pipe_input("5", 1, timestamp=600 * minute)
        found = verdicts.read_key_values()
    assert sorted(found) == [
        ("2", "not paid"),
        ("3", "paid for nothing"),
        ("4", "paid 400 of 900"),
    ]

"""Validation: separate invalid records, and give the reasons.

Typed serdes reject records of the wrong type, and the exception handler decides how to continue.
For other rules, do not raise exceptions for expected failures: split the stream, and write invalid
records with the reasons to a separate topic, where their producers can inspect them.
"""

from __future__ import annotations

from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def faults(order: dict[str, Any]) -> list[str]:
    """Return the faults of an order, or an empty list if it is valid."""
    found: list[str] = []
    if not order.get("customer"):
        found.append("there is no customer")
    if order.get("count", 0) < 1:
        found.append(f"the count is {order.get('count')!r}")
    return found


def validated() -> Topology:
    """Separate valid orders from invalid ones, and add the reasons to the latter."""
    builder = StreamsBuilder()
    branches = (
        builder.stream("orders", key=STRING, value=JSON)
        .split(name="orders-")
        .branch(lambda key, order: not faults(order), "good")
        .default_branch("bad")
    )
    branches["orders-good"].to("good-orders", key=STRING, value=JSON)
    (
        branches["orders-bad"]
        .map_values(lambda order: {"order": order, "faults": faults(order)})
        .to("bad-orders", key=STRING, value=JSON)
    )
    return builder.build()


def test_bad_orders_have_reasons() -> None:
    with TopologyTestDriver(validated()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=JSON)
        orders.pipe_key_values([("1", {"customer": "ann", "count": 2}), ("2", {"count": 0})])
        good = driver.create_output_topic("good-orders", key=STRING, value=JSON)
        bad = driver.create_output_topic("bad-orders", key=STRING, value=JSON)
        assert good.read_key_values() == [("1", {"customer": "ann", "count": 2})]
        assert bad.read_value()["faults"] == ["there is no customer", "the count is 0"]

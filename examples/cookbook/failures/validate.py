"""Validation: tell good records from bad ones at the door, and say why.

Typed serdes refuse what does not fit, which is the handler's business. Rules beyond types are
yours. Do not raise for what is expected to happen: split the stream, and send what breaks a rule to
a topic of its own with the reason beside it, where whoever has sent it can look.
"""

from __future__ import annotations

from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def faults(order: dict[str, Any]) -> list[str]:
    """What is wrong with an order; nothing if it is good."""
    found = []
    if not order.get("customer"):
        found.append("there is no customer")
    if order.get("count", 0) < 1:
        found.append(f"the count is {order.get('count')!r}")
    return found


def validated() -> Topology:
    """Orders in; good ones, and bad ones with the reasons, out."""
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


def test_bad_orders_say_what_is_wrong() -> None:
    with TopologyTestDriver(validated()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=JSON)
        orders.pipe_key_values([("1", {"customer": "ann", "count": 2}), ("2", {"count": 0})])
        good = driver.create_output_topic("good-orders", key=STRING, value=JSON)
        bad = driver.create_output_topic("bad-orders", key=STRING, value=JSON)
        assert good.read_key_values() == [("1", {"customer": "ann", "count": 2})]
        assert bad.read_value()["faults"] == ["there is no customer", "the count is 0"]

"""Enrichment from a table: add customer data to each order.

The topic of customers is read as a table, which contains the latest record of each key. The join
looks up the customer in a local store when the order arrives, without a network call. Both topics
must have the same number of partitions, and the customer as their key. Use a `global_table` if the
table is small and has a different key, and a foreign-key join if orders must be updated when their
customer changes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def with_customer(order: dict[str, Any], customer: dict[str, Any] | None) -> dict[str, Any]:
    """Add the customer's town to an order; the town of an unknown customer is None."""
    return {**order, "town": customer and customer["town"]}


def enriched() -> Topology:
    """Add the customer's town to each order."""
    builder = StreamsBuilder()
    customers = builder.table("customers", key=STRING, value=JSON, store="customers")
    orders = builder.stream("orders", key=STRING, value=JSON)
    orders.left_join(customers, with_customer).to("orders-with-towns", key=STRING, value=JSON)
    return builder.build()


def config(bootstrap_servers: str) -> StreamsConfig:
    """Return settings that let orders wait for customers with older timestamps."""
    return StreamsConfig(
        application_id="orders-with-towns",
        bootstrap_servers=bootstrap_servers,
        max_task_idle_ms=1_000,
    )


def test_orders_are_joined_with_the_customer_of_their_time() -> None:
    with TopologyTestDriver(enriched()) as driver:
        customers = driver.create_input_topic("customers", key=STRING, value=JSON)
        orders = driver.create_input_topic("orders", key=STRING, value=JSON)
        customers.pipe_input("ann", {"town": "Oslo"}, timestamp=1)
        orders.pipe_input("ann", {"item": "tea"}, timestamp=2)
        customers.pipe_input("ann", {"town": "Rome"}, timestamp=3)
        orders.pipe_input("ann", {"item": "mug"}, timestamp=4)
        orders.pipe_input("bob", {"item": "pot"}, timestamp=5)
        found = driver.create_output_topic("orders-with-towns", key=STRING, value=JSON)
        assert [order["town"] for order in found.read_values()] == ["Oslo", "Rome", None]


def test_an_order_waits_for_its_customer() -> None:
    with TopologyTestDriver(enriched(), config("not-used:9092")) as driver:
        customers = driver.create_input_topic("customers", key=STRING, value=JSON)
        orders = driver.create_input_topic("orders", key=STRING, value=JSON)
        found = driver.create_output_topic("orders-with-towns", key=STRING, value=JSON)
        orders.pipe_input("ann", {"item": "tea"}, timestamp=2)
        assert found.is_empty
        customers.pipe_input("ann", {"town": "Oslo"}, timestamp=1)
        driver.advance_wall_clock_time(timedelta(seconds=1))
        assert [order["town"] for order in found.read_values()] == ["Oslo"]

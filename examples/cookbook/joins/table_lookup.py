"""Enrichment from a table: add to each order what is known of its customer.

The customers' topic is a table: the newest record of each key counts. The join looks the customer
up when the order comes, in a store beside the code, so there is no call to anybody. Both topics
need equally many partitions and the customer as their key. Take a `global_table` instead where the
table is small and the key is another one, and a foreign-key join where a change of the customer
should change the orders as well.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from millstream import StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def with_customer(order: dict[str, Any], customer: dict[str, Any] | None) -> dict[str, Any]:
    """The order with the customer's town, None for a customer that nobody knows yet."""
    return {**order, "town": customer and customer["town"]}


def enriched() -> Topology:
    """Orders and customers in, orders with towns out."""
    builder = StreamsBuilder()
    customers = builder.table("customers", key=STRING, value=JSON, store="customers")
    orders = builder.stream("orders", key=STRING, value=JSON)
    orders.left_join(customers, with_customer).to("orders-with-towns", key=STRING, value=JSON)
    return builder.build()


def config(bootstrap_servers: str) -> StreamsConfig:
    """An order that comes within a second of its customer finds it, whichever is read first."""
    return StreamsConfig(
        application_id="orders-with-towns",
        bootstrap_servers=bootstrap_servers,
        max_task_idle_ms=1_000,
    )


def test_orders_find_the_customer_of_their_moment() -> None:
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

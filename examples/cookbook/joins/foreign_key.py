"""Foreign keys: a table of orders that is updated with their customers.

Each order has a customer id. When a customer moves, all of the customer's orders change, including
last year's. This is a foreign-key join of two tables, and its result is a table. `foreign_key`
returns the key of the customer for an order. The two topics may have different numbers of
partitions. Use a typed serde for the left table, because equal values must have equal bytes.
"""

from __future__ import annotations

import msgspec

from millstream import StreamsBuilder, Topology
from millstream.serdes import STRING, json_of
from millstream.testing import TopologyTestDriver


class Order(msgspec.Struct, frozen=True):
    """An item and its buyer."""

    customer: str
    item: str


class Customer(msgspec.Struct, frozen=True):
    """The address of a buyer."""

    town: str


ORDER, CUSTOMER = json_of(Order), json_of(Customer)


def addressed() -> Topology:
    """Write a shipping label for each order, and update it when the customer moves."""
    builder = StreamsBuilder()
    orders = builder.table("orders", key=STRING, value=ORDER, store="orders")
    customers = builder.table("customers", key=STRING, value=CUSTOMER, store="customers")
    (
        orders.join(
            customers,
            lambda order, customer: f"{order.item} to {customer.town}",
            foreign_key=lambda order: order.customer,
            name="labels",
        )
        .to_stream()
        .to("labels", key=STRING, value=STRING)
    )
    return builder.build()


def test_orders_follow_a_customer_who_moves() -> None:
    with TopologyTestDriver(addressed()) as driver:
        orders = driver.create_input_topic("orders", key=STRING, value=ORDER)
        customers = driver.create_input_topic("customers", key=STRING, value=CUSTOMER)
        labels = driver.create_output_topic("labels", key=STRING, value=STRING)
        customers.pipe_input("ann", Customer("Oslo"))
        orders.pipe_key_values([("1", Order("ann", "tea")), ("2", Order("ann", "mug"))])
        customers.pipe_input("ann", Customer("Rome"))
        orders.pipe_input("1", None)
        assert labels.read_key_values() == [
            ("1", "tea to Oslo"),
            ("2", "mug to Oslo"),
            ("1", "tea to Rome"),
            ("2", "mug to Rome"),
            ("1", None),
        ]

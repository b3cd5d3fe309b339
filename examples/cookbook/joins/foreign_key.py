"""Foreign keys: a table of orders that follows its customers.

An order names its customer. When the customer moves, all of the orders change, also those of last
year: that is a join of two tables by a foreign key, and the result is a table. `foreign_key` takes
the order and gives the key of its customer. The two topics may have any number of partitions. Take
a typed serde for the left table: equal values must have equal bytes.
"""

from __future__ import annotations

import msgspec

from millstream import StreamsBuilder, Topology
from millstream.serdes import STRING, json_of
from millstream.testing import TopologyTestDriver


class Order(msgspec.Struct, frozen=True):
    """What was bought, and by whom."""

    customer: str
    item: str


class Customer(msgspec.Struct, frozen=True):
    """Where to send it."""

    town: str


ORDER, CUSTOMER = json_of(Order), json_of(Customer)


def addressed() -> Topology:
    """Orders and customers in, a label for each order out."""
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


def test_a_customer_who_moves_takes_all_orders_along() -> None:
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

"""The demo's application: orders in, the revenue of each product out."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from millstream.serdes import JSON, STRING
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.options.materialized import Materialized
from millstream.topology.physical.topology import Topology

ORDERS: Final = "orders"
REVENUE: Final = "revenue"

#: Prices in cents.
PRODUCTS: Final = {
    "tea": 349,
    "coffee": 599,
    "sugar": 129,
    "honey": 799,
    "biscuits": 249,
    "chocolate": 319,
    "oranges": 279,
    "almonds": 459,
    "rice": 199,
    "olive oil": 1_099,
    "salt": 89,
    "pepper": 389,
}

Order = dict[str, Any]
Totals = dict[str, int]


def revenue() -> Topology:
    """Orders by customer in; of each product how many orders and how many cents, newest, out."""
    builder = StreamsBuilder()
    store = Materialized("revenue-by-product", key=STRING, value=JSON)
    (
        builder.stream(ORDERS, key=STRING, value=JSON)
        .group_by(lambda _, order: order["product"], key=STRING, value=JSON, name="by-product")
        .aggregate(lambda: {"orders": 0, "cents": 0}, add, store=store)
        .to_stream()
        .to(REVENUE, key=STRING, value=JSON)
    )
    return builder.build()


def add(product: str, order: Order, totals: Totals) -> Totals:
    """The totals of a product with one more order."""
    return {
        "orders": totals["orders"] + 1,
        "cents": totals["cents"] + order["quantity"] * order["price"],
    }


def orders(number: int, seed: int = 42) -> Iterator[tuple[str, Order]]:
    """So many orders with the customers who placed them, the same each time."""
    chance = random.Random(seed)
    products = list(PRODUCTS)
    # Some are bought more often than others.
    weights = [1 / (1 + place) for place in range(len(products))]
    for _ in range(number):
        (product,) = chance.choices(products, weights)
        customer = f"customer-{chance.randrange(1_000)}"
        yield (
            customer,
            {
                "product": product,
                "quantity": chance.randint(1, 5),
                "price": PRODUCTS[product],
            },
        )

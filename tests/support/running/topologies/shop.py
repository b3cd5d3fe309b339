"""A shop with stores of several kinds for the console: a table, a global table, in-memory
counts, windows, and an intermediate topic."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from millstream import Materialized, StreamsBuilder, TimeWindows, Topology
from millstream.serdes import LONG, STRING

#: The shop fails at this order while a file exists.
POISON = "poison"
INPUTS = ("orders", "customers", "products")
OUTPUTS = ("orders-by-name", "customer-counts", "sold-by-hour")


def shop(fails_while: Path | None = None) -> Topology:
    """Orders (customer → product) with their customers, counted by customer and by hour.

    Args:
        fails_while: if this file exists, the order `POISON` removes it and fails.
    """
    builder = StreamsBuilder()
    customers = builder.table("customers", key=STRING, value=STRING, store="customers")
    products = builder.global_table("products", key=STRING, value=STRING, store="products")
    orders = builder.stream("orders", key=STRING, value=STRING)

    def is_valid(customer: str, product: str) -> bool:
        if product == POISON and fails_while is not None and fails_while.exists():
            fails_while.unlink()
            raise KeyError("EUR")
        return product != POISON

    valid = orders.filter(is_valid)
    named = valid.join(customers, lambda product, customer: f"{customer}: {product}")
    named.to("orders-by-name")
    named.group_by_key().count(
        store=Materialized("orders-by-customer", kind="in_memory")
    ).to_stream().to("customer-counts", value=LONG)
    sold = valid.join(
        products, lambda order, product: product, key_selector=lambda customer, product: product
    ).group_by(lambda customer, product: product)
    hours = sold.windowed_by(TimeWindows(timedelta(hours=1))).count(store="sold-by-hour")
    hours.to_stream().map(lambda key, value: (key.key, value)).to("sold-by-hour", value=LONG)
    return builder.build()

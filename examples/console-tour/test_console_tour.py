"""Tests of the shop's results. The demo checks that the console shows them."""

from __future__ import annotations

from console_tour import ORDER, ORDERS, SALES, TOWNS, Order, shop

from millstream.serdes import LONG, STRING
from millstream.testing import TopologyTestDriver


def test_sales_by_town() -> None:
    with TopologyTestDriver(shop()) as driver:
        towns = driver.create_input_topic(TOWNS, key=STRING, value=STRING)
        orders = driver.create_input_topic(ORDERS, key=STRING, value=ORDER)
        towns.pipe_key_values([("ann", "Oslo"), ("bob", "Lima")])
        for customer, cents in (("ann", 100), ("bob", 200), ("ann", 300), ("nobody", 900)):
            orders.pipe_input(customer, Order("tea", cents))
        sales = driver.create_output_topic(SALES, key=STRING, value=LONG)
        assert sales.read_key_values_to_map() == {"Oslo": 400, "Lima": 200}

"""Top N: the three best-selling products of each hour.

Two aggregations, one behind the other. The first counts by product and hour. Its table is then
grouped by hour, where a product whose count changes leaves with its old count (the subtractor) and
comes back with its new one (the adder). What an hour keeps is a dict of all its products, so that
a product that falls behind can be replaced; where there are too many of them for that, keep the
best hundred, and accept that one that rises from below is seen late.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from millstream import Materialized, StreamsBuilder, TimeWindows, Topology, Windowed
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver

HOUR = timedelta(hours=1)
BEST = 3


def by_hour(product: Windowed[str], count: int) -> tuple[str, dict[str, Any]]:
    """Under the hour, what is to be ranked."""
    hour = product.window.start_ms // 3_600_000
    return f"hour {hour}", {"product": product.key, "count": count}


def with_product(hour: str, row: dict[str, Any], counts: dict[str, int]) -> dict[str, int]:
    return {**counts, row["product"]: row["count"]}


def without_product(hour: str, row: dict[str, Any], counts: dict[str, int]) -> dict[str, int]:
    return {product: count for product, count in counts.items() if product != row["product"]}


def best(counts: dict[str, int]) -> list[str]:
    """The products with the highest counts; of equal ones the first by name."""
    ranked = sorted(counts, key=lambda product: (-counts[product], product))
    return ranked[:BEST]


def best_sellers() -> Topology:
    """Sales (a product each) in, the best products of each hour out."""
    builder = StreamsBuilder()
    (
        builder.stream("sales", key=STRING, value=STRING)
        .group_by(lambda shop, product: product, key=STRING, value=STRING)
        .windowed_by(TimeWindows(HOUR, grace=timedelta(minutes=1)))
        .count(store="sales-per-product")
        .group_by(by_hour, key=STRING, value=JSON)
        .aggregate(
            dict, with_product, without_product, store=Materialized("sales-per-hour", value=JSON)
        )
        .map_values(best)
        .to_stream()
        .to("best-sellers", key=STRING, value=JSON)
    )
    return builder.build()


def test_ranks_change_as_counts_grow() -> None:
    with TopologyTestDriver(best_sellers()) as driver:
        sales = driver.create_input_topic("sales", key=STRING, value=STRING)
        for product in ("tea", "mug", "pot", "jam", "jam", "mug", "jam"):
            sales.pipe_input("north", product, timestamp=1_000)
        ranks = driver.create_output_topic("best-sellers", key=STRING, value=JSON)
        assert ranks.read_key_values_to_map() == {"hour 0": ["jam", "mug", "pot"]}

"""Top N: the three best-selling products of each hour.

This requires two aggregations. The first one counts by product and hour. Its table is then grouped
by hour: when the count of a product changes, the subtractor removes the old count and the adder
adds the new one. The aggregate of an hour is a dict of all its products, so that a product that
drops out of the top three can be replaced. If there are too many products for that, keep the best
hundred; a product that has dropped out then returns only when its own count changes.
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
    """Return the hour, and the product with its count."""
    hour = product.window.start_ms // 3_600_000
    return f"hour {hour}", {"product": product.key, "count": count}


def with_product(hour: str, row: dict[str, Any], counts: dict[str, int]) -> dict[str, int]:
    return {**counts, row["product"]: row["count"]}


def without_product(hour: str, row: dict[str, Any], counts: dict[str, int]) -> dict[str, int]:
    return {product: count for product, count in counts.items() if product != row["product"]}


def best(counts: dict[str, int]) -> list[str]:
    """Return the products with the highest counts, with ties ordered by name."""
    ranked = sorted(counts, key=lambda product: (-counts[product], product))
    return ranked[:BEST]


def best_sellers() -> Topology:
    """Rank the best-selling products of each hour; each sale is of one product."""
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

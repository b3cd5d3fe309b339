"""Counts visits by product category, with Spark SQL as a part of the topology.

    python examples/dataframe_enrich.py --demo
    python examples/dataframe_enrich.py --bootstrap-servers localhost:9092 --products p.parquet

The topology reads visits from Kafka and filters them, Spark SQL joins them with a Parquet table of
products, and the topology counts them by category, exactly once. With --demo, the program runs in
the test driver without Kafka: Spark joins one batch with generated products, and every count is
compared with plain Python.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import DataFrame, SparkSession

from millstream import EXACTLY_ONCE_V2, KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import TopologyTestDriver

CATEGORIES = ("books", "music", "games")


class Visit(msgspec.Struct):
    """A visit to the page of a product."""

    product: str
    seconds: int


class CategorizedVisit(msgspec.Struct):
    """A visit with the category of the product."""

    product: str
    category: str
    seconds: int


def enrichment(products: str) -> Topology:
    """Build a topology that counts visits by product category.

    Args:
        products: a Parquet file or folder with the columns `product` and `category`.
    """

    def categorized(visits: DataFrame) -> DataFrame:
        dimension = visits.sparkSession.read.parquet(products)
        return (
            visits.selectExpr("key", "value.product", "value.seconds", "timestamp")
            .join(dimension, "product", "left")
            .fillna("unknown", ["category"])
        )

    builder = StreamsBuilder()
    (
        builder.stream("visits", key=STRING, value=json_of(Visit))
        .filter(lambda visitor, visit: visit.seconds > 1)
        .transform_dataframe(categorized, value=json_of(CategorizedVisit), name="categorize")
        .group_by(
            lambda visitor, visit: visit.category, key=STRING, value=json_of(CategorizedVisit)
        )
        .count(store="visits-by-category")
        .to_stream()
        .to("visits-by-category", key=STRING, value=LONG)
    )
    return builder.build()


def demo() -> int:
    """Run in the test driver; return 0 if every count is correct."""
    rng = random.Random(7)
    products = {f"product-{number}": rng.choice(CATEGORIES) for number in range(90)}
    expected: Counter[str] = Counter()
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory(prefix="visits-") as folder:
        table = Path(folder, "products.parquet")
        columns = {"product": list(products), "category": list(products.values())}
        pyarrow.parquet.write_table(pa.table(columns), table)
        with TopologyTestDriver(enrichment(str(table))) as driver:
            visits = driver.create_input_topic("visits", key=STRING, value=json_of(Visit))
            for number in range(2_000):
                # Some products are not in the table, and some visits are too short.
                visit = Visit(f"product-{rng.randrange(100)}", rng.randrange(30))
                visits.pipe_input(f"visitor-{rng.randrange(40)}", visit, timestamp=number)
                if visit.seconds > 1:
                    expected[products.get(visit.product, "unknown")] += 1
            count = driver.run_dataframes(spark)
            out = driver.create_output_topic("visits-by-category", key=STRING, value=LONG)
            found = out.read_key_values_to_map()
    spark.stop()
    if found != dict(expected):
        print(f"WRONG: {found}, expected {dict(expected)}")
        return 1
    print(f"Spark SQL processed {count} visits, and every count is correct")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts visits by category.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    parser.add_argument(
        "--products", default="products.parquet", help="the Parquet table of products"
    )
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(
        application_id="dataframe-enrich",
        bootstrap_servers=options.bootstrap_servers,
        processing_guarantee=EXACTLY_ONCE_V2,
    )
    KafkaStreams(enrichment(options.products), config).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

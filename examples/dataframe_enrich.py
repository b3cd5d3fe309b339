"""What do visitors of which segment look at? Spark SQL in the middle of a topology.

    python examples/dataframe_enrich.py --demo
    python examples/dataframe_enrich.py --bootstrap-servers localhost:9092 --products p.parquet

Visits come from Kafka and are cleaned by the topology. Spark SQL joins them with a table of
products in a Parquet file, and the topology counts them by category, with state and exactly once.
With --demo it needs no Kafka: it brings a broker and products along, and checks every count.
"""

from __future__ import annotations

import argparse
import sys

import msgspec
from pyspark.sql import DataFrame

from millstream import EXACTLY_ONCE_V2, KafkaStreams, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import LONG, STRING, json_of


class Visit(msgspec.Struct):
    """Somebody has looked at a product."""

    product: str
    seconds: int


class Seen(msgspec.Struct):
    """The same, with what the table of products knows."""

    product: str
    category: str
    seconds: int


def enrichment(products: str) -> Topology:
    """Visits by visitor in, how many there were of each category out.

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
        .transform_dataframe(categorized, value=json_of(Seen), name="categorize")
        .group_by(lambda visitor, seen: seen.category, key=STRING, value=json_of(Seen))
        .count(store="visits-by-category")
        .to_stream()
        .to("visits-by-category", key=STRING, value=LONG)
    )
    return builder.build()


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts visits by category.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; both topics must exist on it")
    where.add_argument("--demo", action="store_true", help="bring broker and records along")
    parser.add_argument("--products", default="products.parquet", help="the table of products")
    options = parser.parse_args()
    if options.demo:
        from dataframe_enrich_demo import run

        return run(enrichment)
    config = StreamsConfig(
        application_id="dataframe-enrich",
        bootstrap_servers=options.bootstrap_servers,
        processing_guarantee=EXACTLY_ONCE_V2,
    )
    KafkaStreams(enrichment(options.products), config).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())

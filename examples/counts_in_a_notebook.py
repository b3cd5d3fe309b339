"""Joins an application's counts with a Parquet table, as in a notebook.

    python examples/counts_in_a_notebook.py --demo
    python examples/counts_in_a_notebook.py --bootstrap-servers localhost:9092 --customers customers

An application counts orders by customer. The cells below read its store `counts` from the changelog
as a DataFrame, and join it with a Parquet table of customers. They require the application id and
the serdes, but not the application's code. The application may run elsewhere, or not at all. With
--demo, the program starts a broker (this requires Java 17), counts some orders, and checks the
results of the cells.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from millstream import (
    InvalidStateStoreError,
    KafkaStreams,
    QueryableStoreTypes,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.lake import position_of, read_store
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka

APPLICATION, TOPIC, PARTITIONS = "orders-by-customer", "orders", 3
COUNTRIES = ("Norway", "Peru", "Japan")
CUSTOMERS = [(f"c{number:03}", COUNTRIES[number % 3]) for number in range(60)]
DEADLINE_S = 60.0
ORDERS = [CUSTOMERS[number * number % 60][0] for number in range(2_000)]


def counting(topic: str) -> Topology:
    """Build a topology that counts orders by customer."""
    builder = StreamsBuilder()
    builder.stream(topic, key=STRING, value=STRING).group_by_key().count(store="counts")
    return builder.build()


# --- the notebook: each function is a cell --------------------------------------------------------


def orders_by_customer(spark: SparkSession, bootstrap_servers: str) -> DataFrame:
    """Return the current content of the store: a row for each customer with orders."""
    config = StreamsConfig(application_id=APPLICATION, bootstrap_servers=bootstrap_servers)
    return read_store(spark, config, "counts", key=STRING, value=LONG)


def orders_by_country(counts: DataFrame, customers: DataFrame) -> DataFrame:
    """Return the number of orders by country, after a join with the customers."""
    joined = counts.join(customers, counts.key == customers.customer)
    return joined.groupBy("country").agg({"value": "sum"}).toDF("country", "orders")


def orders_of_one(counts: DataFrame, customer: str) -> int:
    """Return the orders of one customer.

    With a filter on the key, one partition is read.
    """
    row = counts.where(counts.key == customer).first()
    return 0 if row is None else int(row.value)


# --- the demo -------------------------------------------------------------------------------------


def demo() -> int:
    """Count some orders and run the cells; return 0 if their results are correct."""
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        producer = Producer(
            {"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2_random"}
        )
        for customer in ORDERS:
            producer.produce(TOPIC, b"an order", customer.encode())
        producer.flush()
        # The user's session, which the application shares with the notebook.
        spark = SparkSession.builder.master("local[6]").appName("notebook").getOrCreate()
        customers = str(Path(folder, "customers"))
        spark.createDataFrame(CUSTOMERS, "customer string, country string").write.parquet(customers)
        config = StreamsConfig(
            application_id=APPLICATION,
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=str(Path(folder, "state")),
        )
        with KafkaStreams(counting(TOPIC), config, spark) as streams:
            streams.wait_for_state("RUNNING", timedelta(minutes=2))
            deadline = time.monotonic() + DEADLINE_S
            while counted(streams) < len(ORDERS) and time.monotonic() < deadline:
                time.sleep(0.2)
        # The application is closed, and all counts are in the changelog.
        found = run_cells(spark, kafka.bootstrap_servers, customers)
        spark.stop()
    country_of = dict(CUSTOMERS)
    expected = Counter(country_of[customer] for customer in ORDERS)
    print("every result is correct" if found == expected else f"WRONG: {found}, not {expected}")
    return 0 if found == expected else 1


def counted(streams: KafkaStreams) -> int:
    """Return the number of orders that have been counted so far."""
    try:
        store = streams.store("counts", QueryableStoreTypes.key_value())
        return sum(count for _, count in store.all())
    except InvalidStateStoreError:
        # Not all partitions are available yet.
        return 0


def run_cells(spark: SparkSession, bootstrap_servers: str, customers: str) -> dict[str, int]:
    """Run all cells of the notebook, and return the orders by country."""
    counts = orders_by_customer(spark, bootstrap_servers)
    print(f"counts at {position_of(counts)}")
    one = CUSTOMERS[1][0]
    print(f"{one} has ordered {orders_of_one(counts, one)} times")
    by_country = orders_by_country(counts, spark.read.parquet(customers))
    by_country.orderBy("country").show()
    return {row.country: row.orders for row in by_country.collect()}


def main() -> int:
    parser = argparse.ArgumentParser(description="Joins counts with a Parquet table.")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker")
    where.add_argument("--demo", action="store_true", help="start a broker, and check the results")
    parser.add_argument("--customers", help="your Parquet table of customers and countries")
    options = parser.parse_args()
    if options.demo:
        return demo()
    spark = SparkSession.builder.getOrCreate()
    run_cells(spark, options.bootstrap_servers, options.customers)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

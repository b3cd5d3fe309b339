"""Joins orders with their customers and the names of countries.

    python examples/enrich_orders.py --demo
    python examples/enrich_orders.py --bootstrap-servers localhost:9092

With --demo, the program runs in the test driver, without Kafka or Spark: it generates a day of
orders, prints the sales of each country, and compares them with plain Python.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from typing import Any

from millstream import KafkaStreams, Materialized, StreamsBuilder, StreamsConfig, Topology
from millstream.serdes import JSON, LONG, STRING, Serde
from millstream.testing import TopologyTestDriver

#: The inputs: country codes by customer, country names by code, and amounts by customer.
CUSTOMERS, COUNTRIES, ORDERS = "customers", "countries", "orders"
ENRICHED, SPENT, RESIDENTS = "enriched-orders", "spent-by-country", "customers-by-country"

NAMES = {"no": "Norway", "pt": "Portugal", "jp": "Japan"}


def placed(amount: int, code: str | None) -> tuple[int, str]:
    """Return an order with the country code of its customer."""
    return amount, code or "?"


def named(order: tuple[int, str], country: str | None) -> dict[str, Any]:
    """Return an order with the name of its country."""
    return {"amount": order[0], "country": country or "somewhere"}


def enrichment() -> Topology:
    """Build a topology that adds countries to orders, and sums sales by country.

    It also counts the customers of each country.
    """
    builder = StreamsBuilder()
    customers = builder.table(CUSTOMERS, key=STRING, value=STRING, store="customers")
    countries = builder.global_table(COUNTRIES, key=STRING, value=STRING, store="countries")
    orders = builder.stream(ORDERS, key=STRING, value=LONG)

    # Each order is joined with the current country of its customer.
    enriched = orders.left_join(customers, placed, name="place").left_join(
        countries, named, key_selector=lambda customer, order: order[1], name="name"
    )
    enriched.to(ENRICHED, key=STRING, value=JSON)
    (
        enriched.group_by(
            lambda _, order: str(order["country"]), key=STRING, value=JSON, name="by-country"
        )
        .aggregate(
            lambda: 0,
            lambda country, order, total: total + int(order["amount"]),
            store=Materialized("spent", value=LONG),
        )
        .to_stream()
        .to(SPENT, key=STRING, value=LONG)
    )
    # A customer who moves is removed from one country and added to another.
    (
        customers.group_by(
            lambda customer, code: (code, customer), key=STRING, value=STRING, name="residents"
        )
        .count(store="residents")
        .to_stream()
        .to(RESIDENTS, key=STRING, value=LONG)
    )
    return builder.build()


def sample_events() -> list[tuple[str, str, Any]]:
    """Generate a day of records in chronological order, as (topic, key, value)."""
    rng = random.Random(7)
    events: list[tuple[str, str, Any]] = [(COUNTRIES, code, name) for code, name in NAMES.items()]
    for number in range(2_000):
        customer = f"customer-{rng.randrange(50)}"
        if number < 50 or rng.random() < 0.05:
            events.append((CUSTOMERS, customer, rng.choice(list(NAMES))))
        else:
            events.append((ORDERS, customer, rng.randrange(1, 100)))
    return events


def expected(events: list[tuple[str, str, Any]]) -> tuple[dict[str, int], dict[str, int]]:
    """Compute the sales and customers of each country in plain Python."""
    lives_in: dict[str, str] = {}
    spent: Counter[str] = Counter()
    for topic, key, value in events:
        if topic == CUSTOMERS:
            lives_in[key] = value
        elif topic == ORDERS:
            spent[NAMES.get(lives_in.get(key, "?"), "somewhere")] += value
    return dict(spent), dict(Counter(lives_in.values()))


def demo() -> int:
    """Process a day in the test driver; return 0 if the results are correct."""
    events = sample_events()
    with TopologyTestDriver(enrichment(), initial_wall_clock_ms=0) as driver:
        serdes: dict[str, Serde[Any]] = {CUSTOMERS: STRING, COUNTRIES: STRING, ORDERS: LONG}
        for time_ms, (topic, key, value) in enumerate(events):
            inputs = driver.create_input_topic(topic, key=STRING, value=serdes[topic])
            inputs.pipe_input(key, value, time_ms)
        spent, residents = (
            dict(driver.create_output_topic(topic, key=STRING, value=LONG).read_key_values())
            for topic in (SPENT, RESIDENTS)
        )
    for country, total in sorted(spent.items()):
        print(f"{country:10} spent {total:6}")
    right = (spent, residents) == expected(events)
    print("as expected" if right else "NOT as expected")
    return 0 if right else 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Joins orders with the countries of their customers."
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-servers", help="your broker; the six topics must exist on it")
    where.add_argument("--demo", action="store_true", help="generate the input, without a broker")
    options = parser.parse_args()
    if options.demo:
        return demo()
    config = StreamsConfig(
        application_id="enrich-orders", bootstrap_servers=options.bootstrap_servers
    )
    KafkaStreams(enrichment(), config).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

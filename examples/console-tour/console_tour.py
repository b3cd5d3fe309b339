"""A sample shop with continuous orders, for a tour of the console.

    python examples/console-tour/console_tour.py             # until Ctrl-C
    python examples/console-tour/console_tour.py --demo      # prints the data of each view

The program starts a broker, and sends orders continuously, some of them invalid. README.md
describes the views. With --demo, it requests the data of each view like a browser, and prints it.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from confluent_kafka import Producer

from millstream import (
    KafkaStreams,
    LogAndContinueExceptionHandler,
    Materialized,
    ServerAddress,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from millstream.serdes import LONG, STRING, json_of
from millstream.testing import EmbeddedKafka

ORDERS, TOWNS, SALES, DEAD = "orders", "towns", "sales", "dead-letters"
CUSTOMERS = [f"customer-{number}" for number in range(200)]
PARTITIONS = 4
ORDERS_PER_S = 400
#: One in this many orders has no price.
INVALID_EVERY = 500
DEADLINE_S = 90.0


class Order(msgspec.Struct, frozen=True):
    """An order; the key is the customer."""

    product: str
    cents: int


ORDER = json_of(Order)


def shop() -> Topology:
    """Build a topology with a table, a join, an aggregation and a window."""
    builder = StreamsBuilder()
    towns = builder.table(TOWNS, key=STRING, value=STRING, store="towns")
    orders = builder.stream(ORDERS, key=STRING, value=ORDER)
    sales = (
        orders.join(towns, lambda order, town: (town, order.cents))
        .map(lambda customer, sale: sale)
        .group_by_key(key=STRING, value=LONG, name="by-town")
    )
    sales.reduce(int.__add__, store=Materialized("sales", value=LONG)).to_stream().to(
        SALES, key=STRING, value=LONG
    )
    sales.windowed_by(TimeWindows(timedelta(seconds=10), grace=timedelta(seconds=1))).reduce(
        int.__add__, store=Materialized("sales-per-10-s", value=LONG)
    )
    return builder.build()


class Customers:
    """Sends the towns once, and orders continuously on a background thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "partitioner": "murmur2_random",
                "log_level": 3,
            }
        )
        self._rng = random.Random(5)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="customers", daemon=True)

    def __enter__(self) -> Customers:
        for number, customer in enumerate(CUSTOMERS):
            town = ("Oslo", "Lima", "Kyoto")[number % 3]
            self._producer.produce(TOWNS, town.encode(), customer.encode())
        self._producer.flush(30)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(30)

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.05):
            for _ in range(ORDERS_PER_S // 20):
                number += 1
                order = {"product": self._rng.choice(("tea", "mug")), "cents": 350}
                if number % INVALID_EVERY == 0:
                    del order["cents"]
                customer = self._rng.choice(CUSTOMERS)
                self._producer.produce(ORDERS, json.dumps(order).encode(), customer.encode())
            self._producer.poll(0)
        self._producer.flush(30)


def get(address: ServerAddress, path: str) -> Any:
    """Request a document, like the console."""
    request = urllib.request.Request(address.url + path)
    request.add_header("Authorization", f"Bearer {address.token}")
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.load(response)


def wait(read: Callable[[], Any], condition: Callable[[Any], bool], name: str) -> Any:
    """Read until the condition holds, and return the result.

    Raises:
        TimeoutError: the condition does not hold within `DEADLINE_S`.
    """
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = read()
        if condition(found):
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {DEADLINE_S:.0f} s: {name}")
        time.sleep(0.2)


def tour(address: ServerAddress) -> int:
    """Print the data of each view, and return the number of failures."""

    def state() -> Any:
        return get(address, "/console/state")

    running = wait(state, lambda found: (found["totals"]["records_per_s"] or 0) > 0, "records")
    totals = running["totals"]
    print(
        f"Overview:       {running['application']['state']}, "
        f"{totals['records_per_s']:.0f} records/s"
    )
    edges = running["topology"]["edges"]
    print(f"Topology:       {len(running['topology']['parts'])} sub-topologies, {len(edges)} edges")
    for thread in running["threads"]:
        print(f"Tasks & hosts:  {thread['label']} has {len(thread['active'])} tasks")
    names = ", ".join(sorted(store["name"] for store in running["stores"]))
    print(f"Stores:         {names}")
    entries = wait(
        lambda: get(address, "/stores/sales/range?limit=10")["entries"],
        lambda found: len(found) == 3,
        "sales of three towns",
    )
    for entry in entries:
        print(f"                {entry['key']}: {entry['value'] / 100:.2f}")
    for letters in wait(lambda: state()["dead_letters"], bool, "dead letters"):
        print(
            f"Dead letters:   {letters['records_total']:.0f} invalid orders in {letters['topic']}, "
            f"from the {letters['handler']} handler of {letters['node']}"
        )
    failures = len(state()["failures"])
    print(f"Errors:         {failures} failed threads")
    states = " → ".join(str(change["new"]) for change in running["states"])
    print(f"Timeline:       {states}; {len(running['rebalances'])} rebalances")
    return failures


def run(demo: bool) -> int:
    """Run the shop on an embedded broker, until Ctrl-C or the end of the tour."""
    print("Starting an Apache Kafka broker and Spark …", flush=True)
    with (
        EmbeddedKafka() as kafka,
        tempfile.TemporaryDirectory(prefix="console-tour-") as folder,
    ):
        for topic in (ORDERS, SALES, DEAD):
            kafka.create_topic(topic, PARTITIONS)
        kafka.create_topic(TOWNS, PARTITIONS, {"cleanup.policy": "compact"})
        config = StreamsConfig(
            application_id="console-tour",
            bootstrap_servers=kafka.bootstrap_servers,
            state_dir=folder,
            num_stream_threads=2,
            commit_interval_ms=1_000,
            deserialization_exception_handler=LogAndContinueExceptionHandler(),
            errors_dead_letter_queue_topic_name=DEAD,
            server_port=0,
        )
        with KafkaStreams(shop(), config) as streams, Customers(kafka.bootstrap_servers):
            address = streams.server_address
            assert address is not None
            if demo:
                failures = tour(address)
                print("the tour is complete" if not failures else "WRONG: threads have failed")
                return int(failures > 0)
            print(f"Open {address.console}\nPress Ctrl-C to stop.", flush=True)
            try:
                threading.Event().wait()
            except KeyboardInterrupt:
                print("Closing …")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="A sample shop for a tour of the console.")
    parser.add_argument("--demo", action="store_true", help="print the data of each view, and exit")
    return run(parser.parse_args().demo)


if __name__ == "__main__":
    raise SystemExit(main())

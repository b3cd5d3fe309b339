"""Query a database with a blocking client.

`map_async` also takes a plain function, and calls it on up to `concurrency` threads. Only the path
of the database is shipped to the workers, not a connection. If the data can be copied to Kafka (see
*change data capture*), a join with a table needs no calls, and a versioned table returns the row
that was valid at the time of the record.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


class Customers:
    """A lookup of customers in a database. Only its path is shipped to the workers."""

    def __init__(self, path: str) -> None:
        self.path = path

    def with_town(self, order: dict[str, Any]) -> dict[str, Any]:
        """Add the customer's town to an order; the town of an unknown customer is None."""
        # SQLite connections are cheap, so each call opens one. For a server, use a pool.
        connection = sqlite3.connect(self.path)
        try:
            found = connection.execute(
                "SELECT town FROM customers WHERE name = ?", (order["customer"],)
            ).fetchone()
        finally:
            connection.close()
        return {**order, "town": found and found[0]}


def with_towns(path: str) -> Topology:
    """Add towns to orders, with ten threads that query the database."""
    builder = StreamsBuilder()
    (
        builder.stream("orders", key=STRING, value=JSON)
        .map_async(Customers(path).with_town, concurrency=10)
        .to("orders-with-towns", key=STRING, value=JSON)
    )
    return builder.build()


def test_towns_come_from_the_database() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "customers.db"))
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("CREATE TABLE customers (name TEXT PRIMARY KEY, town TEXT)")
            connection.execute("INSERT INTO customers VALUES ('ann', 'Oslo')")
        connection.close()
        with TopologyTestDriver(with_towns(path)) as driver:
            orders = driver.create_input_topic("orders", key=STRING, value=JSON)
            orders.pipe_key_values([("1", {"customer": "ann"}), ("2", {"customer": "bob"})])
            found = driver.create_output_topic("orders-with-towns", key=STRING, value=JSON)
            assert [order["town"] for order in found.read_values()] == ["Oslo", None]
